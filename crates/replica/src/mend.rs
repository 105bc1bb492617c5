//! Damaged blocks: a reader gets them from another copy at once (the gateway asks there); here they are written anew
//! from a good copy.
//!
//! The primary mends, because it alone can hold back writes to a block. For a secondary's block the primary reads its
//! own block and sends that as a repair; for its own block it asks a secondary. Both are done while no write to the
//! block is under way.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::peer::Standing;
use crate::primary::Primary;
use azekura_base::{BlockIndex, BlockRange, Body, ChunkIndex, DeviceId, Extent, IoStatus, LayerId};
use azekura_wire::{Damaged, Fetch, Fetched, Message, Repair};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

/// Damaged blocks of one group that wait to be mended; further ones are found again by their next reader, or the next
/// scrub.
const DAMAGED_MAX: usize = 1024;
/// A block that no copy could give may have been written since, after this time.
const HOPELESS_FOR: Duration = Duration::from_secs(10);
/// Blocks of one group being mended at once.
const MENDS_MAX: usize = 4;
/// Blocks that are mended together: writes to them wait meanwhile.
const MEND_BLOCKS_MAX: u16 = 32;

#[derive(Clone, Debug)]
struct Mend {
    /// The copy with the damage.
    device: DeviceId,
    blocks: BlockRange,
    /// Copies that could not give the blocks either.
    tried: Vec<DeviceId>,
}

/// What a primary knows of damaged blocks.
#[derive(Default)]
pub(crate) struct Mending {
    queue: VecDeque<Mend>,
    /// Blocks of this copy that were asked for elsewhere, by the question's name, and where.
    fetching: BTreeMap<u64, (DeviceId, Mend)>,
    /// Blocks of other copies, for which this copy's own blocks are being read.
    reading: BTreeMap<u64, Mend>,
    /// Blocks without a good copy that people were told of: every reader finds them again.
    told: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    /// When each block was last found to be damaged in every copy that could be asked (decision 0014).
    hopeless: BTreeMap<(LayerId, ChunkIndex, BlockIndex), Duration>,
}

impl Mending {
    pub(crate) fn hold(&self, blocks: &BlockRange) -> bool {
        let under = self.fetching.values().map(|(_, mend)| mend).chain(self.reading.values());
        under.into_iter().any(|mend| mend.blocks.overlaps(blocks))
    }

    fn knows(&self, device: DeviceId, blocks: &BlockRange) -> bool {
        let under = self.fetching.values().map(|(_, mend)| mend).chain(self.reading.values());
        under.chain(&self.queue).any(|mend| mend.device == device && mend.blocks.overlaps(blocks))
    }

    /// These blocks can't be had together: each is tried alone.
    fn wait_alone(&mut self, mend: &Mend) {
        for n in 0..mend.blocks.count {
            let blocks = BlockRange { first: BlockIndex(mend.blocks.first.0 + n), count: 1, ..mend.blocks };
            self.wait(Mend { device: mend.device, blocks, tried: Vec::new() });
        }
    }

    fn wait(&mut self, mend: Mend) {
        if self.queue.len() < DAMAGED_MAX {
            self.queue.push_back(mend);
        }
    }

    /// What to tell people of blocks without a good copy, once a reign.
    fn no_good_copy(&mut self, blocks: &BlockRange, scrubbing: bool) -> Option<Action> {
        let news = self.told.len() < DAMAGED_MAX && self.told.insert((blocks.layer, blocks.chunk, blocks.first));
        news.then_some(Action::NoGoodCopy { range: *blocks, scrubbing })
    }

    /// This copy can't give these blocks, and every other one in sync has been asked.
    fn give_hope_up(&mut self, blocks: &BlockRange, now: Duration) {
        self.hopeless.retain(|_, at| now.saturating_sub(*at) < HOPELESS_FOR);
        self.hopeless.insert((blocks.layer, blocks.chunk, blocks.first), now);
    }

    /// Of late, no copy in sync could give this block.
    pub(crate) fn is_hopeless(&self, blocks: &BlockRange, now: Duration) -> bool {
        let at = self.hopeless.get(&(blocks.layer, blocks.chunk, blocks.first));
        blocks.count == 1 && at.is_some_and(|at| now.saturating_sub(*at) < HOPELESS_FOR)
    }

    /// What was asked for at copies that do not answer any more is asked for again.
    fn give_up(&mut self, answers: impl Fn(&DeviceId) -> bool) {
        let in_vain = self.fetching.iter().filter(|(_, (from, _))| !answers(from));
        for id in in_vain.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some((_, mend)) = self.fetching.remove(&id) {
                self.wait(mend);
            }
        }
    }
}

impl Group {
    /// A block of this copy fails its checksum.
    pub fn found_damaged(&mut self, layer: LayerId, chunk: ChunkIndex, block: BlockIndex) {
        self.found_unknown(BlockRange::block(layer, chunk, block));
    }

