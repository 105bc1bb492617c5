//! What becomes of a device that does not answer.

use crate::effect::{Breakdown, Effect};
use crate::node::Node;
use crate::pending::PendingOp;
use azekura_base::{DeviceId, IoStatus, PgId};
use azekura_wire::{Message, ReadDone};

impl Node {
    /// A device that answers nothing is not waited for any more, and after a longer time it is out of service. While it
    /// is being opened nobody waits for it: then people are told, and that is all.
    pub(crate) fn watch_device(&mut self, id: DeviceId) {
        let (now, timeout) = (self.now, self.limits.device_timeout);
        let Some(device) = self.devices.get_mut(&id) else { return };
        let change = device.hanging.look(now);
        let (open, silence, longest) = (device.open, device.hanging.silence(now), device.hanging.longest());
        if silence >= timeout {
            let seconds = silence.as_secs();
            if open {
                let reason = format!("the device has not answered for {seconds} s");
                return self.give_up(id, Breakdown { reason, for_good: false });
            }
            // Nobody waits for a copy of it yet, so it may have all the time that it takes.
            if !std::mem::replace(&mut device.hanging.opening_reported, true) {
                self.effects.push_back(Effect::DeviceOpensLate(id, silence));
            }
        }
        let Some(hangs) = change else { return };
        self.effects.push_back(Effect::DeviceHangs(id, hangs, if hangs { silence } else { longest }));
        let keys: Vec<_> = self.copies.groups.keys().filter(|(_, device)| *device == id).copied().collect();
        keys.into_iter().for_each(|(pg, _)| self.wake(pg, id, |group| group.set_hung(hangs)));
        if hangs {
            self.send_readers_on(id);
        }
    }

    /// Readers that wait for a device that hangs are sent to the primary, unless it is here: then it is about to be
    /// another.
    fn send_readers_on(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let groups = &self.copies.groups;
        let elsewhere = |pg: PgId| groups.get(&(pg, id)).is_some_and(|group| !group.acts_as_primary());
        let mut readers = device.reads.take_waiting(elsewhere);
        for pending in device.pending.values_mut() {
            if let PendingOp::Read { pg, client, request, blocks, .. } = pending
                && elsewhere(*pg)
            {
                readers.push((*client, *request));
                // The store may still come back to it.
                *pending = PendingOp::Void { blocks: *blocks };
            }
        }
        for (client, request) in readers {
            let refusal = ReadDone { request, result: Err(IoStatus::Redirect) };
            self.answer_later(client, Message::ReadDone(refusal));
        }
    }
}
