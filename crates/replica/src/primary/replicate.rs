//! What has a place in the order is sent to the other copies, each time from where the copy is.

use crate::action::Action;
use crate::context::GroupCx;
use crate::pending::Pending;
use crate::primary::Primary;
use crate::window::cost;
use azekura_base::{AckRule, Body, DeviceId, Epoch, Sequence, WriteHeader};
use azekura_wire::Prepare;

impl Primary {
    /// Sends a secondary what it has not been sent.
    pub(crate) fn send_prepares(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let (committed, end, now) = (cx.tail.committed(), cx.tail.end(), cx.now);
        loop {
            let Some(peer) = self.peers.get_mut(&device) else { return };
            // What is committed is not to be had any more: who was not sent it is left behind.
            if !peer.follows || peer.stream.sent >= end || peer.stream.sent < committed {
                return;
            }
            let optional = cx.config.ack != AckRule::All && peer.counts();
            if optional && peer.lags() {
                return;
            }
            let next = peer.stream.sent.next();
            if cx.tail.get_mut(next).is_some_and(|write| write.body.is_none()) {
                if self.loading.is_none() {
                    self.loading = Some(next);
                    cx.act(Action::LoadPrepared(next, self.epoch));
                }
                return;
            }
            peer.stream.sent = next;
            peer.stream.pace.sent(next, now);
            let learns = !peer.counts();
            // Nothing waits for a copy that learns: the write may be answered, and forgotten, before this arrives.
            let first_time = next > peer.stream.again && !learns;
            let Some(write) = cx.tail.get_mut(next).cloned() else { return };
            if optional || learns {
                peer.stream.backlog.sent(next, cost(write.body.as_ref()));
            }
            if learns {
                peer.stream.backlog.needless(next);
            }
            if let Some(prepare) = prepare_of(self.epoch, committed, &write, device) {
                let holder = write.client.filter(|_| write.as_sent && first_time && !optional);
                cx.act(Action::SendPrepare(device, prepare, holder));
            }
        }
    }

    /// Sends what could not be read back from the log, and perhaps can be now. A copy that is not sent it for long is
    /// left behind.
    pub(crate) fn send_again(&mut self, cx: &mut GroupCx) {
        if self.loading.is_none() {
            let devices: Vec<DeviceId> = self.peers.keys().copied().collect();
            devices.into_iter().for_each(|device| self.send_prepares(cx, device));
        }
    }

    /// A prepared write's blocks are back from the log; `None` when the device could not read them.
    pub(crate) fn on_prepared_loaded(
        &mut self,
        cx: &mut GroupCx,
        sequence: Sequence,
        epoch: Epoch,
        body: Option<Body>,
    ) {
        if self.epoch != epoch {
            return; // Asked for in an earlier reign.
        }
        if self.loading.take_if(|loading| *loading == sequence).is_none() {
            return;
        }
        let Some(body) = body else { return };
        if let Some(write) = cx.tail.get_mut(sequence) {
            write.body = Some(body);
        }
        let followers: Vec<DeviceId> = self.peers.keys().copied().collect();
        followers.into_iter().for_each(|device| self.send_prepares(cx, device));
    }
}

fn prepare_of(epoch: Epoch, commit: Sequence, write: &Pending, device: DeviceId) -> Option<Prepare> {
    let header = WriteHeader { epoch, commit, ..write.header };
    Some(Prepare { device, oldest: write.oldest, header, body: write.body.clone()? })
}