    /// Of some blocks of this copy nothing is known any more.
    pub fn found_unknown(&mut self, range: BlockRange) {
        match &self.role {
            Role::Primary(_) => self.met_damage(self.me, range),
            Role::Secondary(_) => {
                let epoch = self.epochs.followed();
                let damaged = Damaged { pg: self.pg, device: self.me, epoch, range };
                self.send_to_primary(Message::Damaged(damaged));
            }
        }
    }

    /// Blocks of the copy on `device` are damaged, it says.
    pub fn damaged(&mut self, device: DeviceId, damaged: Damaged) {
        if matches!(&self.role, Role::Primary(primary) if primary.epoch() == damaged.epoch) {
            self.met_damage(device, damaged.range);
        }
    }

    fn met_damage(&mut self, device: DeviceId, blocks: BlockRange) {
        if let Some(scrub) = self.scrub_mut() {
            scrub.met_damage(device, &blocks);
        }
        self.mend(device, blocks);
    }

    /// Damaged blocks are being written anew.
    fn tell_mended(&mut self, device: DeviceId, blocks: &BlockRange) {
        let scrubbing = self.scrub_mut().map(|scrub| scrub.mended(device, blocks)).is_some();
        self.actions.push_back(Action::Mended { device, range: *blocks, scrubbing });
    }

    pub(crate) fn mend(&mut self, device: DeviceId, blocks: BlockRange) {
        let Role::Primary(primary) = &mut self.role else { return };
        let mut left = blocks;
        while left.count > 0 {
            // Cut at the same places whoever asks.
            let count = left.count.min(MEND_BLOCKS_MAX - left.first.0 % MEND_BLOCKS_MAX);
            let blocks = BlockRange { count, ..left };
            left = BlockRange { first: BlockIndex(left.first.0 + count), count: left.count - count, ..left };
            if !primary.mending.knows(device, &blocks) {
                primary.mending.wait(Mend { device, blocks, tried: Vec::new() });
            }
        }
        self.run_mends();
    }

    /// Starts with what waits and is not in anybody's way.
    pub(crate) fn run_mends(&mut self) {
        let (me, commit) = (self.me, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        if !primary.is_open() {
            return;
        }
        for _ in 0..primary.mending.queue.len() {
            if primary.mending.fetching.len() + primary.mending.reading.len() >= MENDS_MAX {
                break;
            }
            let Some(mend) = primary.mending.queue.pop_front() else { break };
            let range = mend.blocks;
            if self.tail.touches(&mend.blocks) || primary.is_held(&mend.blocks) {
                primary.mending.queue.push_back(mend);
                continue;
            }
            let id = primary.repairs.name();
            if mend.device != me {
                if primary.is_with_us(mend.device) {
                    primary.mending.reading.insert(id, mend);
                    self.actions.push_back(Action::LoadBlocks { id, range });
                }
                continue;
            }
            let others = || primary.peers.iter().filter(|(_, peer)| matches!(peer.standing, Standing::InSync));
            let source = others().find(|(device, peer)| peer.answers(self.now) && !mend.tried.contains(device));
            if let Some((source, _)) = source {
                let (pg, device, epoch) = (self.pg, *source, primary.epoch());
                primary.mending.fetching.insert(id, (device, mend));
                let fetch = Fetch { pg, device, epoch, commit, id, range };
                self.actions.push_back(Action::Send(device, Message::Fetch(fetch)));
            } else if !others().all(|(device, _)| mend.tried.contains(device)) {
                primary.mending.queue.push_back(mend);
            } else if range.count > 1 {
                primary.mending.wait_alone(&mend);
            } else {
                primary.mending.give_hope_up(&mend.blocks, self.now);
                let scrubbing = primary.scrub.is_some();
                self.actions.extend(primary.mending.no_good_copy(&mend.blocks, scrubbing));
            }
        }
    }

    /// This copy's blocks were read, to mend another's. Gives the contents back when they were read for something else.
    pub(crate) fn mend_loaded(
        &mut self,
        id: u64,
        contents: Result<Vec<Extent>, IoStatus>,
    ) -> Option<Result<Vec<Extent>, IoStatus>> {
        let Role::Primary(primary) = &mut self.role else { return Some(contents) };
        let Some(mut mend) = primary.mending.reading.remove(&id) else { return Some(contents) };
        match contents {
            Ok(extents) => {
                self.tell_mended(mend.device, &mend.blocks);
                self.send_repairs(mend.device, None, mend.blocks, extents);
            }
            Err(_) if mend.blocks.count > 1 => primary.mending.wait_alone(&mend),
            Err(_) => {
                // Both are damaged. A third copy may help this one first: the read that failed has reported this copy's
                // block.
                mend.tried.push(self.me);
                let others = primary.peers.keys().any(|device| *device != mend.device);
                if others && mend.tried.len() < 3 {
                    primary.mending.wait(mend);
                } else {
                    let scrubbing = primary.scrub.is_some();
                    self.actions.extend(primary.mending.no_good_copy(&mend.blocks, scrubbing));
                }
            }
        }
        self.retry_waiting();
        None
    }

    /// Sends contents of blocks to which no write is under way.
    pub(crate) fn send_repairs(
        &mut self,
        device: DeviceId,
        id: Option<NonZeroU64>,
        blocks: BlockRange,
        extents: Vec<Extent>,
    ) {
        let last = extents.len().saturating_sub(1);
        for (n, (range, body)) in bodies(blocks, extents).enumerate() {
            // Repairs are made durable in their order: the answer to the last one stands for all.
            let id = id.filter(|_| n == last);
            self.send_body(device, id, range, body);
        }
    }

    pub(crate) fn send_body(&mut self, device: DeviceId, id: Option<NonZeroU64>, range: BlockRange, body: Body) {
        let commit = self.tail.committed();
        let Role::Primary(primary) = &self.role else { return };
        let (pg, epoch) = (self.pg, primary.epoch());
        let repair = Repair { pg, device, epoch, commit, id, range, body };
        self.actions.push_back(Action::Send(device, Message::Repair(repair)));
    }

    /// The primary asks for blocks.
    pub fn fetch(&mut self, from: Client, fetch: Fetch) {
        if !self.is_from_primary(from, fetch.epoch) {
            return;
        }
        self.follow_commit(fetch.commit);
        if self.tail.committed() < fetch.commit {
            self.answer_fetch(fetch, None);
            return;
        }
        let (id, range) = (self.question(), fetch.range);
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.learner.fetches.insert(id, fetch);
            self.actions.push_back(Action::LoadBlocks { id, range });
        }
    }

