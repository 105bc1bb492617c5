//! The connections between copies: who is connected, and what is on its way.

use super::{Cluster, device};
use azekura_base::DeviceId;
use azekura_replica::Client;
use azekura_wire::Message;
use std::collections::VecDeque;

impl Cluster {
    /// Every node dials every other.
    pub fn connect_all(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for from in &all {
            all.iter().filter(|to| *to != from).for_each(|to| self.connect(*from, *to));
        }
    }

    /// `from` dials `to`; what was on its way on an older connection is lost.
    pub fn connect(&mut self, from: DeviceId, to: DeviceId) {
        self.disconnect(from, to);
        self.conns_made += 1;
        self.conns.insert((from, to), self.conns_made);
        self.copies.get_mut(&from).unwrap().group.peer_up(to);
        self.run(from);
    }

    pub fn disconnect(&mut self, from: DeviceId, to: DeviceId) {
        if let Some(conn) = self.conns.remove(&(from, to)) {
            self.requests.remove(&conn);
            self.answers.remove(&conn);
            self.copies.get_mut(&from).unwrap().group.peer_down(to);
            self.run(from);
        }
    }

    /// Delivers the oldest request from one copy to another. False when there is none.
    pub fn deliver(&mut self, from: DeviceId, to: DeviceId) -> bool {
        let Some(conn) = self.conns.get(&(from, to)).copied() else { return false };
        let Some(message) = self.requests.get_mut(&conn).and_then(VecDeque::pop_front) else { return false };
        let group = &mut self.copies.get_mut(&to).unwrap().group;
        match message {
            Message::Prepare(prepare) => {
                group.prepare(Client::Conn(conn), prepare, false).expect("the primary keeps the order")
            }
            Message::NewEpoch(news) => group.new_epoch(Client::Conn(conn), news),
            Message::Learn(learn) => group.learn(Client::Conn(conn), learn).expect("the note is whole"),
            Message::Fetch(fetch) => group.fetch(Client::Conn(conn), fetch),
            Message::Compare(_) if self.deaf_to_scrubs => {}
            Message::Compare(compare) => group.compare(Client::Conn(conn), compare),
            Message::HandOver(hand_over) => group.inherit(Client::Conn(conn), hand_over),
            Message::Repair(_) if self.gone_repairs > 0 => self.gone_repairs -= 1,
            Message::Repair(repair) => group.repair(Client::Conn(conn), repair).expect("the primary keeps the order"),
            other => panic!("{other:?}"),
        }
        group.flush_acks();
        self.run(to);
        true
    }

    /// Delivers the oldest answer to what `from` asked `to`. False when there is none.
    pub fn deliver_answer(&mut self, from: DeviceId, to: DeviceId) -> bool {
        let Some(conn) = self.conns.get(&(from, to)).copied() else { return false };
        let Some(message) = self.answers.get_mut(&conn).and_then(VecDeque::pop_front) else { return false };
        let group = &mut self.copies.get_mut(&from).unwrap().group;
        match message {
            Message::PrepareOk(ok) => group.prepare_ok(to, ok),
            Message::NewEpochOk(ok) => group.new_epoch_ok(to, ok),
            Message::LearnOk(ok) => group.learn_ok(to, ok),
            Message::Leaving(leaving) => group.peer_leaving(to, leaving),
            Message::Damaged(damaged) => group.damaged(to, damaged),
            Message::Fetched(fetched) => group.fetched(to, fetched),
            Message::CompareOk(ok) => group.compare_ok(to, ok),
            Message::RepairOk(ok) => group.repair_ok(to, ok),
            other => panic!("{other:?}"),
        }
        self.run(from);
        true
    }

    /// Cuts a copy's connections, both ways.
    pub fn isolate(&mut self, n: u32) {
        for other in self.others(device(n)) {
            self.disconnect(device(n), other);
            self.disconnect(other, device(n));
        }
    }

    /// Connects whatever is not connected.
    pub fn heal(&mut self) {
        let all: Vec<DeviceId> = self.copies.keys().copied().collect();
        for from in &all {
            for to in all.iter().filter(|to| *to != from) {
                if !self.conns.contains_key(&(*from, *to)) {
                    self.connect(*from, *to);
                }
            }
        }
    }

    pub fn reconnect(&mut self, n: u32) {
        for other in self.others(device(n)) {
            self.connect(device(n), other);
            self.connect(other, device(n));
        }
    }
}
