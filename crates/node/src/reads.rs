//! Clients' reads where they enter a device: only so many are given to its store at a time, and the others wait here.
//!
//! A read that waits here is to everybody else a message that has not arrived yet: whether this copy may answer it is
//! asked when its turn comes. So a crowd of readers costs little memory, what a store needs for itself (blocks for
//! writes of parts of blocks, for copies that are brought up to date, for cleaning) waits behind few of them, and no
//! queue further down is ever so long that something in it would have to fail (0017).

use crate::node::Node;
use crate::{DEVICE_READ_BLOCKS_MAX, DEVICE_READS_MAX, DEVICE_READS_WAITING_MAX};
use azekura_base::{DeviceId, IoStatus, PgId, RequestId};
use azekura_replica::Client;
use azekura_wire::ReadRequest;
use std::collections::{BTreeMap, VecDeque};

type Name = (Client, RequestId);

/// How many reads of clients a device takes.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Reads that the store works on at a time.
    pub reads_max: usize,
    /// Blocks of those, the last one's not counted.
    pub blocks_max: usize,
    /// Reads that wait for those to end.
    pub waiting_max: usize,
}

impl Default for ReadLimits {
    fn default() -> ReadLimits {
        ReadLimits {
            reads_max: DEVICE_READS_MAX,
            blocks_max: DEVICE_READ_BLOCKS_MAX,
            waiting_max: DEVICE_READS_WAITING_MAX,
        }
    }
}

/// The clients' reads of one device.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    limits: ReadLimits,
    /// Reads that the store works on, and their blocks.
    started: usize,
    blocks: usize,
    /// Reads, and their blocks, that were let in since the node's groups were last asked what to do about them.
    entering: (usize, usize),
    /// Those that wait, in the order of their turns.
    turns: VecDeque<Name>,
    waiting: BTreeMap<Name, ReadRequest>,
}

/// What becomes of a read that arrives.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    In(ReadRequest),
    Waits,
    TooMany,
}

impl Reads {
    pub(crate) fn new(limits: ReadLimits) -> Reads {
        Reads { limits, ..Reads::default() }
    }

    fn has_room(&self) -> bool {
        let (reads, blocks) = self.entering;
        self.started + reads < self.limits.reads_max && self.blocks + blocks < self.limits.blocks_max
    }

    fn enters(&mut self, read: &ReadRequest) {
        let (reads, blocks) = self.entering;
        self.entering = (reads + 1, blocks + usize::from(read.range.count));
    }

    fn arrived(&mut self, client: Client, read: ReadRequest) -> Entry {
        if self.turns.is_empty() && self.has_room() {
            self.enters(&read);
            return Entry::In(read);
        }
        let name = (client, read.request);
        if let Some(earlier) = self.waiting.get_mut(&name) {
            *earlier = read; // Asked again for want of an answer: there will be one.
            return Entry::Waits;
        }
        if self.turns.len() >= self.limits.waiting_max {
            return Entry::TooMany;
        }
        self.turns.push_back(name);
        self.waiting.insert(name, read);
        Entry::Waits
    }

    /// The next read whose turn it is, if the store has room for one.
    fn next(&mut self) -> Option<(Client, ReadRequest)> {
        if !self.has_room() {
            return None;
        }
        let name = self.turns.pop_front()?;
        let read = self.waiting.remove(&name)?;
        self.enters(&read);
        Some((name.0, read))
    }

    /// The groups have been asked: what they serve has been [started](Reads::started).
    fn settled(&mut self) {
        self.entering = (0, 0);
    }

    /// The store works on a read of so many blocks.
    pub(crate) fn started(&mut self, blocks: u16) {
        self.started += 1;
        self.blocks += usize::from(blocks);
    }

    /// And has ended it.
    pub(crate) fn ended(&mut self, blocks: u16) {
        self.started -= 1;
        self.blocks -= usize::from(blocks);
    }

