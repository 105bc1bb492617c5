//! Writes of hosts that come through several nodes, at one of those that have the volume to read
//! (docs/decisions/0048-paths-of-a-host.md).

use super::Frontend;
use crate::client::Client;
use crate::effect::{Close, Effect};

impl<K: Copy + Ord> Frontend<K> {
    /// A connection has a write, and the process has the volume to read. The write is not carried out: the host may
    /// have given this path up by now, and have written through another one since. The process is to have the volume to
    /// write, and the host sends its write again, on a connection that is younger than that.
    pub(super) fn turn_away(&mut self, conn: K, client: &mut Client) {
        client.has_ended = true;
        self.turns.gone(conn);
        let which = client.volume.as_ref().map(|(which, _)| which.as_ref().clone());
        self.effects.extend(which.map(Effect::AttachToWrite));
        self.effects.push_back(Effect::Close(conn, Close::Lingering));
    }
}
