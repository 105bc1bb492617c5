//! Writes that expect to find something (docs/decisions/0055-compare-and-write.md).

use super::{Kind, PendingOp};
use crate::checks::history::{Compared, NEVER, Seen};
use crate::kernel::time::Stamp;
use crate::workloads::contents::{BLOCK_SECTORS, SECTOR_SIZE, ZERO, encode};
use crate::world::World;
use bytes::Bytes;

/// How many of the writes that everybody fights for, in percent, expect something.
const COMPARES_PERCENT: u64 = 50;

impl World {
    /// The operation, or one that compares the beginning of what it would have written, up to a block's end.
    pub(super) fn perhaps_compared(&mut self, (kind, first, count): (Kind, u64, u64)) -> (Kind, u64, u64) {
        let clients = &mut self.scene.clients;
        // Zeros, which have many writers, are expected where nobody zeros.
        let is_hot = clients.layout.hot.iter().any(|region| region.contains(&first));
        if !self.plan.compares || kind != Kind::Write || !is_hot || !clients.compares_random.chance(COMPARES_PERCENT) {
            return (kind, first, count);
        }
        let most = (BLOCK_SECTORS - first % BLOCK_SECTORS).min(count);
        let count = if clients.compares_random.chance(50) { 1 } else { clients.compares_random.between(1, most) };
        (Kind::Compare, first, count)
    }

    /// What an operation expects: what anybody has seen, or written, last.
    pub(super) fn expected_by(&mut self, id: u64, first: u64, count: u64) -> Bytes {
        let clients = &mut self.scene.clients;
        let values = (first..first + count).map(|sector| clients.latest.get(&sector).copied().unwrap_or(ZERO));
        let values: Vec<_> = values.collect();
        let sector_of = |(sector, value): (u64, &u64)| match *value {
            ZERO => Bytes::from_static(&[0; SECTOR_SIZE]),
            value => encode(value, sector, 1),
        };
        let bytes: Vec<u8> = (first..).zip(&values).flat_map(|at| sector_of(at).to_vec()).collect();
        if let Some(op) = clients.running.get_mut(&id) {
            op.expected = values;
        }
        bytes.into()
    }

    /// It was carried out, or may be: what it has replaced, or will have.
    pub(super) fn record_compared(&mut self, id: u64, op: &PendingOp, end: Stamp) {
        let is_certain = end != NEVER;
        if is_certain && op.kind == Kind::Compare {
            self.count("compared and written");
        }
        for (sector, expected) in (op.first..).zip(op.expected.iter().copied()) {
            self.scene.history.compared(sector, Compared { value: id, expected, is_certain });
            if is_certain {
                self.scene.history.saw(sector, Seen { value: expected, start: op.start, end });
            }
        }
        if is_certain && matches!(op.kind, Kind::Compare | Kind::Write) {
            self.scene.clients.latest.extend((op.first..op.first + op.count).map(|sector| (sector, id)));
        }
    }

    /// Something else was there: in the sector of the first byte that differs, not before.
    pub(super) fn differed(&mut self, op: &PendingOp, at: u16, end: Stamp) {
        self.count("compared and found different");
        self.report.done += 1;
        let place = usize::from(at) / SECTOR_SIZE;
        for (index, (sector, value)) in (op.first..).zip(op.expected.iter().copied()).enumerate().take(place + 1) {
            let seen = Seen { value, start: op.start, end };
            if index < place {
                self.scene.history.saw(sector, seen);
            } else {
                self.scene.history.differed(sector, seen);
                self.scene.clients.latest.remove(&sector);
            }
        }
    }
}
