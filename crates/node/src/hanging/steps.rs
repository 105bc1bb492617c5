//! What becomes of a device that does not answer.

use crate::effect::Effect;
use crate::node::Node;
use crate::pending::PendingOp;
use azekura_base::{DeviceId, IoStatus, PgId};
use azekura_replica::Group;
use azekura_wire::{Message, ReadDone};

impl Node {
    /// A device that answers nothing is not waited for any more, and after a longer time it is out of service, until it
    /// answers. While it is being opened nobody waits for it: then people are told, and that is all.
    pub(crate) fn watch_device(&mut self, id: DeviceId) {
        let (now, timeout) = (self.now, self.limits.device_timeout);
        let Some(device) = self.devices.get_mut(&id) else { return };
        let map = device.store.map_silence();
        let change = device.hanging.look(map, now);
        let (open, silence, longest) = (device.open, device.hanging.silence(map, now), device.hanging.longest());
        if let Some(hangs) = change {
            self.effects.push_back(Effect::DeviceHangs(id, hangs, if hangs { silence } else { longest }));
            self.wake_all(id, |group| group.set_hung(hangs));
            if hangs {
                self.send_readers_on(id);
            } else {
                self.device_is_back(id);
            }
        }
        if silence < timeout {
            return;
        }
        let Some(device) = self.devices.get_mut(&id) else { return };
        if open && !std::mem::replace(&mut device.hanging.out, true) {
            let what = if silence == map { "the device's map" } else { "the device" };
            let reason =
                format!("{what} has not answered for {} s; it goes into service again when it does", silence.as_secs());
            self.effects.push_back(Effect::DeviceOut(id, reason));
            self.wake_all(id, |group| group.set_out(true));
            self.answer_questions(id);
        } else if !open && !std::mem::replace(&mut device.hanging.opening_reported, true) {
            // Nobody waits for a copy of it yet, so it may have all the time that it takes.
            self.effects.push_back(Effect::DeviceOpensLate(id, silence));
        }
    }

    /// A device that was silent is as good as before.
    fn device_is_back(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        if std::mem::take(&mut device.hanging.out) {
            self.effects.push_back(Effect::DeviceOpen(id, Ok(())));
            self.wake_all(id, |group| group.set_out(false));
        }
    }

    /// Something becomes of all copies on a device.
    fn wake_all(&mut self, id: DeviceId, change: impl Fn(&mut Group)) {
        let keys: Vec<_> = self.copies.groups.keys().filter(|(_, device)| *device == id).copied().collect();
        keys.into_iter().for_each(|(pg, _)| self.wake(pg, id, &change));
    }

    /// Those who have asked something of a device's store that any other could tell are not kept waiting.
    fn answer_questions(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let is_question =
            |pending: &PendingOp| matches!(pending, PendingOp::Compare { .. } | PendingOp::Measure { .. });
        let questions = device.pending.iter().filter(|(_, pending)| is_question(pending));
        let questions: Vec<u64> = questions.map(|(token, _)| token).collect();
        let questions: Vec<PendingOp> =
            questions.into_iter().filter_map(|token| device.pending.remove(token)).collect();
        questions.iter().for_each(|pending| self.no_answer(pending));
    }

    /// Readers that wait for a device that hangs are sent to the primary, unless it is here: then it is about to be
    /// another.
    fn send_readers_on(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        let groups = &self.copies.groups;
        let elsewhere = |pg: PgId| groups.get(&(pg, id)).is_some_and(|group| !group.acts_as_primary());
        let mut readers = device.reads.take_waiting(elsewhere);
        for pending in device.pending.values_mut() {
            if let PendingOp::Read { pg, client, request, range, .. } = pending
                && elsewhere(*pg)
            {
                readers.push((*client, *request));
                // The store may still come back to it.
                *pending = PendingOp::Void { blocks: range.count };
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

    /// After how many seconds of silence a device is out of service; `timeout` is what its node was told, if it was.
    /// When it answers again, it is back.
    fn out_after(timeout: Option<Duration>) -> u64 {
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
        let is_told = |node: &Node| node.effects.iter().any(|effect| matches!(effect, Effect::DeviceOut(..)));
        while !is_told(&node) {
            assert!(node.now < 100 * SECOND, "it is never out of service");
            node.now += TICK;
            node.watch_device(id);
        }
        let after = node.now.as_secs();
        assert!(node.devices[&id].hanging.is_out() && node.devices[&id].open);
        node.effects.clear();
        let answer = azekura_store::Done::Read(Ok(bytes::Bytes::new()));
        let (now, device) = (node.now, node.devices.get_mut(&id).expect("its store is as it was"));
        device.hanging.ended(IoId(99), &answer, now);
        for _ in 0..30 {
            node.now += TICK;
            node.watch_device(id);
        }
        let is_back = |effect: &Effect| matches!(effect, Effect::DeviceOpen(of, Ok(())) if *of == id);
        assert_eq!(node.effects.iter().filter(|effect| is_back(effect)).count(), 1);
        assert!(!node.devices[&id].hanging.is_out() && !is_told(&node));
        after
    }

    #[test]
    fn a_silent_device_is_out_of_service_after_the_time_that_the_node_was_told() {
        assert_eq!(out_after(Some(37 * SECOND)), 37);
        assert_eq!(out_after(Some(3 * SECOND)), 3);
        assert_eq!(out_after(Some(SECOND)), DEVICE_TIMEOUT_MIN.as_secs(), "no less than that");
        assert_eq!(out_after(None), DEVICE_TIMEOUT.as_secs());
    }
}