    /// The primary asks for blocks of a layer of which this copy has nothing, or not for long.
    pub fn fetch_gone(&mut self, from: Client, fetch: Fetch) {
        if self.is_from_primary(from, fetch.epoch) {
            self.answer_fetch(fetch, None);
        }
    }

    pub(crate) fn answer_fetch(&mut self, fetch: Fetch, extents: Option<Vec<Extent>>) {
        let Fetch { pg, device, epoch, id, .. } = fetch;
        self.send_to_primary(Message::Fetched(Fetched { pg, device, epoch, id, extents }));
    }

    /// A copy gives blocks that were asked for.
    pub fn fetched(&mut self, device: DeviceId, fetched: Fetched) {
        let (me, pg, commit) = (self.me, self.pg, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch();
        if fetched.epoch != epoch {
            return;
        }
        let Some((_, mut mend)) = primary.mending.fetching.remove(&fetched.id) else {
            return self.edge_fetched(fetched.id, fetched.extents);
        };
        let blocks = mend.blocks;
        match fetched.extents.filter(|extents| is_whole(extents, blocks.count)) {
            Some(extents) => {
                self.tell_mended(me, &mend.blocks);
                for (range, body) in bodies(blocks, extents) {
                    let repair = Repair { pg, device: me, epoch, commit, id: None, range, body };
                    self.actions.push_back(Action::AppendRepair(repair));
                }
            }
            None => {
                mend.tried.push(device);
                primary.mending.wait(mend);
            }
        }
        self.retry_waiting();
        self.run_mends();
    }

    /// Questions to copies that have fallen silent, or are members no more, hold up no writes.
    pub(crate) fn give_up_questions(&mut self) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let Primary { peers, mending, merges, .. } = &mut **primary;
        let answers = |device: &DeviceId| peers.get(device).is_some_and(|peer| peer.answers(now));
        mending.give_up(answers);
        for (client, request) in merges.give_up(answers) {
            self.actions.push_back(Action::AnswerWrite(client, request, Err(IoStatus::Redirect)));
        }
        self.retry_waiting();
    }
}

impl Primary {
    /// A copy has what this one has, and can be asked for it.
    pub(crate) fn answers(&self, device: &DeviceId, now: Duration) -> bool {
        self.peers.get(device).is_some_and(|peer| peer.answers(now))
    }

    fn is_with_us(&self, device: DeviceId) -> bool {
        self.peers.get(&device).is_some_and(|peer| peer.synced && peer.counts())
    }
}

/// True when the extents are `count` blocks, with checksums that are right.
pub(crate) fn is_whole(extents: &[Extent], count: u16) -> bool {
    let blocks = |extent: &Extent| match extent {
        Extent::Zero { count } => Some(usize::from(*count)),
        Extent::Data { bytes, checksums } => {
            azekura_base::block_checksums(bytes).eq(checksums.iter().copied()).then_some(checksums.len())
        }
    };
    extents.iter().map(blocks).sum::<Option<usize>>() == Some(usize::from(count))
}

/// Extents that were read of `blocks`, as bodies of repairs.
fn bodies(blocks: BlockRange, extents: Vec<Extent>) -> impl Iterator<Item = (BlockRange, Body)> {
    let mut at = blocks.first.0;
    extents.into_iter().map(move |extent| {
        let range = BlockRange { first: BlockIndex(at), count: extent.count(), ..blocks };
        at += range.count;
        (range, Body::from(extent))
    })
}
