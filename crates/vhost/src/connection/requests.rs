//! From rings to the front end, and back.

use super::{Connection, LOG_BELL};
use crate::block::{self, Data, HEADER_BYTES, Plan, RANGE_BYTES, Status};
use crate::chain::{self, Chain, Filler, Segment};
use crate::fault::Fault;
use crate::message::Violation;
use crate::{EMPTY_REQUESTS_MAX, block::IDENTITY_BYTES};
use azekura_base::PageBuf;
use azekura_frontend::{Event, Request, Tag, Wish};
use azekura_gateway::{Outcome, Piece};

/// Zeros, to be copied.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where a request came from, and where its status goes.
#[derive(Clone, Copy, Debug)]
struct Origin {
    queue: usize,
    head: u16,
    /// The guest's address of the status.
    status: u64,
}

/// A request that has been taken from its ring.
#[derive(Debug)]
pub(super) struct Pending {
    origin: Origin,
    chain: Chain,
    plan: Plan,
}

impl Pending {
    /// The memory that it takes: that of its data.
    fn memory_bytes(&self) -> usize {
        match self.plan {
            Plan::Read { len, .. } | Plan::Write { len, .. } => len,
            _ => 0,
        }
    }
}

/// A request that the front end has.
#[derive(Debug)]
pub(super) struct Task {
    origin: Origin,
    /// Where a read goes.
    reads_into: Option<Vec<Segment>>,
}

impl Connection {
    /// The next request for the front end. Those that ask nothing of the volume are answered on the way, and only so
    /// many in a row: a guest that goes on making them does not keep others waiting.
    pub(super) fn next_request(&mut self) -> Result<Option<Event>, Violation> {
        loop {
            if let Some(pending) = self.pending.take() {
                let bytes = pending.memory_bytes();
                if bytes > 0 && !self.has_room {
                    (self.wants_room, self.pending) = (Some(bytes), Some(pending));
                    return Ok(None);
                }
                if let Some(event) = self.hand_out(pending)? {
                    return Ok(Some(event));
                }
            }
            if self.empty_requests >= EMPTY_REQUESTS_MAX {
                if !std::mem::replace(&mut self.rests, true) {
                    self.want_poll();
                }
                return Ok(None);
            }
            let Some((queue, head)) = self.queues.next()? else { return Ok(None) };
            self.look_at(queue, head)?;
        }
    }

    /// Looks at a chain that was taken: it waits, or is answered.
    fn look_at(&mut self, queue: usize, head: u16) -> Result<(), Violation> {
        let mut chain = self.queues.chain(queue, head)?;
        let broken = |fault| Violation::Ring { queue, fault };
        let status = chain.take_status().ok_or(broken(Fault::NoStatus))?;
        let regions = self.queues.regions();
        if !regions.has(status, 1) {
            return Err(broken(Fault::NotInMemory));
        }
        let origin = Origin { queue, head, status };
        let Some(export) = &self.export else { return Ok(()) };
        let mut header = [0; HEADER_BYTES];
        if !chain.is_ordered || chain.copy_from(regions, 0, &mut header).is_none() {
            return self.answer_at_once(origin, Status::Error, 0);
        }
        let readable = chain.readable_bytes() - HEADER_BYTES as u64;
        let data = Data { readable, writable: chain::bytes(&chain.writable) };
        let range = || {
            let mut range = [0; RANGE_BYTES];
            chain.copy_from(regions, HEADER_BYTES as u64, &mut range).map(|()| range)
        };
        let plan = block::plan(export, header, data, range);
        // What can't be put down is not asked for.
        let there = |segment: &Segment| regions.has(segment.address, segment.bytes as usize);
        let plan = match plan {
            Plan::Read { .. } if !chain.writable.iter().all(there) => Plan::Answer(Status::Error),
            plan => plan,
        };
        match plan {
            Plan::Answer(status) => self.answer_at_once(origin, status, 0),
            Plan::Identity => {
                let mut identity = [0; IDENTITY_BYTES];
                let number = (self.cluster ^ u128::from(export.id.0)) as u64;
                let text = format!("{number:016x}");
                identity[..text.len()].copy_from_slice(text.as_bytes());
                match Filler::new(regions, &chain.writable).put(&identity) {
                    Some(()) => self.answer_at_once(origin, Status::Ok, IDENTITY_BYTES as u32),
                    None => self.answer_at_once(origin, Status::Error, 0),
                }
            }
            plan => {
                self.pending = Some(Pending { origin, chain, plan });
                Ok(())
            }
        }
    }

