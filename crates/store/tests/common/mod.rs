//! A simulated disk and a driver: the store's surroundings in a test.
#![allow(dead_code)]

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, Checksums, ChunkIndex, DeviceId, Epoch, Extent, KeyGeneration, LayerId,
    PgId, RequestId, Sequence, SessionId, Write, WriteHeader,
};
use azekura_store::{
    Completion, DeviceError, Done, Effect, Identity, InMemoryMap, IoId, MapError, OpenError, Options, ReadDevice,
    ReadError, Report, SavedMap, Store,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const IDENTITY: Identity = Identity { cluster: 0xc1c1_c1c1, device: DeviceId(7), instance: 42 };

/// A device whose unfinished writes can be lost, torn and reordered by a crash.
#[derive(Clone, Default)]
pub struct Disk {
    pub image: Vec<u8>,
    /// Accepted, not finished: name, offset, bytes.
    pub waiting: Vec<(IoId, u64, Vec<u8>)>,
    /// Blocks whose reads fail until they are written.
    pub unreadable: BTreeSet<usize>,
}

impl Disk {
    pub fn new(bytes: u64) -> Disk {
        Disk { image: vec![0; bytes as usize], ..Disk::default() }
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        for block in at / BLOCK_SIZE..(at + bytes.len()).div_ceil(BLOCK_SIZE) {
            self.unreadable.remove(&block);
        }
    }

    /// As a drive does it.
    pub fn try_read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let first = offset as usize / BLOCK_SIZE;
        match self.unreadable.range(first..first + len / BLOCK_SIZE).next() {
            Some(block) => Err(DeviceError(format!("block {block} can't be read"))),
            None => Ok(self.read(offset, len)),
        }
    }

    pub fn read(&self, offset: u64, len: usize) -> Bytes {
        azekura_base::copy_to_pages(&self.image[offset as usize..offset as usize + len])
    }
}

impl ReadDevice for &Disk {
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        self.try_read(offset, len)
    }
}

/// Steps after which a store that still asks for effects is taken to be going in circles.
/// Times that a store with waiting records is looked at again before it counts as stuck.
const NUDGES_MAX: usize = 64;
const STEPS_MAX: usize = 20_000;

/// Tiny options: many segment changes in few writes.
pub fn tiny() -> Options {
    Options {
        segments: 16,
        segment_blocks: 64,
        batch_blocks_max: 16,
        batch_records_max: 16,
        batches_in_flight_max: 4,
        leaf_cache_bytes_max: 10 * 2_000,
        read_cache_bytes_max: 20 * 4300,
        cleaning_reserve_percent: 20,
        gathered_read_blocks_min: 2,
        gathering_blocks_max: 32,
        replay_bytes_max: 16 * 64 * 4096,
        checkpoint_leaves_max: 4,
        ..Options::default()
    }
}

/// Seconds that an opening may take which meets a leaf that can't be read.
pub const OPENING_MAX_S: u64 = 40;

/// A store with its surroundings.
pub struct Rig {
    pub store: Store,
    pub disk: Disk,
    pub map: InMemoryMap,
    /// Effects of the map that are not done yet.
    pub map_waiting: Vec<Effect>,
    /// Lookups that are done, whose answers are on their way.
    pub looked_up: Vec<(IoId, Done)>,
    pub reads_waiting: Vec<(IoId, u64, usize)>,
    /// So many reads of the map are refused from now on.
    pub map_refuses: u32,
    /// So many checkpoints find no room from now on.
    pub map_full: u32,
    pub done: Vec<Completion>,
    pub reports: Vec<Report>,
    /// What the store was last told, where that is needed.
    pub time: Duration,
}

impl Rig {
    pub fn format(options: &Options) -> Rig {
        let format = Store::format(options, &IDENTITY).unwrap();
        let mut disk = Disk::new(options.device_bytes());
        disk.write(format.offset, &format.pieces.concat());
        let mut map = InMemoryMap::new();
        map.checkpoint(format.checkpoint).unwrap();
        Rig::open(options, disk, map).unwrap()
    }

    /// Surroundings in which nothing has happened.
    pub fn around(store: Store, disk: Disk, map: InMemoryMap) -> Rig {
        let (map_waiting, looked_up, reads_waiting) = (Vec::new(), Vec::new(), Vec::new());
        let (map_refuses, map_full, done, reports, time) = (0, 0, Vec::new(), Vec::new(), Duration::ZERO);
        Rig { store, disk, map, map_waiting, looked_up, reads_waiting, map_refuses, map_full, done, reports, time }
    }

