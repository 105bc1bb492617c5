//! The segment table: which segments hold log, what is live in them, which may be written next.

mod apart;
mod checkpoint;
mod segment;
#[cfg(test)]
mod tests;
mod victim;

pub(crate) use segment::{CLEANER_SEGMENTS, Link, Segment, State, ZERO_SEGMENTS};

use crate::checkpoint::SegmentRow;
use crate::map::LiveRight;
use crate::options::{Initialisation, Options, SUPERBLOCK_AREA_BLOCKS};
use azekura_base::{BLOCK_SIZE, LayerId};
use checkpoint::WhileSaving;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// Classes of fullness.
const CLASSES: usize = 65;
/// Segments of one class that are looked at for one that can be cleaned.
const VICTIMS_TRIED_MAX: usize = 16;

/// The segment table. See the module's description.
#[derive(Debug)]
pub(crate) struct Segments {
    table: Vec<Segment>,
    segment_blocks: u32,
    /// Segments with so many needed blocks are not worth cleaning: headers and summaries take the rest.
    full_enough: u32,
    /// See [`Options::promised_blocks`].
    promised_blocks: u32,
    /// Segments below this are initialised on the device.
    ready: u32,
    /// Segments that can be written to in the end: those that are initialised, and the others if they soon will be.
    usable: u32,
    free: u32,
    live: u64,
    pinned: u64,
    /// From the replay position to the open segment.
    chain: VecDeque<Link>,
    /// Rows that differ from what is saved.
    changed: BTreeSet<u32>,
    /// Sealed segments by how many of their blocks are needed, from none to all; in each class by generation.
    classes: Vec<BTreeSet<(u64, u32)>>,
    /// Become free when the checkpoint in progress is saved.
    freeing: Vec<u32>,
    while_saving: WhileSaving,
    /// Live blocks that no leaf reaches, because one is damaged that did; in which segments is not known.
    ghosts: u64,
    /// A segment that was to give up more blocks than it has: then the saved map is wrong.
    mismatch: Option<u32>,
}

impl Segments {
    /// As a checkpoint has them. What they count beyond what the `layers` own are ghosts.
    pub fn new(options: &Options, rows: &[(u32, SegmentRow)], layers: &[(LayerId, u64)]) -> Segments {
        let blank = Segment {
            generation: 0,
            state: State::Free,
            live: 0,
            saved_live: 0,
            pins: 0,
            holds: 0,
            apart: false,
            leaving: 0,
            readers: 0,
            alone_until: Duration::ZERO,
        };
        let mut table = vec![blank; options.segments as usize];
        for (segment, row) in rows {
            if let Some(entry) = table.get_mut(*segment as usize) {
                entry.generation = row.generation;
                entry.state = if row.used || row.live > 0 { State::Sealed } else { State::Free };
                (entry.live, entry.saved_live) = (row.live, row.live);
            }
        }
        let mut segments = Segments {
            table,
            segment_blocks: options.segment_blocks,
            full_enough: options.full_enough_blocks(),
            promised_blocks: options.promised_blocks(),
            ready: options.segments,
            usable: options.segments,
            free: 0,
            live: 0,
            pinned: 0,
            chain: VecDeque::new(),
            changed: BTreeSet::new(),
            classes: vec![BTreeSet::new(); CLASSES],
            freeing: Vec::new(),
            while_saving: WhileSaving::default(),
            ghosts: 0,
            mismatch: None,
        };
        for segment in 0..segments.len() {
            segments.classify(segment, None);
        }
        segments.live = segments.table.iter().map(|s| u64::from(s.live)).sum();
        let owned: u64 = layers.iter().map(|(_, blocks)| blocks).sum();
        segments.ghosts = segments.live.saturating_sub(owned);
        segments.count_free();
        segments
    }

    fn class_of(&self, needed: u32) -> usize {
        match needed {
            0 => 0,
            // A write that is being applied counts twice for a moment.
            needed => (1 + (needed - 1) as usize * (CLASSES - 1) / self.segment_blocks as usize).min(CLASSES - 1),
        }
    }

    /// Moves a sealed segment to the class of its needed blocks, out of that of `before` needed blocks.
    fn classify(&mut self, segment: u32, before: Option<u32>) {
        let entry = self.table[segment as usize];
        if entry.state != State::Sealed {
            return;
        }
        let class = self.class_of(entry.needed());
        let key = (entry.generation, segment);
        if let Some(before) = before.map(|needed| self.class_of(needed)) {
            if before == class {
                return;
            }
            self.classes[before].remove(&key);
        }
        self.classes[class].insert(key);
    }

    fn unclassify(&mut self, segment: u32) {
        let entry = self.table[segment as usize];
        let class = self.class_of(entry.needed());
        self.classes[class].remove(&(entry.generation, segment));
    }

    fn count_free(&mut self) {
        let ready = self.ready as usize;
        self.free = self.table[..ready].iter().filter(|s| s.state == State::Free).count() as u32;
    }