    fn answer_at_once(&mut self, origin: Origin, status: Status, written: u32) -> Result<(), Violation> {
        self.empty_requests += 1;
        self.give_back(origin, status, written)
    }

    /// Hands a request out for which there is memory. `None`: it is answered.
    fn hand_out(&mut self, pending: Pending) -> Result<Option<Event>, Violation> {
        let memory_bytes = pending.memory_bytes();
        let Pending { origin, chain, plan } = pending;
        let mut reads_into = None;
        let request = match plan {
            Plan::Read { offset, len } => {
                reads_into = Some(chain.writable);
                Request::Read { offset, len: len as u64 }
            }
            Plan::Write { offset, len } => {
                let mut pages = PageBuf::new(len);
                if chain.copy_from(self.queues.regions(), HEADER_BYTES as u64, &mut pages).is_none() {
                    self.answer_at_once(origin, Status::Error, 0)?;
                    return Ok(None);
                }
                Request::Write { offset, bytes: pages.freeze() }
            }
            Plan::Flush => Request::Flush,
            Plan::Trim { offset, len } => Request::Trim { offset, len },
            Plan::Zero { offset, len } => Request::Zero { offset, len },
            Plan::Identity | Plan::Answer(_) => unreachable!("answered when they were looked at"),
        };
        if memory_bytes > 0 {
            self.has_room = false;
        }
        let tag = self.tasks.insert(Task { origin, reads_into });
        self.handed_out = Some(tag);
        Ok(Some(Event::Request { tag: Tag(tag), memory_bytes, request }))
    }

    /// The front end has answered.
    pub(super) fn end_request(&mut self, tag: u64, outcome: Outcome) -> Result<(), Violation> {
        let Task { origin, reads_into } = self.tasks.remove(tag).expect("a request is answered once");
        if self.handed_out.take_if(|handed_out| *handed_out == tag).is_some() {
            self.empty_requests += 1;
        }
        for sweep in &mut self.sweeps {
            sweep.waits_for.remove(&tag);
        }
        let (status, written) = match (outcome, &reads_into) {
            (Outcome::Read(pieces), Some(segments)) => match self.put_down(&pieces, segments) {
                Some(written) => (Status::Ok, written),
                // The client has taken the memory away.
                None => (Status::Error, 0),
            },
            (Outcome::Done, None) => (Status::Ok, 0),
            (Outcome::Failed(_), _) => (Status::Error, 0),
            _ => panic!("an answer that does not fit its request"),
        };
        self.give_back(origin, status, written)
    }

    fn put_down(&self, pieces: &[Piece], segments: &[Segment]) -> Option<u32> {
        let mut filler = Filler::new(self.queues.regions(), segments);
        let mut written = 0;
        for piece in pieces {
            match piece {
                Piece::Data(bytes) => {
                    filler.put(bytes)?;
                    written += bytes.len();
                }
                Piece::Zero(len) => {
                    let mut left = *len;
                    while left > 0 {
                        let part = left.min(ZEROS.len());
                        filler.put(&ZEROS[..part])?;
                        left -= part;
                    }
                    written += len;
                }
            }
        }
        u32::try_from(written).ok()
    }

    /// The client is to be called, once for all that it has not been called for.
    pub(super) fn ring(&mut self, queue: u32) {
        if !self.wishes.iter().any(|wish| matches!(wish, Wish::Ring { queue: other } if *other == queue)) {
            self.wishes.push_back(Wish::Ring { queue });
        }
    }

    fn give_back(&mut self, origin: Origin, status: Status, written: u32) -> Result<(), Violation> {
        let Origin { queue, head, status: address } = origin;
        // Where the memory is gone, the ring is, too.
        let _ = self.queues.regions().write(address, &[status as u8]);
        if self.queues.put(queue, head, written + 1)? {
            self.ring(queue as u32);
        }
        if self.queues.log() {
            self.no_page_is_missed()?;
            if self.has_log_bell {
                self.ring(LOG_BELL);
            }
        }
        if self.queues.is_idle(origin.queue) {
            self.ring_stands(origin.queue);
        }
        Ok(())
    }
}