    pub fn open(options: &Options, disk: Disk, map: InMemoryMap) -> Result<Rig, OpenError> {
        Rig::open_with(options, disk, map, |_| {})
    }

    pub fn open_with(
        options: &Options,
        disk: Disk,
        map: InMemoryMap,
        prepare: impl FnOnce(&mut Store),
    ) -> Result<Rig, OpenError> {
        let root = map.root().unwrap().unwrap();
        let mut store = Store::open(options.clone(), IDENTITY, root);
        prepare(&mut store);
        let mut rig = Rig::around(store, disk, map);
        rig.settle();
        let recovered = |rig: &Rig| rig.done.iter().position(|c| matches!(c, Completion::Recovered(_)));
        // Another copy has what stands in a leaf that can't be read.
        for _ in 0..OPENING_MAX_S {
            if recovered(&rig).is_some() || rig.map.unreadable().next().is_none() {
                break;
            }
            rig.pass_a_second();
            rig.give_up_leaves();
            rig.settle();
        }
        let ended = recovered(&rig);
        let ended = ended.map(|index| rig.done.remove(index));
        rig.done.clear();
        match ended {
            Some(Completion::Recovered(Ok(()))) => Ok(rig),
            Some(Completion::Recovered(Err(error))) => Err(error),
            other => panic!("opening gave {other:?}"),
        }
    }

    pub fn pass_a_second(&mut self) {
        self.time += Duration::from_secs(1);
        self.store.tick(self.time);
    }

    /// Gives leaves up that alone have been refused for long.
    pub fn give_up_leaves(&mut self) {
        for leaf in self.store.overdue_leaves().iter().filter(|leaf| !leaf.alone_for.is_zero()) {
            self.store.give_up_leaf(&leaf.key);
        }
    }

    /// Takes effects without doing them.
    pub fn take_effects(&mut self) {
        while let Some(effect) = self.store.next_effect() {
            match effect {
                Effect::Write { io, offset, pieces, durable } => {
                    assert!(durable);
                    let whole = |n: usize| n.is_multiple_of(BLOCK_SIZE);
                    assert!(pieces.iter().all(|p| whole(p.len()) && whole(p.as_ptr() as usize)));
                    self.disk.waiting.push((io, offset, pieces.concat()));
                }
                Effect::Read { io, offset, len } => self.reads_waiting.push((io, offset, len)),
                Effect::Flush { io } => self.store.done(io, Done::Flushed(Ok(()))),
                other => self.map_waiting.push(other),
            }
        }
        while let Some(completion) = self.store.next_completion() {
            self.done.push(completion);
        }
        while let Some(report) = self.store.next_report() {
            self.reports.push(report);
        }
    }

    pub fn finish_write(&mut self, index: usize) {
        let (io, offset, bytes) = self.disk.waiting.remove(index);
        self.disk.write(offset, &bytes);
        self.store.done(io, Done::Written(Ok(())));
    }

    pub fn finish_read(&mut self, index: usize) {
        let (io, offset, len) = self.reads_waiting.remove(index);
        let bytes = self.disk.try_read(offset, len);
        self.store.done(io, Done::Read(bytes));
    }

    pub fn finish_map(&mut self, index: usize) {
        let effect = self.map_waiting.remove(index);
        if let Some((io, done)) = self.map_trouble(&effect) {
            return self.store.done(io, done);
        }
        let Ok((io, done)) = self.map.perform(effect) else { panic!("not an effect of the map") };
        self.store.done(io, done);
    }

    /// Does one of the lookups that wait, whose answer comes later ([`Rig::answer`]): what the map does before that is
    /// not seen by it.
    pub fn look_up(&mut self, which: usize) {
        let lookups = self.map_waiting.iter().enumerate().filter(|(_, effect)| effect.is_lookup());
        let lookups: Vec<usize> = lookups.map(|(index, _)| index).collect();
        if lookups.is_empty() {
            return;
        }
        let effect = self.map_waiting.remove(lookups[which % lookups.len()]);
        let done = self.map_trouble(&effect).or_else(|| self.map.perform(effect).ok());
        self.looked_up.extend(done);
    }

