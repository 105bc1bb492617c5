//! Writes of hosts that come through several nodes: the process has to have the volume to write before the first enters
//! (docs/decisions/0048-paths-of-a-host.md).

use super::{Context, Frontend};
use crate::attaching::Writing;
use crate::attachment::{Attachment, VolumeUse};
use crate::effect::{Close, Effect};

impl<K: Copy + Ord> Frontend<K> {
    /// A connection has a write, of so many bytes, for a volume that the process has to read.
    pub(super) fn ask_to_write(&mut self, conn: K, which: &VolumeUse, bytes: usize) {
        if self.attaching.want_to_write(conn, which, bytes) {
            self.effects.push_back(Effect::AttachToWrite(which.clone()));
        }
    }

    /// The process has a volume to write, or has not, and why. Writes that have waited for that enter in turn. Where it
    /// has not, their connections are closed: to their host that is a path that does not work.
    pub fn may_write(&mut self, which: &VolumeUse, outcome: Result<Attachment, String>, cx: &mut Context<'_, K>) {
        // It may have ended on its way here.
        self.look_for_ended = true;
        match self.attaching.may_write(which, &outcome) {
            Writing::May(waiting, users) => {
                for conn in users {
                    cx.clients.client(conn).into_iter().for_each(|client| client.reads_only = false);
                }
                for (conn, bytes) in waiting {
                    if cx.clients.client(conn).is_some_and(|client| client.ready.is_some()) {
                        self.turns.ask(conn, bytes);
                    }
                }
            }
            Writing::MayNot(waiting) => {
                for conn in waiting {
                    if let Some(client) = cx.clients.client(conn) {
                        (client.has_ended, client.ready) = (true, None);
                    }
                    self.turns.gone(conn);
                    self.effects.push_back(Effect::Close(conn, Close::AtOnce));
                }
                if let Err(why) = outcome {
                    let text = format!("a host can't write volume {which} here, and its connections are closed: {why}");
                    self.effects.push_back(Effect::Warn(text));
                }
            }
        }
        self.leave_if_unused(which);
    }
}
