//! A copy's log, and what follows from it: what the store keeps, in a few lines.

use azekura_base::*;
use azekura_replica::Recovered;
use azekura_wire::Repair;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Something on its way to a log.
#[derive(Clone, Debug)]
pub enum Item {
    Write(Box<Write>),
    Epoch { epoch: Epoch, keep: Sequence },
    Repair(Box<Repair>),
    Complete,
}

/// A log and what follows from it, as the store keeps it.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub epoch: Epoch,
    pub committed: Sequence,
    pub writes: BTreeMap<Sequence, Write>,
    /// What is committed: contents by chunk and block.
    pub map: BTreeMap<(ChunkIndex, u16), Bytes>,
    /// The checksums of what blocks held that are lost.
    pub lost: BTreeMap<(ChunkIndex, u16), Checksum>,
    /// The last write to each chunk.
    pub changed: BTreeMap<ChunkIndex, Sequence>,
    pub applied: Sequence,
    /// Complete up to here only.
    pub incomplete: Option<Sequence>,
    /// What is here was made from the log of a device whose map is gone.
    pub unproven: bool,
}

impl Log {
    /// Appends to the log in memory: what is committed is said apart.
    pub fn append(&mut self, item: &Item) {
        if let Item::Write(write) = item {
            assert!(write.header.commit <= self.committed, "the log would know more than its owner");
            let header = WriteHeader { commit: Sequence::ZERO, ..write.header };
            let uncommitted = Write { header, body: write.body.clone() };
            self.put(&Item::Write(Box::new(uncommitted)));
        } else {
            self.put(item);
        }
    }

    /// What the log means when it is read.
    pub fn put(&mut self, item: &Item) {
        match item {
            Item::Write(write) => {
                let WriteHeader { sequence, epoch, commit, .. } = write.header;
                assert_eq!(sequence, self.end().next(), "appended out of order");
                assert_eq!(epoch, self.epoch, "appended in an epoch that was not started");
                self.writes.insert(sequence, Write::clone(write));
                self.commit(commit);
            }
            Item::Epoch { epoch, keep } => {
                assert!(*epoch >= self.epoch && *keep >= self.committed, "the log goes back");
                self.epoch = *epoch;
                if *keep <= self.end() {
                    self.commit(*keep);
                } else {
                    self.incomplete.get_or_insert(self.committed);
                }
                (self.committed, self.applied) = (*keep, *keep);
                self.writes.retain(|sequence, _| sequence <= keep);
            }
            Item::Complete => (self.incomplete, self.unproven) = (None, false),
            Item::Repair(repair) => {
                // In a log that is read back, what comes before a repair is committed by it.
                self.commit(repair.commit);
                let changed = self.changed.entry(repair.range.chunk).or_default();
                *changed = repair.commit.max(*changed);
                self.blocks(&repair.range, &repair.body);
            }
        }
    }

    pub fn commit(&mut self, upto: Sequence) {
        self.committed = self.committed.max(upto);
        while self.applied < upto {
            self.applied = self.applied.next();
            let Some(write) = self.writes.get(&self.applied).cloned() else { continue };
            self.changed.insert(write.header.range.chunk, write.header.sequence);
            self.blocks(&write.header.range, &write.body);
        }
    }

    fn blocks(&mut self, range: &BlockRange, body: &Body) {
        let BlockRange { chunk, first, count, .. } = *range;
        for n in 0..count {
            let at = usize::from(n) * BLOCK_SIZE;
            let block = match body {
                Body::Data { bytes, .. } => bytes.slice(at..at + BLOCK_SIZE),
                _ => Bytes::from(vec![0; BLOCK_SIZE]),
            };
            match body {
                Body::Lost { checksums } => self.lost.insert((chunk, first.0 + n), checksums[usize::from(n)]),
                _ => self.lost.remove(&(chunk, first.0 + n)),
            };
            self.map.insert((chunk, first.0 + n), block);
        }
    }

    pub fn contents(&self, chunk: ChunkIndex, block: u16) -> Bytes {
        self.map.get(&(chunk, block)).cloned().unwrap_or_else(|| Bytes::from(vec![0; BLOCK_SIZE]))
    }

    pub fn end(&self) -> Sequence {
        self.writes.last_key_value().map_or(self.committed, |(sequence, _)| self.committed.max(*sequence))
    }

    /// What the store gives a group after a start.
    pub fn recovered(&self) -> Recovered {
        let tail = self.writes.range(self.committed.next()..).map(|(_, write)| Prepared {
            header: write.header,
            zero: write.body == Body::Zero,
            durable: true,
        });
        let committed = self.writes.range(..=self.committed).map(|(_, write)| write.header);
        let committed = committed.map(|write| (write.session, write.request));
        Recovered {
            epoch: self.epoch,
            committed: self.committed,
            incomplete: self.incomplete,
            unproven: self.unproven,
            tail: tail.collect(),
            note: Bytes::new(),
            committed_since: committed.collect(),
        }
    }
}