    /// Gives the answer of a lookup that is done.
    pub fn answer(&mut self, index: usize) {
        let (io, done) = self.looked_up.remove(index);
        self.store.done(io, done);
    }

    /// How an effect of the map ends that the map does not do now.
    fn map_trouble(&mut self, effect: &Effect) -> Option<(IoId, Done)> {
        let is_write = matches!(effect, Effect::Checkpoint { .. });
        let times = if is_write { &mut self.map_full } else { &mut self.map_refuses };
        *times = times.checked_sub(1)?;
        effect.map_error(if is_write {
            MapError::Full("no room".into())
        } else {
            MapError::Refused("no answer".into())
        })
    }

    /// Does everything that is to be done.
    pub fn settle(&mut self) {
        let mut nudges = 0;
        for _ in 0..STEPS_MAX {
            self.store.pump();
            self.take_effects();
            if !self.disk.waiting.is_empty() {
                self.finish_write(0);
            } else if !self.reads_waiting.is_empty() {
                self.finish_read(0);
            } else if !self.map_waiting.is_empty() {
                self.finish_map(0);
            } else if !self.looked_up.is_empty() {
                self.answer(0);
            } else if self.store.checkpoint_due() {
                self.store.begin_checkpoint(|_| None);
            } else if self.store.statistics().records_waiting > 0 && nudges < NUDGES_MAX {
                // Time goes on while clients wait.
                nudges += 1;
                self.store.tick(Duration::ZERO);
            } else {
                return;
            }
        }
        panic!("the store never comes to rest: {:?} {}", self.store.space(), self.store.describe());
    }

    /// Brings all committed writes into the map that wait for their leaves.
    pub fn settle_map(&mut self) {
        for _ in 0..STEPS_MAX {
            self.settle();
            if !self.store.settle_map() {
                return;
            }
        }
        panic!("writes wait for their leaves without an end");
    }

    /// Saves what has changed, as far as one checkpoint goes; no write waits for a leaf then that can be read.
    pub fn checkpoint(&mut self) {
        for _ in 0..NUDGES_MAX {
            self.settle();
            if !self.store.settle_map() {
                break;
            }
        }
        self.settle();
        self.store.begin_checkpoint(|_| None);
        self.settle();
    }

    pub fn read(&mut self, pg: u32, layer: u64, chunk: u32, first: u16, count: u16) -> Result<Vec<u8>, ReadError> {
        self.store.read(99, PgId(pg), blocks(layer, chunk, first, count));
        self.settle();
        // What a leaf is waited for that can't be read is told when that has been asked for again.
        let ends = |c: &Completion| matches!(c, Completion::Read { token: 99, .. });
        if !self.done.iter().any(ends) && self.map.unreadable().next().is_some() {
            self.pass_a_second();
            self.settle();
        }
        let result = self.done.drain(..).find_map(|c| match c {
            Completion::Read { token: 99, result } => Some(result),
            _ => None,
        });
        result.expect("a read completes").map(|extents| flatten(&extents, count))
    }

    /// Appends, makes durable and commits.
    pub fn write(&mut self, pg: u32, layer: u64, chunk: u32, first: u16, body: Body, count: u16) {
        let write = self.next_write(pg, layer, chunk, first, body, count);
        let sequence = write.header.sequence;
        self.store.append(1, write);
        self.settle();
        self.store.commit(PgId(pg), sequence);
        self.settle();
    }

    pub fn next_write(&self, pg: u32, layer: u64, chunk: u32, first: u16, body: Body, count: u16) -> Write {
        let state = self.store.group(PgId(pg));
        let range = blocks(layer, chunk, first, count);
        let header = WriteHeader {
            pg: PgId(pg),
            epoch: state.epoch,
            sequence: state.prepared_end.next(),
            commit: state.committed,
            session: SessionId(1),
            request: RequestId(state.prepared_end.0),
            range,
        };
        Write { header, body }
    }

    /// The saved map and the changes in memory give exactly the live counts that the store keeps.
    pub fn check_accounts(&self) {
        self.store.assert_accounts(self.map.leaves(), |_| true);
    }

    /// The disk and the map as a crash leaves them: of the unfinished writes, `keep` says for each 512-byte sector
    /// whether it landed.
    pub fn crash(self, keep: impl FnMut(usize, usize) -> bool) -> (Disk, InMemoryMap) {
        self.crash_with(keep, |_, _| false)
    }

