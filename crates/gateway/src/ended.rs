//! Attachments that have ended, and volumes that are gone: what was asked for under, or of, them fails.

use crate::gateway::{Effect, Gateway, Outcome, Running, Under};
use azekura_base::{Generation, IoStatus, RequestId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

impl Gateway {
    /// Fails all requests under attachments that have ended. What was sent for them is refused where it arrives.
    pub fn end_attachments(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) {
        self.end_requests(ended, IoStatus::Fenced);
    }

    pub(crate) fn end_requests(&mut self, ended: impl Fn(VolumeId, Generation) -> bool, why: IoStatus) {
        let over = |(_, running): &(&u64, &Running)| ended(running.volume, running.attachment);
        let over: BTreeSet<u64> = self.ops.iter().filter(over).map(|(id, _)| *id).collect();
        if over.is_empty() {
            return;
        }
        let mut held = 0;
        let mut idle = 0;
        let mut forget = |parts: &mut BTreeMap<RequestId, Under>| {
            parts.retain(|_, under| {
                let stays = !over.contains(&under.op);
                held += if stays { 0 } else { under.bytes_held() };
                idle += usize::from(!stays && under.at.is_none());
                stays
            });
        };
        forget(&mut self.writes);
        forget(&mut self.reads);
        self.backlog.retain(|under| {
            let stays = !over.contains(&under.op);
            held += if stays { 0 } else { under.bytes_held() };
            stays
        });
        self.in_flight_bytes -= held;
        self.idle_parts -= idle;
        for op in over {
            let Some(running) = self.ops.remove(&op) else { continue };
            self.effects.push_back(Effect::Complete(running.token, Outcome::Failed(why)));
        }
        self.start_backlog();
    }
}