    /// Takes out those that wait for one of some groups.
    pub(crate) fn take_waiting(&mut self, of: impl Fn(PgId) -> bool) -> Vec<Name> {
        let is_of = |name: &Name| self.waiting.get(name).is_some_and(|read| of(read.pg));
        let (taken, stay): (Vec<Name>, Vec<Name>) = self.turns.iter().partition(|name| is_of(name));
        self.turns = stay.into();
        self.waiting.retain(|_, read| !of(read.pg));
        taken
    }

    /// Those that wait, when the device is given up.
    pub(crate) fn into_waiting(self) -> impl Iterator<Item = Name> {
        self.turns.into_iter()
    }
}

impl Node {
    /// Other limits for the devices that are added from now on, for simulations: small ones are met often.
    pub fn limit_reads(&mut self, limits: ReadLimits) {
        self.read_limits = limits;
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
            if self.fences.refuse(read.volume, read.attachment) {
                self.refuse_read(client, read.request, IoStatus::Fenced);
            } else if !self.heads.answers_reads(read.volume, read.range.layer) {
                self.refuse_read(client, read.request, IoStatus::Stale);
            } else {
                self.start_read(client, read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{BlockIndex, BlockRange, ChunkIndex, Generation, LayerId, VolumeId};

    fn read(request: u64, count: u16) -> ReadRequest {
        ReadRequest {
            request: RequestId(request),
            pg: PgId(1),
            volume: VolumeId(1),
            attachment: Generation(1),
            range: BlockRange { layer: LayerId(1), chunk: ChunkIndex(0), first: BlockIndex(0), count },
        }
    }

    #[test]
    fn those_of_some_groups_are_taken_out_while_they_wait() {
        let mut reads = Reads::new(ReadLimits { reads_max: 0, ..ReadLimits::default() });
        for request in 0..6 {
            let pg = PgId(request as u32 % 2);
            assert_eq!(reads.arrived(Client::Conn(1), ReadRequest { pg, ..read(request, 1) }), Entry::Waits);
        }
        let odd: Vec<RequestId> = reads.take_waiting(|pg| pg == PgId(1)).into_iter().map(|(_, id)| id).collect();
        assert_eq!(odd, [1, 3, 5].map(RequestId));
        let left: Vec<RequestId> = reads.into_waiting().map(|(_, id)| id).collect();
        assert_eq!(left, [0, 2, 4].map(RequestId));
    }

    #[test]
    fn so_many_are_started_and_the_others_wait_their_turn() {
        let mut reads = Reads::default();
        let (first, total) = (DEVICE_READS_MAX as u64, DEVICE_READS_WAITING_MAX as u64 + DEVICE_READS_MAX as u64);
        for request in 0..total {
            match reads.arrived(Client::Conn(request % 3), read(request, 1)) {
                Entry::In(_) => assert!(request < first),
                Entry::Waits => assert!(request >= first),
                Entry::TooMany => panic!("read {request} was refused"),
            }
        }
        assert_eq!(reads.arrived(Client::Conn(7), read(total, 1)), Entry::TooMany);
        (0..first).for_each(|_| reads.started(1));
        reads.settled();
        for request in first..total {
            assert!(reads.next().is_none(), "there is no room");
            reads.ended(1);
            let (conn, next) = reads.next().expect("there is room for one");
            assert_eq!((conn, next.request), (Client::Conn(request % 3), RequestId(request)));
            reads.started(1);
            reads.settled();
        }
    }

    #[test]
    fn a_read_that_is_asked_for_again_waits_once() {
        let mut reads = Reads::default();
        reads.started(DEVICE_READ_BLOCKS_MAX as u16);
        for layer in 1..=5 {
            let mut asked = read(9, 1);
            asked.range.layer = LayerId(layer);
            assert_eq!(reads.arrived(Client::Conn(1), asked), Entry::Waits);
        }
        reads.ended(DEVICE_READ_BLOCKS_MAX as u16);
        let (_, next) = reads.next().expect("it waits");
        assert_eq!(next.range.layer, LayerId(5), "what was asked for last counts");
        reads.settled();
        assert!(reads.next().is_none());
    }
}
