//! Connections between shards of one process: messages go from thread to thread by value, and blocks by reference.
//!
//! An end belongs to one shard and is reached by that one's thread alone. What it shares with the other end is in
//! `lane.rs`: of each direction a bounded part is under way, and the rest waits at the end that it comes from, as it
//! does before a socket. A shard is woken once a turn, not once a message, and only by who has something for it.

use crate::driver::local::lane::{Arrival, Inlet, Outlet, lane};
use crate::driver::peers::UNSENT_REPORT_BYTES;
use azekura_base::Shard;
use azekura_node::ConnKey;
use azekura_reactor::Waker;
use azekura_wire::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

mod lane;
mod steps;

/// Their keys begin here, those of sockets below.
const FIRST: u64 = 1 << 62;
/// So many messages that have come are room that is kept for the next ones.
const ARRIVED_KEPT: usize = 1024;

/// One end of a connection. When it is dropped, the other one finds that out behind what was sent.
pub struct End {
    inlet: Inlet,
    outlet: Outlet,
    /// Bytes that wait here, as the node was told last.
    unsent_reported: usize,
    /// While the end is on its way to its shard: who has sent it sees when that is over.
    offer: Option<Arc<()>>,
    /// Last, for whoever is woken by its end is to find the rest gone.
    other: Bell,
}

/// Wakes the shard at the other end, also when this one is gone.
struct Bell(Waker);

impl Bell {
    fn ring(&self) {
        self.0.wake();
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

impl End {
    /// The ends of a connection between the shards that these wake.
    fn pair(here: Waker, there: Waker) -> (End, End) {
        let (inlet_here, outlet_there) = lane();
        let (inlet_there, outlet_here) = lane();
        let end = |inlet, outlet, other| End { inlet, outlet, unsent_reported: 0, offer: None, other: Bell(other) };
        (end(inlet_here, outlet_here, there), end(inlet_there, outlet_there, here))
    }
}

/// What a shard has of its connections with others of its process.
#[derive(Default)]
pub(super) struct LocalSide {
    ends: BTreeMap<ConnKey, End>,
    made: u64,
    /// The last end that each shard was sent, until that shard has taken the end in or lost it.
    offers: BTreeMap<Shard, Weak<()>>,
    /// Ends at which something waits to be handed on.
    sending: BTreeSet<ConnKey>,
    /// What has come, in the order in which the node is to be told.
    arrived: VecDeque<(ConnKey, Arrival)>,
}

impl LocalSide {
    /// The connection of this key is inside the process.
    pub(super) fn has(key: ConnKey) -> bool {
        key.0 >= FIRST
    }

    /// A connection with another shard: its key here, and the other shard's end. `None` while that shard has not taken
    /// in the last one: it stands still, and more would wait there, however long.
    fn connect(&mut self, to: Shard, here: Waker, there: Waker) -> Option<(ConnKey, End)> {
        if self.offers.get(&to).is_some_and(|offer| offer.strong_count() > 0) {
            return None;
        }
        let (end, mut other) = End::pair(here, there);
        let offer = Arc::new(());
        self.offers.insert(to, Arc::downgrade(&offer));
        other.offer = Some(offer);
        Some((self.add(end), other))
    }

    /// A connection that another shard has made. Gives the key that the node knows it by, which no other gets.
    fn add(&mut self, mut end: End) -> ConnKey {
        end.offer = None;
        let key = ConnKey(FIRST + self.made);
        self.made += 1;
        self.ends.insert(key, end);
        key
    }

    /// Sends at the end of the turn, as far as there is room; nothing on a connection that has ended.
    pub(super) fn send(&mut self, key: ConnKey, message: Message) {
        if let Some(end) = self.ends.get_mut(&key) {
            end.inlet.put(message);
            self.sending.insert(key);
        }
    }

    /// The node has nothing to do with the connection any more. What waits here is not sent.
    pub(super) fn close(&mut self, key: ConnKey) {
        self.ends.remove(&key);
    }

    /// Takes in what has come. True when something has.
    fn look(&mut self) -> bool {
        for (key, end) in &mut self.ends {
            let other_waits = end.outlet.empty(|arrival| self.arrived.push_back((*key, arrival)));
            if other_waits {
                end.other.ring();
            }
        }
        !self.arrived.is_empty()
    }

    /// The next that has come.
    fn next_arrival(&mut self) -> Option<(ConnKey, Arrival)> {
        let next = self.arrived.pop_front();
        match &next {
            Some((key, Arrival::Closed)) => self.close(*key),
            Some((_, Arrival::Message(_))) => {}
            None => self.arrived.shrink_to(ARRIVED_KEPT),
        }
        next
    }

    /// Hands on what waits, as far as there is room, and calls `tell` with how many bytes are left at an end when these
    /// are many or have been.
    fn flush(&mut self, mut tell: impl FnMut(ConnKey, usize)) {
        self.sending.retain(|key| {
            let Some(end) = self.ends.get_mut(key) else { return false };
            if end.inlet.flush() {
                end.other.ring();
            }
            let unsent = end.inlet.waiting_bytes();
            if unsent.max(end.unsent_reported) >= UNSENT_REPORT_BYTES {
                end.unsent_reported = unsent;
                tell(*key, unsent);
            }
            unsent > 0
        });
    }
}

#[cfg(test)]
mod dataplane_tests;
#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod tests;
