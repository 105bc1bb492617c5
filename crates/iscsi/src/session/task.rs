//! A command under way.

use super::copies::Copying;
use super::rights::Asks;
use crate::pdu::initiator::ScsiCommand;
use crate::scsi::{Plan, Use};
use azekura_base::{LogicalBlock, PageBuf};
use azekura_frontend::{OR_BYTES, Request};
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that a request takes besides its data.
pub(crate) const REQUEST_BYTES: usize = 1024;
/// Bytes that are read at a time of what nobody wants to have.
pub(crate) const SCAN_BYTES: u64 = 1 << 20;

/// Data on its way from the initiator.
#[derive(Debug, Default)]
pub(crate) struct DataOut {
    /// Bytes that are wanted, which may be fewer than the initiator has.
    pub wanted: usize,
    /// Bytes that have come, in their order (DataPDUInOrder and DataSequenceInOrder are always Yes).
    pub have: usize,
    /// Where an R2T's sequence ends; absent while none is asked for.
    pub asked_until: Option<usize>,
    /// The number of the next Data-Out PDU of its sequence, and of the next R2T.
    pub data_sn: u32,
    pub r2t_sn: u32,
    /// Unsolicited Data-Out PDUs follow (F of the command was 0).
    pub unsolicited: bool,
    /// Some of it did not come where it was to.
    pub is_torn: bool,
    whole: Option<Bytes>,
    buf: Option<PageBuf>,
}

impl DataOut {
    pub fn is_complete(&self) -> bool {
        self.have >= self.wanted && !self.unsolicited
    }

    /// More data has come, which is not copied when all came at once. What nobody wants is dropped.
    fn take(&mut self, data: Bytes) {
        let at = self.have;
        self.have += data.len();
        if at >= self.wanted {
            return;
        }
        let count = data.len().min(self.wanted - at);
        if at == 0 && count == self.wanted {
            self.whole = Some(data.slice(..count));
            return;
        }
        let wanted = self.wanted;
        let buf = self.buf.get_or_insert_with(|| PageBuf::new(wanted));
        buf[at..at + count].copy_from_slice(&data[..count]);
    }

    /// So many bytes have come, of which either all were kept, or none.
    pub fn come(&mut self, data: Bytes, len: usize) {
        if data.len() == len {
            self.take(data);
        } else {
            self.have += len;
        }
    }

    /// All data.
    pub fn finish(&mut self) -> Bytes {
        self.whole.take().or_else(|| self.buf.take().map(PageBuf::freeze)).unwrap_or_default()
    }
}

/// What is done with what was read.
#[derive(Debug)]
pub(crate) enum After {
    /// Nothing was, or is to be.
    Nothing,
    /// It is sent.
    Send,
    /// It is compared with this, block by block where `every` says so.
    Compare { with: Bytes, every: bool },
    /// The state of blocks is sent, with room for so many bytes.
    Status { block: LogicalBlock, offset: u64, room: u32 },
    /// It could be read: that was all.
    Drop,
}

/// A command that has not been answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub command: ScsiCommand,
    /// The logical unit; `None`: the address is one that none has.
    pub unit: Option<u16>,
    pub plan: Plan,
    pub data: DataOut,
    /// Bytes that the command itself says it transfers, in the initiator's eyes.
    pub length: u64,
    pub after: After,
    /// Memory that it has for its data, or for its next request.
    pub room: Option<usize>,
    /// Requests that have not been given out.
    pub requests: VecDeque<Request>,
    /// What it asks of reservations, while that has not been given out.
    pub asks: Option<Asks>,
    /// What it copies: its requests are given out one after the other.
    pub copying: Option<Copying>,
    pub is_started: bool,
    /// Requests that are with the front end.
    pub outstanding: usize,
    /// It has been ended by somebody: what it comes to is not told.
    pub is_aborted: bool,
    /// That was another initiator, and its own one is told once nothing of it is under way.
    pub tells_end: bool,
    pub failure: Option<crate::scsi::sense::Failure>,
}

impl Task {
    pub fn new(command: ScsiCommand, plan: Plan) -> Task {
        let mut data = DataOut { unsolicited: !command.is_final && command.write_bytes > 0, ..DataOut::default() };
        let length = match &plan {
            Plan::Take(len, _) => {
                data.wanted = (*len).min(command.write_bytes) as usize;
                u64::from(*len)
            }
            Plan::Read(range) => range.len,
            Plan::Data(bytes) => bytes.len() as u64,
            _ => 0,
        };
        Task {
            command,
            unit: command.unit(),
            plan,
            data,
            length,
            after: After::Nothing,
            room: None,
            requests: VecDeque::new(),
            asks: None,
            copying: None,
            is_started: false,
            outstanding: 0,
            is_aborted: false,
            tells_end: false,
            failure: None,
        }
    }

    /// Bytes that its next request takes, and its answer.
    pub fn memory_bytes(&self) -> usize {
        let bytes = match (&self.plan, self.requests.front()) {
            (_, Some(Request::Read { len, .. })) => *len as usize,
            // What was read, and that as it is written.
            (_, Some(Request::Copy { len, .. } | Request::CopyFrom { len, .. })) => 2 * *len as usize,
            _ if self.is_started => 0,
            (Plan::Read(range), _) => range.len.min(u64::from(self.command.read_bytes)) as usize,
            (Plan::Reservations(_, room), _) => *room as usize,
            (Plan::Scan(range), _) => range.len.min(SCAN_BYTES) as usize,
            (Plan::Take(_, Use::Same(range) | Use::VerifySame(range)), _) => range.len as usize,
            // Both are held: what was sent, and what is read.
            (Plan::Take(_, Use::Verify(_)), _) => 2 * self.data.wanted,
            (Plan::Take(_, Use::Or(_)), _) => self.data.wanted + OR_BYTES,
            (Plan::Take(..), _) => self.data.wanted,
            _ => 0,
        };
        bytes + REQUEST_BYTES
    }

    /// It is a command of reservations.
    pub fn is_of_reservations(&self) -> bool {
        matches!(self.plan, Plan::Reservations(..) | Plan::Take(_, Use::Reservations(_)))
    }

    /// The unit that is asked for what it has under way.
    pub fn asks_unit(&self) -> Option<u16> {
        self.copying.as_ref().and_then(Copying::writes_to).or(self.unit)
    }

    /// It is a unit's, or copies from it or to it.
    pub fn concerns(&self, unit: Option<u16>) -> bool {
        self.unit == unit || unit.is_some_and(|unit| self.copying.as_ref().is_some_and(|copying| copying.uses(unit)))
    }

    /// It needs nothing from its initiator any more.
    pub fn has_its_data(&self) -> bool {
        self.is_started || self.data.is_complete()
    }

    /// It has memory, and its data is on its way.
    pub fn is_receiving(&self) -> bool {
        self.room.is_some() && !self.is_aborted && !self.has_its_data()
    }
}
