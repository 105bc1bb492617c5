//! Hosts of one volume, and the record of its reservations behind them.

use super::host::*;
use azekura_base::VolumeId;
use azekura_frontend::{Protocol, ReservationAnswer, ReservationRequest, Reservations};
use azekura_model::{ReservationKind, ReservationsRecord};
use azekura_nvme::command::io::Io;
use azekura_nvme::command::reservation::{Acquire, Register, Reservation, keys};
use azekura_nvme::pdu::Digests;
use azekura_nvme::{Command, Controllers, Status, log as page};
use std::sync::Arc;

pub const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrantsOnly;
pub const OK: Status = Status::SUCCESS;
pub const CONFLICT: Status = Status::RESERVATION_CONFLICT;

pub fn own(command: Reservation) -> Command {
    Command::Io(Io::Reservation { namespace: 1, command })
}

pub fn register(action: Register, ignores_key: bool) -> Command {
    own(Reservation::Register { action, ignores_key, persists: None })
}

pub fn acquire(action: Acquire, kind: ReservationKind) -> Command {
    own(Reservation::Acquire { action, kind })
}

pub fn report(len: u64) -> Command {
    own(Reservation::Report { len, is_extended: true })
}

/// The record of a volume, and hosts with a queue each.
pub struct Hosts {
    pub admins: Vec<Host>,
    pub queues: Vec<Host>,
    pub record: ReservationsRecord,
    pub commands: u64,
}

impl Hosts {
    /// Those with these identifiers, each at a node of its own.
    pub fn with(ids: &[[u8; 16]]) -> Hosts {
        let record = ReservationsRecord::none(VolumeId(7));
        let mut hosts = Hosts { admins: Vec::new(), queues: Vec::new(), record, commands: 0 };
        for id in ids {
            let controllers = Arc::new(Controllers::new(1));
            let begin = |queue: u16, controller: u16| {
                let mut host = Host::new(&controllers, Digests::default());
                host.host_id = *id;
                host.one.reservations.replace(Some(Arc::new(Reservations::of(hosts.record.clone()))));
                let done = host.connect(queue, 127, controller, 0, SUBSYSTEM).0;
                assert_eq!(done.status, OK);
                (host, done.result as u16)
            };
            let (mut admin, controller) = begin(0, 0xffff);
            admin.enable();
            let (queue, _) = begin(1, controller);
            hosts.admins.push(admin);
            hosts.queues.push(queue);
        }
        hosts
    }

    pub fn two() -> Hosts {
        Hosts::with(&[[1; 16], [2; 16]])
    }

    /// All are told of the record as it is now.
    pub fn tell(&mut self) {
        let now = Arc::new(Reservations::of(self.record.clone()));
        for host in self.admins.iter_mut().chain(&mut self.queues) {
            host.one.reservations.replace(Some(Arc::clone(&now)));
            host.run();
        }
    }

    /// Carries out what a host has asked, and answers when all know the record.
    pub fn carry_out(&mut self, who: usize) {
        while let Some((tag, request)) = self.queues[who].asked.pop_front() {
            let answer = match request {
                ReservationRequest::Read => ReservationAnswer::Record(Box::new(self.record.clone())),
                ReservationRequest::Change { from, command } => {
                    self.commands += 1;
                    let (outcome, next) = self.record.carry_out(&from, &command, self.commands);
                    self.record = next.unwrap_or_else(|| self.record.clone());
                    ReservationAnswer::Status(outcome.status)
                }
            };
            self.tell();
            self.queues[who].conn.reserved(tag, answer);
            self.queues[who].run();
        }
    }

    /// A command with its keys.
    pub fn send(&mut self, who: usize, command: &Command, first: u64, second: u64) -> Status {
        let id = self.queues[who].command(command, &keys(first, second), 0);
        self.carry_out(who);
        self.queues[who].completed(id).0.status
    }

    pub fn report(&mut self, who: usize, len: u64) -> (Status, Vec<u8>) {
        let id = self.queues[who].command(&report(len), &[], len as u32);
        self.carry_out(who);
        let (done, data) = self.queues[who].completed(id);
        (done.status, data)
    }

    pub fn write(&mut self, who: usize) -> Status {
        self.queues[who].ask(&write(0, 512), vec![1; 512], 0).0.status
    }

    pub fn read(&mut self, who: usize) -> Status {
        self.queues[who].ask(&read(0, 512), Vec::new(), 512).0.status
    }

    /// What the log says next: type, pages beside it, and count.
    pub fn notification(&mut self, who: usize) -> (u8, u8, u8) {
        let bytes = self.admins[who].ask(&log(page::RESERVATIONS, 64, 0), Vec::new(), 64).1;
        (bytes[8], bytes[9], bytes[0])
    }

    /// Both are registered, with 0xa and 0xb, and the first one holds it.
    pub fn reserved(kind: ReservationKind) -> Hosts {
        let mut hosts = Hosts::two();
        assert_eq!(hosts.send(0, &register(Register::Register, false), 0, 0xa), OK);
        assert_eq!(hosts.send(1, &register(Register::Register, false), 0, 0xb), OK);
        assert_eq!(hosts.send(0, &acquire(Acquire::Acquire, kind), 0xa, 0), OK);
        hosts
    }
}
