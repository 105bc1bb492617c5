//! What happens on connections with other shards of this process.

use crate::driver::commands::Command;
use crate::driver::dataplane::DataPlane;
use crate::driver::local::End;
use crate::driver::local::lane::Arrival;
use azekura_base::Endpoint;

impl DataPlane {
    /// Joins another shard of this process.
    pub(in crate::driver) fn join(&mut self, to: Endpoint) {
        let Some(other) = self.shards.of(to.shard).cloned() else {
            return self.node.connect_failed(to, false);
        };
        let here = self.handle().waker();
        let Some((key, end)) = self.local.connect(to.shard, here, other.waker()) else {
            return self.node.connect_failed(to, false);
        };
        // Where that shard has stopped, its end is dropped: the connection ends at once.
        other.send(Command::Join(end));
        self.node.connected_local(to, key);
    }

    /// Another shard of this process has joined this one.
    pub(in crate::driver) fn joined(&mut self, end: End) {
        let key = self.local.add(end);
        self.node.accepted_local(key);
    }

    /// Tells the node what other shards of this process have sent.
    pub(in crate::driver) fn read_local(&mut self) {
        if !self.local.look() {
            return;
        }
        // Some of it may have been sent after this turn began, and leases count from when something has come. And the
        // machine may have stood still meanwhile: whoever asks now may know of what others did in that time.
        self.see_time();
        while let Some((key, arrival)) = self.local.next_arrival() {
            match arrival {
                Arrival::Message(message) => self.node.received(key, message),
                Arrival::Closed => self.node.closed(key),
            }
        }
    }

    /// Hands on what the node has sent to other shards of this process.
    pub(in crate::driver) fn flush_local(&mut self) {
        self.local.flush(|key, unsent| self.node.unsent(key, unsent));
    }
}
