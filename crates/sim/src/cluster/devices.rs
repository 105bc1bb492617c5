//! The cluster's side of devices: what stores ask of them, and what comes of it.

use crate::cluster::events::Event;
use crate::cluster::records::CLUSTER;
use crate::cluster::{Cluster, Scene};
use crate::kernel::device::{DiskEnd, MapEnd};
use crate::kernel::disk::Request;
use crate::kernel::process::Life;
use crate::plan::Lie;
use azekura_base::DeviceId;
use azekura_store::{Done, Effect, Identity, IoId};

/// How a device is marked.
pub(crate) fn identity(id: DeviceId) -> Identity {
    Identity { cluster: CLUSTER, device: id, instance: u64::from(id.0) + 1000 }
}

impl<S: Scene> Cluster<S> {
    /// A store asks for something.
    pub(crate) fn device_effect(&mut self, life: Life, id: DeviceId, effect: Effect) {
        let now = self.now;
        let lie = self.plan.lie;
        let Some(device) = self.devices.get_mut(&id) else { return };
        let latency = device.latency(now, &effect);
        let (io, request) = match effect {
            Effect::Write { io, offset, pieces, durable } => {
                let bytes: bytes::Bytes = pieces.concat().into();
                let sum = azekura_base::checksum(&bytes);
                self.trace.step(now, u64::from(sum.0) ^ (offset << 32), || {
                    format!("{id:?} writes {offset}+{} {}", bytes.len(), if durable { "durably" } else { "" })
                });
                (io, Request::Write { offset, bytes, durable })
            }
            Effect::Read { io, offset, len } => {
                self.trace.step(now, offset ^ len as u64, || format!("{id:?} reads {offset}+{len}"));
                (io, Request::Read { offset, len })
            }
            Effect::Flush { io } => (io, Request::Flush),
            effect => {
                self.trace.remark(now, || format!("{id:?} map: {}", describe(&effect)));
                if device.ask_map(effect) {
                    self.queue.push(now + latency, Event::Map(id, life));
                }
                return;
            }
        };
        let early = lie == Some(Lie::EarlyDurable) && matches!(request, Request::Write { .. });
        device.ask_disk(io, request, latency);
        self.start_disk(id, life);
        if early {
            self.tell(life, |node| node.store_done(id, io, Done::Written(Ok(()))));
        }
    }

    /// A disk begins what its queue gives it.
    fn start_disk(&mut self, id: DeviceId, life: Life) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        while let Some((io, latency)) = device.begin() {
            self.queue.push(self.now + latency, Event::Disk(id, life, io));
        }
    }

    /// A disk has finished something.
    pub(crate) fn disk_done(&mut self, id: DeviceId, life: Life, io: IoId) {
        if !self.is_alive(life) {
            return;
        }
        let Some(device) = self.devices.get_mut(&id) else { return };
        let DiskEnd::Answer(done) = device.disk_finishes(io, life, self.now) else { return };
        self.start_disk(id, life);
        let done = match done {
            Some(Done::Written(Ok(()))) if self.plan.lie == Some(Lie::EarlyDurable) => return,
            Some(done) => done,
            None => return,
        };
        self.tell(life, |node| node.store_done(id, io, done));
    }

    /// A device may answer again what it has kept silent about.
    pub(crate) fn device_answers(&mut self, id: DeviceId) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else { return };
        let node = device.node;
        let Some((answers, map)) = device.speak_again(now) else { return };
        answers.into_iter().for_each(|(at, life, io)| self.queue.push(at, Event::Disk(id, life, io)));
        if let Some(life) = map {
            self.queue.push(now, Event::Map(id, life));
        }
        self.trace.step(now, u64::from(id.0), || format!("{id:?} answers again"));
        // One whose store has stopped comes back with its node; others come back by themselves.
        if self.operator.is_out(id) && !self.operator.on && self.store_of(id).is_none() {
            self.restart_as_planned(node);
        }
    }

    /// A saved map has finished the oldest thing that it was asked.
    pub(crate) fn map_done(&mut self, id: DeviceId, life: Life) {
        if !self.is_alive(life) {
            return;
        }
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else { return };
        let (answers, next) = match device.map_finishes(life, now) {
            MapEnd::Silence => return,
            MapEnd::HangsUntil(until) => return self.queue.push(until, Event::Map(id, life)),
            MapEnd::Answer { answers, next } => (answers, next),
        };
        if let Some(latency) = next {
            self.queue.push(now + latency, Event::Map(id, life));
        }
        for (io, done) in answers {
            self.trace.step(now, io.0, || format!("{id:?} map done"));
            self.tell(life, |node| node.store_done(id, io, done));
        }
    }
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Checkpoint { batch, .. } => format!("checkpoint of {} leaves", batch.leaves.len()),
        Effect::LoadLeaves { keys, .. } => format!("load {} leaves", keys.len()),
        Effect::ScanLayer { layer, .. } => format!("scan {layer:?}"),
        Effect::ScanModified { pg, .. } => format!("scan {pg:?}"),
        Effect::LoadMergedOwners { segment, .. } => format!("load merged owners of segment {segment}"),
        Effect::CompareTotals { pg, .. } => format!("compare totals of {pg:?}"),
        _ => String::new(),
    }
}
