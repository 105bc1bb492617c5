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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DEVICE_TIMEOUT, DEVICE_TIMEOUT_MIN, Identity};
    use azekura_base::{Endpoint, NodeId};
    use azekura_replica::TICK;
    use azekura_store::{Effect as StoreEffect, InMemoryMap, IoId, Options, SavedMap, Store};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// After how many seconds of silence a node does without its device; `timeout` is what it was told, if it was.
    fn given_up_after(timeout: Option<Duration>) -> u64 {
        let (id, options) = (DeviceId(1), Options { segments: 8, ..Options::default() });
        let store = azekura_store::Identity { cluster: 1, device: id, instance: 1 };
        let mut map = InMemoryMap::new();
        let formatted = Store::format(&options, &store).expect("the options fit");
        map.checkpoint(formatted.checkpoint).expect("it takes everything");
        let root = map.root().expect("it answers").expect("it is formatted");
        let endpoint = Endpoint::first(NodeId(1));
        let mut node = Node::new(Identity { cluster: 1, endpoint, incarnation: 1 }, Duration::ZERO);
        timeout.into_iter().for_each(|timeout| node.set_device_timeout(timeout));
        node.add_device(id, Store::open(options, store, root));
        let device = node.devices.get_mut(&id).expect("it was added");
        device.open = true;
        device.hanging.asked(&StoreEffect::Read { io: IoId(99), offset: 0, len: 4096 }, Duration::ZERO);
        while node.devices.contains_key(&id) {
            assert!(node.now < 100 * SECOND, "it is never given up");
            node.now += TICK;
            node.watch_device(id);
        }
        let told = |effect: &Effect| matches!(effect, Effect::DeviceOpen(of, Err(why)) if *of == id && !why.for_good);
        assert!(node.effects.iter().any(told), "people are told");
        node.now.as_secs()
    }

    #[test]
    fn a_silent_device_is_out_of_service_after_the_time_that_the_node_was_told() {
        assert_eq!(given_up_after(Some(37 * SECOND)), 37);
        assert_eq!(given_up_after(Some(3 * SECOND)), 3);
        assert_eq!(given_up_after(Some(SECOND)), DEVICE_TIMEOUT_MIN.as_secs(), "no less than that");
        assert_eq!(given_up_after(None), DEVICE_TIMEOUT.as_secs());
    }
}
