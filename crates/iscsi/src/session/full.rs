//! The full feature phase (RFC 7143 section 4.2): commands in their order, their data, and their ends.

use super::answers::Answers;
use super::functions::Functions;
use super::listing::Text;
use super::room::Room;
use super::target::Target;
use super::task::Task;
use super::unit::{Unit, Units, Way};
use crate::login::LoggedIn;
use crate::names::target_name;
use crate::pdu::initiator::{DATA_OUT, LOGIN, LOGOUT, NOP_OUT, SCSI_COMMAND, SNACK, TASK_MANAGEMENT, TEXT};
use crate::pdu::reader::Pdu;
use crate::pdu::target::{LOGOUT_RESPONSE, NOP_IN, RejectReason};
use crate::pdu::{Bhs, NO_TAG};
use crate::scsi::Disk;
use crate::{TASKS_MAX, UNMETERED_MAX};
use azekura_base::{Outbox, Slab};
use azekura_frontend::Exports;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What a client can do that ends its session.
pub(crate) type Violation = &'static str;

/// A session whose login is over.
#[derive(Debug)]
pub(crate) struct Full {
    pub(super) answers: Answers,
    /// It is there to be told of targets, and has no logical units.
    pub(super) is_discovery: bool,
    pub(super) units: Units,
    /// The target, where it has several.
    pub(super) target: Option<Target>,
    /// Requests that came before others that are numbered lower; nothing stands for one that has been aborted.
    pub(super) parked: BTreeMap<u32, Option<Pdu>>,
    pub(super) tasks: Slab<Task>,
    pub(super) by_itt: BTreeMap<u32, u64>,
    pub(super) room: Room,
    pub(super) functions: Functions,
    pub(super) text: Text,
    portal: Option<SocketAddr>,
    /// The initiator has said goodbye, or is sent away: it is not listened to any more.
    pub(super) is_leaving: bool,
    /// And has been told so.
    pub(super) has_left: bool,
}

impl Full {
    pub fn new(login: LoggedIn, portal: Option<SocketAddr>) -> Full {
        let of = |export| Disk::of(export, &target_name(&export.name).unwrap_or_default(), login.portal_group);
        let disk = login.export.as_ref().map(of);
        let registrant = login.registrant.clone();
        let one = |disk| Units::one(Unit::new(disk, Way::Own, registrant));
        let mut full = Full {
            answers: Answers {
                parameters: login.parameters,
                stat_sn: login.stat_sn,
                exp_cmd_sn: login.exp_cmd_sn,
                max_cmd_sn: login.exp_cmd_sn,
                unmetered: 0,
            },
            is_discovery: disk.is_none() && login.units.is_none(),
            units: disk.map(one).unwrap_or_default(),
            target: login.units.map(|of| Target::new(of, login.registrant, login.portal_group)),
            parked: BTreeMap::new(),
            tasks: Slab::default(),
            by_itt: BTreeMap::new(),
            room: Room::default(),
            functions: Functions::default(),
            text: Text::default(),
            portal,
            is_leaving: false,
            has_left: false,
        };
        full.open_window();
        full
    }

    /// Lets as many commands come as there is room for (section 4.2.2.1). The window never closes behind its end.
    pub(super) fn open_window(&mut self) {
        let free = TASKS_MAX.saturating_sub(self.tasks.len() as u32);
        let max = self.answers.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if max.wrapping_sub(self.answers.max_cmd_sn) as i32 > 0 {
            self.answers.max_cmd_sn = max;
        }
    }

    /// Whether a command of this number may come.
    pub(super) fn is_in_window(&self, cmd_sn: u32) -> bool {
        let size = self.answers.max_cmd_sn.wrapping_sub(self.answers.exp_cmd_sn).wrapping_add(1);
        cmd_sn.wrapping_sub(self.answers.exp_cmd_sn) < size
    }

    /// The session is over, and its initiator knows.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Nothing is taken from an initiator that does not take its answers. Memory bounds those for
    /// which it was asked.
    pub fn is_stalled(&mut self, outbox: &Outbox) -> bool {
        if outbox.len() <= UNMETERED_MAX / 4 {
            self.answers.unmetered = 0;
        }
        self.answers.unmetered > UNMETERED_MAX
    }

