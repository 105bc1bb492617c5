//! A client's read on its way to a store.

use super::{Entry, ReadLimits};
use crate::node::Node;
use azekura_base::{DeviceId, IoStatus};
use azekura_replica::Client;
use azekura_wire::ReadRequest;

impl Node {
    /// Other limits for the devices that are added from now on, for simulations: small ones are met often.
    pub fn limit_reads(&mut self, limits: ReadLimits) {
        self.limits.reads = limits;
    }

    /// A client's read for a copy that may be on this node.
    pub(crate) fn read_arrived(&mut self, client: Client, read: ReadRequest) {
        let request = read.request;
        let device = self.any_copy(read.pg).and_then(|(_, device)| self.devices.get_mut(&device));
        match device.map(|device| device.reads.arrived(client, read)) {
            Some(Entry::In(read)) => self.start_read(client, read),
            Some(Entry::Waits) => {}
            // Another copy may have room; the gateway asks again a little later.
            Some(Entry::TooMany) | None => self.refuse_read(client, request, IoStatus::Redirect),
        }
    }

    fn start_read(&mut self, client: Client, read: ReadRequest) {
        let request = read.request;
        let key = self.any_copy(read.pg);
        if key.and_then(|key| self.with_group(key, |group, now| group.read(client, read, now))).is_none() {
            self.refuse_read(client, request, IoStatus::Redirect);
        }
    }

    /// Lets reads in that have waited, as far as there is room now. To be called when the groups have done what they
    /// were asked for.
    pub(crate) fn let_reads_in(&mut self, id: DeviceId) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        device.reads.settled();
        while let Some((client, read)) = self.devices.get_mut(&id).and_then(|device| device.reads.next()) {
            // What was looked at when it came may have changed.
            if client != Client::Own && self.peer_of(client).is_none() {
                continue;
            }
            if self.directory.fences.refuse(read.volume, read.attachment) {
                self.refuse_read(client, read.request, IoStatus::Fenced);
            } else if !self.directory.heads.answers_reads(read.volume, read.range.layer) {
                self.refuse_read(client, read.request, IoStatus::Stale);
            } else {
                self.start_read(client, read);
            }
        }
    }
}
