//! EXTENDED COPY under way, and what RECEIVE COPY RESULTS tells of it (SPC-4 section 5.17). A copy is a task like any
//! other: it is read and written piece by piece, each with memory of its own, and ends between two pieces when it is
//! aborted or when somebody else has reserved the volume.

use crate::scsi::copy::{List, Progress, Segment, State};
use crate::scsi::sense::{Failure, Sense};
use azekura_base::IoStatus;
use azekura_frontend::Request;
use std::collections::VecDeque;

/// Bytes that are copied at a time (512 KiB).
pub(crate) const PIECE_BYTES: u64 = 512 << 10;
/// Copies of a session that have ended and can be asked for.
const KEPT_MAX: usize = 16;

/// What a task copies.
#[derive(Debug)]
pub(crate) struct Copying {
    /// By which it is asked for.
    pub id: Option<u8>,
    /// Bytes after which each segment is done.
    ends: Vec<u64>,
    bytes: u64,
    /// Bytes of the piece that is under way.
    piece: u64,
    /// From which unit to which each of the pieces goes that have not been given out.
    ways: VecDeque<Way>,
    /// The same of the piece that is under way.
    way: Option<Way>,
}

/// From which logical unit something is copied, and to which.
pub(crate) type Way = (u16, u16);

impl Copying {
    /// The copy of a list, and its requests.
    pub fn of(list: &List) -> (Copying, VecDeque<Request>) {
        let ends = list.segments.iter().scan(0, |sum, segment| {
            *sum += segment.from.len;
            Some(*sum)
        });
        let ends = ends.collect();
        let pieces = list.segments.iter().flat_map(|segment| segment.pieces(PIECE_BYTES));
        let (ways, requests) = pieces.map(|piece| ((piece.from_unit, piece.to_unit), request(&piece))).unzip();
        (Copying { id: list.id, ends, bytes: 0, piece: 0, ways, way: None }, requests)
    }

    /// From which unit to which the pieces go that have not been given out.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        self.ways.iter().copied()
    }

    /// The unit that the piece under way is written to.
    pub fn writes_to(&self) -> Option<u16> {
        self.way.map(|(_, to)| to)
    }

    /// It reads this unit, or writes to it, or is to.
    pub fn uses(&self, unit: u16) -> bool {
        self.ways.iter().chain(&self.way).any(|(from, to)| [*from, *to].contains(&unit))
    }

    /// Something is copied already.
    pub fn has_begun(&self) -> bool {
        self.bytes > 0
    }

    /// A piece is given out.
    pub fn begins(&mut self, request: &Request) {
        if let Request::Copy { len, .. } | Request::CopyFrom { len, .. } = request {
            (self.piece, self.way) = (*len, self.ways.pop_front());
        }
    }

    /// The piece under way has ended: it is copied, or is not.
    pub fn ended(&mut self, is_copied: bool) {
        self.way = None;
        let piece = std::mem::take(&mut self.piece);
        self.bytes += if is_copied { piece } else { 0 };
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let segments = self.ends.iter().filter(|end| **end <= self.bytes).count();
        Progress { segments: segments as u16, bytes: self.bytes }
    }
}

/// What copies a piece: asked of the unit that is written.
fn request(piece: &Segment) -> Request {
    let (from, to, len) = (piece.from.offset, piece.to, piece.from.len);
    if piece.from_unit == piece.to_unit {
        Request::Copy { from, to, len }
    } else {
        Request::CopyFrom { branch: u32::from(piece.from_unit), from, to, len }
    }
}

/// What an initiator is told when a piece could not be copied. It goes on by reading and writing itself, and learns
/// then what is wrong.
pub(crate) fn failure(status: IoStatus) -> Failure {
    match status {
        IoStatus::Io | IoStatus::NoSpace | IoStatus::Invalid => Failure::Check(Sense::THIRD_PARTY_FAILURE),
        // One of the units is lost.
        IoStatus::Gone => Failure::Check(Sense::TARGET_NOT_REACHABLE),
        other => Failure::of(other, false),
    }
}

/// Copies of a session that have ended, by their list identifiers, the latest last.
#[derive(Debug, Default)]
pub(super) struct Copies(VecDeque<(u8, State, Progress)>);

impl Copies {
    /// Another copy of this name has begun.
    pub fn forget(&mut self, id: u8) {
        self.0.retain(|(other, ..)| *other != id);
    }

    /// A copy has ended.
    pub fn ended(&mut self, copying: &Copying, has_failed: bool) {
        let Some(id) = copying.id else { return };
        self.forget(id);
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, if has_failed { State::Failed } else { State::Done }, copying.progress()));
    }

    /// How a copy has ended.
    pub fn of(&self, id: u8) -> Option<(State, Progress)> {
        self.0.iter().find(|(other, ..)| *other == id).map(|(_, state, progress)| (*state, *progress))
    }
}