    /// Deals with a PDU.
    pub fn pdu(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), Violation> {
        if self.is_leaving {
            return Ok(());
        }
        let reason = match pdu.bhs.opcode() {
            DATA_OUT => return self.data_out(&pdu, outbox),
            NOP_OUT | SCSI_COMMAND | TASK_MANAGEMENT | TEXT | LOGOUT => return self.numbered(pdu, outbox, exports),
            SNACK => RejectReason::Snack,
            LOGIN => RejectReason::Protocol,
            _ => RejectReason::NotSupported,
        };
        self.answers.reject(outbox, reason, &pdu.bhs);
        Ok(())
    }

    /// A PDU that has a command number, if it is not immediate.
    fn numbered(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), Violation> {
        if pdu.bhs.is_immediate() {
            return self.execute(pdu, outbox, exports);
        }
        let cmd_sn = pdu.bhs.cmd_sn();
        // Section 4.2.2.1: what is outside of the window, or comes twice, is silently ignored.
        if !self.is_in_window(cmd_sn) || self.parked.contains_key(&cmd_sn) {
            return Ok(());
        }
        self.parked.insert(cmd_sn, Some(pdu));
        while !self.is_leaving
            && let Some(next) = self.parked.remove(&self.answers.exp_cmd_sn)
        {
            self.answers.exp_cmd_sn = self.answers.exp_cmd_sn.wrapping_add(1);
            next.map_or(Ok(()), |pdu| self.execute(pdu, outbox, exports))?;
            self.open_window();
        }
        Ok(())
    }

    fn execute(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), Violation> {
        match pdu.bhs.opcode() {
            SCSI_COMMAND => self.command(pdu, outbox, exports)?,
            NOP_OUT => self.nop(&pdu, outbox),
            TEXT => self.text(&pdu, outbox, exports),
            TASK_MANAGEMENT => self.function(&pdu.bhs, outbox),
            _ => self.logout(&pdu.bhs, outbox),
        }
        Ok(())
    }

    /// NOP-Out (section 11.18) is answered with its own data; one without a tag answers a ping by having come.
    fn nop(&mut self, pdu: &Pdu, outbox: &mut Outbox) {
        if pdu.bhs.itt() == NO_TAG {
            return;
        }
        let most = self.answers.parameters.send_segment_max as usize;
        let data = pdu.data.slice(..pdu.data.len().min(most));
        let fill = |bhs: &mut Bhs| {
            bhs.put(8, &pdu.bhs.lun());
            bhs.put_u32(20, NO_TAG);
        };
        self.answers.respond(outbox, NOP_IN, pdu.bhs.itt(), fill, data);
    }

    /// A ping (section 11.19), which the initiator answers with this tag.
    pub(super) fn ping(&mut self, tag: u32, outbox: &mut Outbox) {
        self.answers.ping(outbox, tag);
    }

    /// Logout (section 11.14): of the session, or of its only connection. It is answered when nothing of the session
    /// can change the volume any more.
    fn logout(&mut self, bhs: &Bhs, outbox: &mut Outbox) {
        const RECOVERY: u8 = 2;
        const RECOVERY_NOT_SUPPORTED: u8 = 2;
        if bhs.0[1] & 0x7f >= RECOVERY {
            let fill = |answer: &mut Bhs| answer.0[2] = RECOVERY_NOT_SUPPORTED;
            return self.answers.respond(outbox, LOGOUT_RESPONSE, bhs.itt(), fill, Bytes::new());
        }
        self.end_all(LOGOUT_RESPONSE, bhs.itt(), outbox);
    }

    fn text(&mut self, pdu: &Pdu, outbox: &mut Outbox, exports: &dyn Exports) {
        let own = || self.units.get(Some(0)).map(|unit| unit.disk.target.as_str());
        let target = self.target.as_ref().map(Target::iscsi_name).or_else(own);
        self.text.request(pdu, &mut self.answers, outbox, exports, (target, self.portal));
    }
}