    /// As [`Rig::crash`], but `unreadable` says which blocks of the unfinished writes can't be read any more.
    pub fn crash_with(
        self,
        mut keep: impl FnMut(usize, usize) -> bool,
        mut unreadable: impl FnMut(usize, usize) -> bool,
    ) -> (Disk, InMemoryMap) {
        let mut disk = self.disk;
        for (index, (_, offset, bytes)) in std::mem::take(&mut disk.waiting).into_iter().enumerate() {
            for (sector, part) in bytes.chunks(512).enumerate() {
                if keep(index, sector) {
                    disk.write(offset + sector as u64 * 512, part);
                }
            }
            let blocks = (0..bytes.len() / BLOCK_SIZE).filter(|block| unreadable(index, *block));
            disk.unreadable.extend(blocks.map(|block| offset as usize / BLOCK_SIZE + block));
        }
        (disk, self.map)
    }
}

pub fn flatten(extents: &[Extent], count: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for extent in extents {
        match extent {
            Extent::Data { bytes, checksums } => {
                assert_eq!(bytes.len(), checksums.len() * BLOCK_SIZE);
                check_keys(bytes, checksums);
                out.extend_from_slice(bytes);
            }
            Extent::Zero { count } => out.resize(out.len() + usize::from(*count) * BLOCK_SIZE, 0),
        }
    }
    assert_eq!(out.len(), usize::from(count) * BLOCK_SIZE);
    out
}

/// A range of blocks.
pub fn blocks(layer: u64, chunk: u32, first: u16, count: u16) -> BlockRange {
    BlockRange { layer: LayerId(layer), chunk: ChunkIndex(chunk), first: BlockIndex(first), count }
}

/// A body of `count` blocks that all hold `value`, and say under which key they are: that of the value's last bits.
pub fn filled(value: u64, count: u16) -> Body {
    let Body::Data { bytes, .. } = filled_plain(value, count) else { panic!("it is data") };
    let key = KeyGeneration::of_bits(value as u16);
    let mut buf = azekura_base::PageBuf::new(bytes.len());
    buf.copy_from_slice(&bytes);
    for block in buf.chunks_exact_mut(BLOCK_SIZE) {
        block[BLOCK_SIZE - 8..].copy_from_slice(&(KEY_MARK | u64::from(key.number())).to_le_bytes());
    }
    Body::data(buf.freeze()).under(key)
}

/// A block as it was read, under the key that it says.
pub fn held(bytes: &[u8]) -> Body {
    let last = u64::from_le_bytes(bytes[BLOCK_SIZE - 8..].try_into().unwrap());
    let key = if last & !0xff == KEY_MARK { last as u16 } else { 0 };
    Body::data(azekura_base::copy_to_pages(bytes)).under(KeyGeneration::of_bits(key))
}

/// In the last word of a block that says under which key it is, in its lowest bits.
const KEY_MARK: u64 = 0x6b65_7920_6f66_2000;

/// Blocks that say under which key they are have come with that, wherever they have been.
fn check_keys(bytes: &[u8], checksums: &Checksums) {
    for block in bytes.chunks_exact(BLOCK_SIZE) {
        let last = u64::from_le_bytes(block[BLOCK_SIZE - 8..].try_into().unwrap());
        if last & !0xff == KEY_MARK {
            assert_eq!(u64::from(checksums.key().number()), last & 0xff, "a block has come with another key");
        }
    }
}

/// The same, under the first key, and without a word of it.
pub fn filled_plain(value: u64, count: u16) -> Body {
    let mut buf = azekura_base::PageBuf::new(usize::from(count) * BLOCK_SIZE);
    for (block, bytes) in (0u64..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&(value.wrapping_mul(0x9e37_79b9) + block).to_le_bytes());
        }
    }
    Body::data(buf.freeze())
}

pub fn bytes_of(body: &Body, count: u16) -> Vec<u8> {
    match body {
        Body::Data { bytes, .. } => bytes.to_vec(),
        Body::Zero => vec![0; usize::from(count) * BLOCK_SIZE],
        Body::Lost { .. } => panic!("nobody knows"),
    }
}

pub type Contents = BTreeMap<(u64, u32, u16), Vec<u8>>;

pub fn epoch(value: u64) -> Epoch {
    Epoch(value)
}

pub fn sequence(value: u64) -> Sequence {
    Sequence(value)
}