    /// See [`Store::segments_ready`](crate::Store::segments_ready).
    pub fn set_ready(&mut self, ready: u32, others: Initialisation) {
        self.ready = ready.min(self.len());
        self.usable = match others {
            Initialisation::GoesOn => self.len(),
            Initialisation::Halted => self.ready,
        };
        self.count_free();
    }

    pub fn get(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.table[segment as usize]
    }

    pub fn len(&self) -> u32 {
        self.table.len() as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.table)
    }

    pub fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    /// Segments that may be written to at all now.
    pub fn ready(&self) -> u32 {
        self.ready
    }

    /// The same, with those that soon may.
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// Blocks of a segment that clients may fill on average.
    pub fn promised_blocks(&self) -> u32 {
        self.promised_blocks
    }

    /// See [`Options::full_enough_blocks`].
    pub fn full_enough(&self) -> u32 {
        self.full_enough
    }

    pub fn live(&self) -> u64 {
        self.live
    }

    pub fn chain(&self) -> &VecDeque<Link> {
        &self.chain
    }

    /// The block addresses of all segments.
    pub fn addresses(&self) -> Range<u32> {
        SUPERBLOCK_AREA_BLOCKS..SUPERBLOCK_AREA_BLOCKS + self.len() * self.segment_blocks
    }

    /// The segment and the place in it of a block address; `None` for an address outside of all segments.
    pub fn locate(&self, address: u32) -> Option<(u32, u32)> {
        let block = self.addresses().contains(&address).then(|| address - SUPERBLOCK_AREA_BLOCKS)?;
        Some((block / self.segment_blocks, block % self.segment_blocks))
    }

    /// The segment of an address that came out of the map or the log.
    pub fn segment_of(&self, address: u32) -> u32 {
        let (segment, _) = self.locate(address).expect("addresses are checked when they are loaded");
        segment
    }

    pub fn address(&self, segment: u32, block: u32) -> u32 {
        SUPERBLOCK_AREA_BLOCKS + segment * self.segment_blocks + block
    }

    /// Byte offset of a block address on the device.
    pub fn offset(address: u32) -> u64 {
        u64::from(address) * BLOCK_SIZE as u64
    }

    /// The free segment that follows `after`, in a circle.
    pub fn next_free(&self, after: u32) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        self.free_in_circle(after).next()
    }

    /// The free segment that the chain, which is in `after`, would come to last: so it is known afterwards where the
    /// chain has gone on.
    pub fn last_free(&self, after: u32) -> Option<u32> {
        self.free_in_circle(after).next_back()
    }

    fn free_in_circle(&self, after: u32) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let ready = self.ready;
        let start = (after + 1) % ready.max(1);
        let usable = move |s: &u32| {
            let segment = self.get(*s);
            segment.state == State::Free && segment.readers == 0
        };
        (start..ready).chain(0..start).filter(usable)
    }

    /// Opens `segment` as the next link of the log.
    pub fn open(&mut self, link: Link) {
        let ready = self.ready;
        let entry = self.get_mut(link.segment);
        assert_eq!(entry.state, State::Free, "segment {} was opened while in use", link.segment);
        assert_eq!(entry.live, 0, "segment {} was opened with live blocks", link.segment);
        entry.state = State::Open;
        entry.generation = link.generation;
        entry.alone_until = Duration::ZERO;
        (entry.apart, entry.leaving) = (false, 0);
        if link.segment < ready {
            self.free -= 1;
        }
        self.changed.insert(link.segment);
        self.chain.push_back(link);
    }

    /// Takes up `link` again at replay, where the segment may already be known as in use.
    pub fn reopen(&mut self, link: Link) {
        let before = *self.get(link.segment);
        if before.state == State::Free && link.segment < self.ready {
            self.free -= 1;
        }
        self.unclassify(link.segment);
        let entry = self.get_mut(link.segment);
        entry.state = State::Open;
        entry.generation = link.generation;
        entry.apart = false;
        self.changed.insert(link.segment);
        self.chain.push_back(link);
    }

    pub fn seal(&mut self, segment: u32) {
        let entry = self.get_mut(segment);
        assert_eq!(entry.state, State::Open);
        entry.state = State::Sealed;
        self.classify(segment, None);
    }

    /// A device read of the segment begins.
    pub fn read_begins(&mut self, segment: u32) {
        self.get_mut(segment).readers += 1;
    }

    /// A device read of the segment has ended.
    pub fn read_ends(&mut self, segment: u32) {
        self.get_mut(segment).readers -= 1;
    }

    /// Something in the segment is not what was written: the segment is not cleaned before `until`.
    pub fn leave_alone(&mut self, segment: u32, until: Duration) {
        self.get_mut(segment).alone_until = until;
    }

    /// Live blocks that no leaf reaches.
    pub fn ghosts(&self) -> u64 {
        self.ghosts
    }

    /// A leaf is damaged that owned so many blocks; in which segments is not known.
    pub fn add_ghosts(&mut self, _right: LiveRight, blocks: u32) {
        self.ghosts += u64::from(blocks);
    }

    /// A segment that was to give up more blocks than it has: then the saved map is wrong.
    pub fn take_mismatch(&mut self) -> Option<u32> {
        self.mismatch.take()
    }

    /// A leaf owns so many blocks more in the segment.
    pub fn add_live(&mut self, _right: LiveRight, segment: u32, blocks: u32) {
        let entry = self.get_mut(segment);
        let before = entry.needed();
        entry.live += blocks;
        self.live += u64::from(blocks);
        self.classify(segment, Some(before));
    }

    /// A leaf owns so many blocks less in the segment.
    pub fn remove_live(&mut self, _right: LiveRight, segment: u32, blocks: u32) {
        self.give_up(segment, blocks);
    }

    fn give_up(&mut self, segment: u32, blocks: u32) {
        let entry = self.get_mut(segment);
        let given_up = blocks.min(entry.live);
        let before = entry.needed();
        entry.live -= given_up;
        self.live -= u64::from(given_up);
        if given_up < blocks {
            self.mismatch = Some(segment);
        }
        self.classify(segment, Some(before));
    }

    /// No leaf owns a block of the segment: what it counts are ghosts. Where it is not known how many blocks the lost
    /// leaf owned, nothing is done, and false given: to look at the segment again and again would win nothing.
    pub fn drop_ghosts(&mut self, segment: u32) -> bool {
        let entry = self.get(segment);
        let (live, idle) = (entry.live, entry.pins == 0 && entry.holds == 0);
        if live == 0 || !idle {
            return true;
        }
        if u64::from(live) > self.ghosts {
            return false;
        }
        self.ghosts -= u64::from(live);
        self.give_up(segment, live);
        self.add_saved(segment, -(live as i32));
        true
    }

    pub fn add_saved(&mut self, segment: u32, blocks: i32) {
        let entry = self.get_mut(segment);
        match entry.saved_live.checked_add_signed(blocks) {
            Some(saved_live) => entry.saved_live = saved_live,
            None => self.mismatch = Some(segment),
        }
        self.changed.insert(segment);
    }

    /// Blocks of a write that is not applied yet are in `segment`.
    pub fn pin(&mut self, segment: u32, blocks: u32) {
        let entry = self.get_mut(segment);
        let before = entry.needed();
        entry.pins += blocks;
        self.pinned += u64::from(blocks);
        self.classify(segment, Some(before));
    }

    /// The write is applied or dropped.
    pub fn unpin(&mut self, segment: u32, blocks: u32) {
        let entry = self.get_mut(segment);
        assert!(entry.pins >= blocks, "segment {segment} has fewer pinned blocks than were given up");
        let before = entry.needed();
        entry.pins -= blocks;
        self.pinned -= u64::from(blocks);
        self.classify(segment, Some(before));
    }

    /// Blocks of writes that are not applied yet.
    pub fn pinned(&self) -> u64 {
        self.pinned
    }

    /// A record other than a write is in the log, and not applied yet.
    pub fn hold(&mut self, segment: u32) {
        self.get_mut(segment).holds += 1;
    }

    pub fn release(&mut self, segment: u32) {
        let entry = self.get_mut(segment);
        assert!(entry.holds > 0);
        entry.holds -= 1;
    }

    /// Generation of the oldest segment that replay has to begin with for the sake of records that are held.
    pub fn oldest_held(&self) -> Option<u64> {
        self.chain.iter().find(|link| self.get(link.segment).holds > 0).map(|link| link.generation)
    }

    /// A replay from where the last checkpoint says would read the records of a generation.
    pub fn is_in_chain(&self, generation: u64) -> bool {
        self.chain.front().is_some_and(|link| link.generation <= generation)
    }

    /// The link of a generation in the chain.
    pub fn link(&self, generation: u64) -> Option<Link> {
        let first = self.chain.front()?.generation;
        self.chain.get(usize::try_from(generation.checked_sub(first)?).ok()?).copied()
    }

    /// Generation of the oldest segment that a checkpoint could free once the replay position has passed it, if that
    /// generation is before `oldest`.
    pub fn reclaimable(&self, oldest: u64) -> Option<u64> {
        self.classes[0].first().map(|(generation, _)| *generation).filter(|generation| *generation < oldest)
    }

    /// Sealed segments of which no block is needed; with `before`, those of older generations.
    pub fn empty(&self, before: Option<u64>) -> u32 {
        let empty = &self.classes[0];
        before.map_or(empty.len(), |before| empty.range(..(before, 0)).count()) as u32
    }

    /// Frees what was opened after generation `last`, which the log never durably reached.
    ///
    /// # Errors
    /// A segment that has live blocks nevertheless.
    pub fn forget_after(&mut self, last: u64) -> Result<(), u32> {
        for segment in 0..self.len() {
            let entry = self.table[segment as usize];
            if entry.state == State::Sealed && entry.generation > last {
                if entry.live > 0 || entry.saved_live > 0 {
                    return Err(segment);
                }
                self.unclassify(segment);
                self.get_mut(segment).state = State::Free;
                self.changed.insert(segment);
            }
        }
        self.count_free();
        Ok(())
    }
}
