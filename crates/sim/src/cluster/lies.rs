//! What a network does that lies, for the tests of the checks.

use crate::cluster::attachments::INSPECTOR;
use crate::cluster::events::Event;
use crate::cluster::{Cluster, Scene};
use crate::kernel::network::{ConnId, Side};
use crate::plan::Lie;
use azekura_base::{ChunkIndex, Generation, RequestId, SessionId, VolumeId, WriteHeader};
use azekura_wire::{FenceDone, Message, Prepare, PrepareHeld, PrepareOk};
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// What a lying network makes of a message.
    pub(super) fn tamper(&mut self, message: &mut Message) {
        let groups = &self.configuration.view().groups;
        match (self.plan.lie, message) {
            (
                Some(Lie::NoLiveWrites),
                Message::Prepare(Prepare { device, header, .. })
                | Message::PrepareHeld(PrepareHeld { device, header, .. }),
            ) if groups.get(&header.pg).is_some_and(|config| !config.in_sync.contains(device)) => {
                header.range.chunk = ChunkIndex(self.plan.chunks + header.pg.0);
            }
            (Some(Lie::UnheardFence), Message::Fence(fence)) => fence.generation = Generation(0),
            (Some(Lie::UnheardFreeze), Message::Freeze(freeze)) => freeze.volume = VolumeId(0),
            (Some(Lie::UnheardLayers), Message::Layers(layers)) => {
                layers.heads.clear();
                layers.parents.clear();
            }
            (Some(Lie::NoFence), Message::Write(write)) => write.attachment = INSPECTOR,
            (Some(Lie::SkippedChanges), Message::CompareOk(ok)) => drop(ok.differing.pop()),
            _ => {}
        }
    }

    /// What a lying network adds to a message that was sent on `key`.
    pub(super) fn lie_about(&mut self, key: azekura_node::ConnKey, message: Message) {
        let (id, side) = (ConnId::of(key), Side::Dialler);
        let (injected_from, after, message) = match (self.plan.lie, message) {
            (Some(Lie::DoubledWrites), Message::Write(mut write)) if self.random.chance(20) => {
                write.session = SessionId(write.session.0 ^ 0x5555 << 32); // Another node's.
                write.request = RequestId(write.request.0 + (1 << 40));
                (side, self.random.spread_millis(1, 200), Message::Write(write))
            }
            (_, message @ Message::Write(_)) if self.writes_linger() && self.random.chance(20) => {
                (side, self.random.spread_millis(200, 5000), message)
            }
            (
                Some(Lie::EarlyPrepareOk),
                Message::Prepare(Prepare { device, header, .. })
                | Message::PrepareHeld(PrepareHeld { device, header, .. }),
            ) => {
                let WriteHeader { pg, epoch, sequence, .. } = header;
                let ok = PrepareOk { pg, device, epoch, sequence, full: false };
                (side.other(), Duration::from_micros(400), Message::PrepareOk(ok))
            }
            (Some(Lie::UnheardFreeze), Message::Freeze(freeze)) => {
                let done = FenceDone { request: freeze.request, result: Ok(()) };
                (side.other(), Duration::from_micros(400), Message::FenceDone(done))
            }
            (Some(Lie::UnheardFence), Message::Fence(fence)) => {
                let done = FenceDone { request: fence.request, result: Ok(()) };
                (side.other(), Duration::from_micros(400), Message::FenceDone(done))
            }
            _ => return,
        };
        self.queue.push(self.now + after, Event::Inject(id, injected_from, Box::new(message)));
    }
}
