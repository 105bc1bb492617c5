//! Clients: what they ask for, and what becomes of it.

mod compares;
mod steps;

use crate::cluster::attachments::Holders;
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::kernel::time::Stamp;
use crate::plan::{Plan, WRITE_BLOCKS_MAX};
use crate::workloads::contents::{BLOCK_SECTORS, SECTOR_SIZE, Value};
use crate::workloads::preempter::Preempter;
use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, Endpoint, Generation, NodeId, Shard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// A write where what is there is as expected.
    Compare,
    Zero,
    Trim,
}

/// An operation under way.
struct PendingOp {
    kind: Kind,
    life: Life,
    /// `None` for the final reads.
    client: Option<usize>,
    /// First sector.
    first: u64,
    /// Sectors.
    count: u64,
    start: Stamp,
    /// When that was.
    asked: Duration,
    attachment: Generation,
    /// What is read is a snapshot's.
    snapshot: Option<String>,
    /// What a compare-and-write expects, sector by sector.
    expected: Vec<Value>,
}

/// A write that nobody waits for any more: it has failed, or its client has gone on without its connection.
struct GivenUp {
    id: u64,
    life: Life,
    attachment: Generation,
    client: Option<usize>,
    /// Whose it is, where hosts come through several nodes.
    host: Option<u64>,
    sectors: Range<u64>,
    at: Stamp,
    /// By when its process knew, if it does.
    known: Option<Stamp>,
}

/// Where clients write, in sectors.
pub(crate) struct Layout {
    /// Small ranges that everybody fights for: around the borders of chunks.
    hot: Vec<Range<u64>>,
    /// Where writes are large and whole blocks.
    filler: Vec<Range<u64>>,
    /// Where clients also zero and trim.
    zeroed: Vec<Range<u64>>,
}

const CHUNK_SECTORS: u64 = CHUNK_BLOCKS as u64 * BLOCK_SECTORS;
/// Blocks on each side of a chunk's border that are hot.
const HOT_BLOCKS: u64 = 8;
const FILLER_BLOCKS: u64 = 96;
const ZEROED_BLOCKS: u64 = 16;

