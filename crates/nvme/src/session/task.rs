//! A command under way.

use super::plan::{Disk, Plan, Range, Use};
use crate::command::io;
use crate::completion::Status;
use azekura_base::{PageBuf, is_zero};
use azekura_frontend::Request;
use azekura_gateway::Piece;
use azekura_model::CommandKind;
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that a request takes besides its data.
const REQUEST_BYTES: usize = 1024;
/// Bytes that are read at a time of what nobody wants to have.
const SCAN_BYTES: u64 = 1 << 20;
/// Bytes that are made zeros at a time (512 MiB).
const ZERO_BYTES: u64 = 512 << 20;

/// Data on its way from the host.
#[derive(Debug, Default)]
pub(super) struct DataIn {
    pub wanted: usize,
    pub have: usize,
    /// Some of it came with a wrong digest.
    pub is_torn: bool,
    whole: Option<Bytes>,
    buf: Option<PageBuf>,
}

impl DataIn {
    /// More has come, which is not copied when all came at once.
    pub fn take(&mut self, data: Bytes) {
        let at = self.have;
        self.have += data.len();
        if at == 0 && data.len() == self.wanted {
            self.whole = Some(data);
            return;
        }
        let wanted = self.wanted;
        let buf = self.buf.get_or_insert_with(|| PageBuf::new(wanted));
        buf[at..at + data.len()].copy_from_slice(&data);
    }

    pub fn is_complete(&self) -> bool {
        self.have >= self.wanted
    }

    pub fn finish(&mut self) -> Bytes {
        self.whole.take().or_else(|| self.buf.take().map(PageBuf::freeze)).unwrap_or_default()
    }
}

/// A command that has not been completed.
#[derive(Debug)]
pub(super) struct Task {
    pub plan: Plan,
    /// What it does, as far as reservations care.
    pub kind: CommandKind,
    pub data: DataIn,
    /// Its data came before there was memory for it.
    pub is_parked: bool,
    /// Memory that it has for its data, or for its next request.
    pub room: Option<usize>,
    is_started: bool,
    write: Option<Request>,
    /// What is to be made zeros, or to be read, piece by piece.
    ranges: VecDeque<Range>,
    /// It waits for memory or for its turn, and is not completed before that.
    pub is_queued: bool,
    /// Requests that are with the front end.
    pub outstanding: usize,
    pub failure: Option<Status>,
    /// Of two fused commands, the other one, once it is there.
    pub fused: Option<u16>,
    /// What a Compare expects, while that is read.
    expected: Bytes,
}

impl Task {
    pub fn new(plan: Plan, kind: CommandKind) -> Task {
        let wanted = if let Plan::Take(len, _) = plan { len } else { 0 };
        Task {
            plan,
            kind,
            data: DataIn { wanted, ..DataIn::default() },
            is_parked: false,
            room: None,
            is_started: false,
            write: None,
            ranges: VecDeque::new(),
            is_queued: true,
            outstanding: 0,
            failure: None,
            fused: None,
            expected: Bytes::new(),
        }
    }

    /// Bytes that its next request takes, and its answer.
    pub fn memory_bytes(&self) -> usize {
        let data = match self.plan {
            Plan::Read(range) => range.len as usize,
            Plan::Scan(_) => SCAN_BYTES as usize,
            Plan::Report(len) => len as usize,
            // Both are held: what was sent, and what is read or written.
            Plan::Take(len, Use::Compare(_) | Use::Expect(_)) if !self.is_started => 2 * len,
            Plan::Take(len, _) if !self.is_started => len,
            _ => 0,
        };
        data + REQUEST_BYTES
    }

    /// It fails: what has not begun does not.
    pub fn fail(&mut self, status: Status) {
        self.failure.get_or_insert(status);
        self.ranges.clear();
    }

    /// Whether what was read is what a Compare expects.
    pub fn is_as_expected(&self, pieces: &[Piece]) -> bool {
        let mut expected = &self.expected[..];
        pieces.iter().all(|piece| {
            let len = match piece {
                Piece::Data(bytes) => bytes.len(),
                Piece::Zero(len) => *len,
            };
            let Some((head, rest)) = expected.split_at_checked(len) else { return false };
            expected = rest;
            match piece {
                Piece::Data(bytes) => head == bytes,
                Piece::Zero(_) => is_zero(head),
            }
        }) && expected.is_empty()
    }

    /// There is more for the front end to do.
    pub fn has_more(&self) -> bool {
        self.failure.is_none() && !self.ranges.is_empty()
    }

    fn start(&mut self, disk: &Disk) -> Result<(), Status> {
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(());
        }
        match self.plan {
            // What is asked of reservations is no request.
            Plan::Done | Plan::Report(_) | Plan::Take(_, Use::Reserve(_)) => {}
            Plan::Read(range) => self.write = Some(Request::Read { offset: range.offset, len: range.len }),
            Plan::Scan(range) | Plan::Zero(range) => self.ranges.push_back(range),
            Plan::Take(_, Use::Write(offset)) => {
                self.write = Some(Request::Write { offset, bytes: self.data.finish() });
            }
            Plan::Take(len, Use::Compare(offset)) => {
                self.expected = self.data.finish();
                self.write = Some(Request::Read { offset, len: len as u64 });
            }
            // Two are one request, which is made of both.
            Plan::Take(_, Use::Expect(_) | Use::Replace(_)) => {}
            Plan::Take(_, Use::Deallocate(count)) => {
                let data = self.data.finish();
                for range in io::Range::list(&data, count)?.iter().filter(|range| range.count > 0) {
                    self.ranges.push_back(disk.bytes(range.first, u64::from(range.count))?);
                }
            }
        }
        Ok(())
    }

    /// What the front end is to do next; `None` when there is nothing more.
    pub fn next_request(&mut self, disk: &Disk) -> Option<Request> {
        if let Err(status) = self.start(disk) {
            self.fail(status);
        }
        if self.failure.is_some() {
            return None;
        }
        if let Some(request) = self.write.take() {
            return Some(request);
        }
        let most = if matches!(self.plan, Plan::Scan(_)) { SCAN_BYTES } else { ZERO_BYTES };
        let range = self.ranges.front_mut()?;
        let (offset, len) = (range.offset, range.len.min(most));
        (range.offset, range.len) = (offset + len, range.len - len);
        if range.len == 0 {
            self.ranges.pop_front();
        }
        let is_scan = matches!(self.plan, Plan::Scan(_));
        Some(if is_scan { Request::Read { offset, len } } else { Request::Zero { offset, len } })
    }
}
