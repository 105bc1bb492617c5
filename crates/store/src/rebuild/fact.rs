//! What a record says of blocks of a chunk.

use super::segment::{FoundSegment, LogReader};
use super::settings::RebuildSettings;
use super::survey::{Age, Survey};
use crate::cx::log_position;
use crate::log::format::{Entries, EntryView, Kind};
use crate::tools::ReadDevice;
use azekura_base::{ChunkIndex, LayerId, PgId};

/// See the module's description.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    pub pg: PgId,
    pub chunk: ChunkIndex,
    pub age: Age,
    pub kind: Kind,
    /// The generation of the key that the blocks are encrypted under.
    pub key: u8,
    pub layer: LayerId,
    pub first: u16,
    pub count: u16,
    pub epoch: u64,
    pub sequence: u64,
    pub commit: u64,
    /// Where the blocks are; 0 of zeros.
    pub address: u32,
    /// Where they were, if they were moved.
    pub old: u32,
    /// Where their checksums begin in [`Facts::sums`].
    sums: usize,
}

/// Memory that a record takes at most beside its checksums, in bytes, when it is worked on.
const RECORD_BYTES: u64 = 128;
/// The same for each block.
const BLOCK_BYTES: u64 = 4;

/// In how many parts the chunks are worked on, so that the records of each fit into memory.
pub(super) fn parts(survey: &Survey, settings: &RebuildSettings) -> u32 {
    let bytes = survey.records * RECORD_BYTES + survey.blocks * BLOCK_BYTES;
    u32::try_from(bytes.div_ceil(settings.memory_bytes.max(1 << 20))).unwrap_or(u32::MAX).max(1)
}

/// The facts of one part of the chunks, by chunk and age.
#[derive(Debug, Default)]
pub(super) struct Facts {
    facts: Vec<Fact>,
    /// The checksums of all blocks.
    sums: Vec<u32>,
    /// Writes that were left out because nothing says that they were committed, or because they were dropped.
    pub unproven: u64,
}

impl Facts {
    /// Reads all segments once more, for part `part` of `parts`.
    pub fn read<D: ReadDevice>(
        reader: &LogReader<D>,
        survey: &Survey,
        settings: &RebuildSettings,
        (part, parts): (u32, u32),
        mut progress: impl FnMut(usize),
    ) -> Facts {
        let mut facts = Facts::default();
        let filter = Filter { survey, settings, part, parts };
        for (index, head) in survey.heads.iter().enumerate() {
            progress(index);
            facts.add(reader, &filter, &reader.contents(head, survey.newest));
        }
        facts.facts.sort_by_key(|fact| (fact.pg, fact.chunk, fact.age));
        facts
    }

    fn add<D: ReadDevice>(&mut self, reader: &LogReader<D>, filter: &Filter<'_>, found: &FoundSegment) {
        for batch in &found.batches {
            let mut address = reader.address(found.head.segment, batch.payload);
            for (index, entry) in Entries::new(&batch.entries).enumerate() {
                let at = address;
                address += entry.payload_blocks();
                // Blocks that were moved have no place in the log of their own.
                let position = if found.head.apart { 0 } else { log_position(batch.sequence, index) };
                let age = Age { generation: found.generation(), position };
                match filter.verdict(age, &entry, found.head.apart) {
                    Verdict::Taken => self.push(age, &entry, at),
                    Verdict::Unproven => self.unproven += 1,
                    Verdict::Foreign => {}
                }
            }
        }
    }

    fn push(&mut self, age: Age, entry: &EntryView<'_>, at: u32) {
        let (range, head, sums) = (entry.range(), &entry.head, self.sums.len());
        match entry.kind {
            Kind::RepairLost => self.sums.extend(entry.lost_checksums().map(|sum| sum.0)),
            _ => self.sums.extend(entry.checksums().map(|sum| sum.0)),
        }
        let is_move = matches!(entry.kind, Kind::Relocate | Kind::Moved | Kind::Relocated);
        self.facts.push(Fact {
            pg: entry.pg(),
            chunk: range.chunk,
            age,
            kind: entry.kind,
            key: head.key,
            layer: range.layer,
            first: range.first.0,
            count: range.count,
            epoch: head.epoch,
            sequence: head.sequence,
            commit: head.commit,
            address: match entry.kind {
                Kind::Moved => head.request as u32,
                kind if kind.has_payload() => at,
                _ => 0,
            },
            old: if is_move { head.session as u32 } else { 0 },
            sums,
        });
    }

    /// The facts of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = &[Fact]> {
        self.facts.chunk_by(|one, other| (one.pg, one.chunk) == (other.pg, other.chunk))
    }

    /// The checksum of a block of a record that has checksums.
    pub fn sum(&self, fact: &Fact, index: u16) -> u32 {
        self.sums.get(fact.sums + usize::from(index)).copied().unwrap_or(0)
    }
}

/// What comes of a record.
enum Verdict {
    Taken,
    /// A write of which nothing says that it was committed.
    Unproven,
    /// It is of another part, or of nothing that there is.
    Foreign,
}

struct Filter<'a> {
    survey: &'a Survey,
    settings: &'a RebuildSettings,
    part: u32,
    parts: u32,
}

impl Filter<'_> {
    fn verdict(&self, age: Age, entry: &EntryView<'_>, apart: bool) -> Verdict {
        let (pg, chunk) = (entry.pg(), entry.head.chunk);
        let is_other = pg.0.wrapping_mul(0x9e37_79b9).wrapping_add(chunk) % self.parts != self.part;
        if !entry.kind.has_range() || is_other || apart != (entry.kind == Kind::Relocated) {
            return Verdict::Foreign;
        }
        // A copy that was given up comes back where its end is not in the log any more, and nobody would take it away.
        let Some(group) = self.survey.groups.get(&pg).filter(|_| self.settings.groups.contains(&pg)) else {
            return Verdict::Foreign;
        };
        let is_gone =
            group.is_forgotten() || group.is_over(age) || self.survey.heir(self.settings, entry.layer()).is_none();
        if is_gone {
            return Verdict::Foreign;
        }
        let (epoch, sequence) = (entry.head.epoch, entry.head.sequence);
        match entry.kind {
            // The write had been committed or dropped before its blocks were here.
            Kind::WriteAgain if sequence == 0 => Verdict::Foreign,
            Kind::Write | Kind::WriteZero | Kind::WriteAgain => {
                let stands = match self.settings.accepted.contains(&pg) {
                    true => !group.has_dropped(age, epoch, sequence),
                    false => group.has_committed(epoch, sequence),
                };
                if stands { Verdict::Taken } else { Verdict::Unproven }
            }
            _ => Verdict::Taken,
        }
    }
}