impl Layout {
    pub(crate) fn new(plan: &Plan) -> Layout {
        let chunks = u64::from(plan.chunks);
        let blocks = |chunk: u64, first: u64, count: u64| {
            let first = chunk * CHUNK_SECTORS + first * BLOCK_SECTORS;
            first..first + count * BLOCK_SECTORS
        };
        let border = |chunk| blocks(chunk, CHUNK_BLOCKS as u64 - HOT_BLOCKS, 2 * HOT_BLOCKS);
        Layout {
            hot: (0..chunks - 1).map(border).collect(),
            filler: (0..chunks).map(|chunk| blocks(chunk, 100, FILLER_BLOCKS)).collect(),
            zeroed: (0..chunks).map(|chunk| blocks(chunk, 512, ZEROED_BLOCKS)).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Range<u64>> {
        self.hot.iter().chain(&self.filler).chain(&self.zeroed)
    }

    /// The next operation: kind, first sector, sectors.
    fn draw(&self, random: &mut Random) -> (Kind, u64, u64) {
        let roll = random.below(100);
        let region = match roll {
            0..60 if random.chance(50) => &self.hot[0],
            0..60 => random.pick(&self.hot),
            60..88 => random.pick(&self.filler),
            _ => random.pick(&self.zeroed),
        };
        match roll {
            0..25 => aligned(Kind::Write, region, if random.chance(80) { 4 } else { WRITE_BLOCKS_MAX }, random),
            25..40 => unaligned(Kind::Write, region, random),
            40..60 => unaligned(Kind::Read, region, random),
            60..80 => aligned(Kind::Write, region, WRITE_BLOCKS_MAX, random),
            80..88 => aligned(Kind::Read, region, WRITE_BLOCKS_MAX, random),
            88..92 => aligned(Kind::Write, region, 4, random),
            92..94 => aligned(Kind::Trim, region, WRITE_BLOCKS_MAX, random),
            94..96 => unaligned(Kind::Zero, region, random),
            _ => unaligned(Kind::Read, region, random),
        }
    }
}

fn aligned(kind: Kind, region: &Range<u64>, blocks_max: u64, random: &mut Random) -> (Kind, u64, u64) {
    let blocks = (region.end - region.start) / BLOCK_SECTORS;
    let count = random.between(1, blocks_max.min(blocks));
    let first = random.between(0, blocks - count);
    (kind, region.start + first * BLOCK_SECTORS, count * BLOCK_SECTORS)
}

fn unaligned(kind: Kind, region: &Range<u64>, random: &mut Random) -> (Kind, u64, u64) {
    let count = random.between(1, 20);
    (kind, random.between(region.start, region.end - count), count)
}

/// All clients.
pub(crate) struct Clients {
    /// Where each client is attached.
    at: Vec<Endpoint>,
    running: BTreeMap<u64, PendingOp>,
    pub(crate) layout: Layout,
    pub(crate) issued: u64,
    random: Random,
    /// Operations that a run's clients start.
    limit: u64,
    given_up: Vec<GivenUp>,
    /// Who puts whom out, where clients belong to hosts.
    pub(crate) hosts: Preempter,
    /// The attachment that each operation was asked under, where attachments are in use.
    attachments: BTreeMap<u64, Generation>,
    /// The operation before which the volume gets other limits.
    limits_at: u64,
    limits_random: Random,
    /// What clients expect to find: what they saw or wrote last.
    latest: BTreeMap<u64, Value>,
    compares_random: Random,
    /// Draws what comes late.
    late_random: Random,
}

impl Clients {
    pub(crate) fn new(plan: &Plan, mut random: Random) -> Clients {
        // Where guests come and go, all begin where there always is a place.
        let nodes = if plan.guests { 1 } else { plan.nodes };
        let shard = |client: u32| Shard((client % u32::from(plan.shards.most())) as u8);
        let mut at = |client| {
            let node = NodeId(random.between(1, u64::from(nodes)) as u32);
            Endpoint { node, shard: shard(client) }
        };
        let at = (0..plan.clients).map(&mut at).collect();
        let layout = Layout::new(plan);
        // A stream of their own.
        let hosts = Preempter::new(Random::new(random.clone().below(u64::MAX) ^ 0x7072_6565));
        let limits_random = Random::new(plan.operations ^ u64::from(plan.clients) ^ 0x6c69_6d69);
        Clients {
            at,
            running: BTreeMap::new(),
            layout,
            issued: 0,
            random,
            limit: plan.operations,
            given_up: Vec::new(),
            hosts,
            attachments: BTreeMap::new(),
            limits_at: 0,
            limits_random,
            latest: BTreeMap::new(),
            compares_random: Random::new(plan.operations ^ u64::from(plan.clients) ^ 0x636f_6d70),
            late_random: Random::new(plan.operations ^ u64::from(plan.clients) ^ 0x6c61_7465),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.at.len()
    }

    /// The operation that has been under way for the longest time, and since when.
    pub(crate) fn oldest(&self) -> Option<(u64, Duration)> {
        self.running.iter().map(|(id, op)| (*id, op.asked)).min_by_key(|(_, asked)| *asked)
    }

    /// Writes of a node's clients are under way.
    pub(crate) fn are_writing_at(&self, node: NodeId) -> bool {
        self.running.values().any(|op| matches!(op.kind, Kind::Write | Kind::Compare) && op.life.node == node)
    }

    /// A client is attached there from now on.
    pub(crate) fn move_to(&mut self, client: usize, at: Endpoint) {
        self.at[client] = at;
    }

    /// The operations under way.
    pub(crate) fn running(&self) -> BTreeSet<u64> {
        self.running.keys().copied().collect()
    }

    pub(crate) fn idle(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn all_issued(&self) -> bool {
        self.issued >= self.limit
    }

    /// They go on until they are stopped.
    pub(crate) fn go_on(&mut self) {
        self.limit = u64::MAX;
    }

    pub(crate) fn stop(&mut self) {
        self.limit = self.issued;
    }

    /// When it was confirmed that nothing more of an operation's attachment is applied, if it was.
    pub(crate) fn fenced_at(&self, operation: u64, holders: &Holders) -> Option<Stamp> {
        holders.confirmed(*self.attachments.get(&operation)?)
    }

    /// The operations under way, for people.
    pub(crate) fn describe(&self) -> String {
        let describe = |(id, op): (&u64, &PendingOp)| {
            format!("{id}: {:?} {}+{} at {:?}", op.kind, op.first, op.count, op.life.endpoint())
        };
        self.running.iter().take(8).map(describe).collect::<Vec<_>>().join(", ")
    }
}

const _: () = assert!(FILLER_BLOCKS + 100 < 512 && 512 + ZEROED_BLOCKS < CHUNK_BLOCKS as u64 - HOT_BLOCKS);
const _: () = assert!(SECTOR_SIZE * BLOCK_SECTORS as usize == BLOCK_SIZE);
