//! A simulated device: a disk, and the saved map beside it.

use crate::kernel::disk::{Answer, Disk, Failed, Request};
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use azekura_base::{ChunkIndex, IoClass, IoQueue, LayerId, NodeId};
use azekura_store::{
    DeviceError, Done, Effect, Identity, InMemoryMap, Initialisation, IoId, MapDamage, MapError, Options, Rebuild,
    RebuildSettings, SavedMap, Store,
};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The most that a write takes on a device that crawls.
const CRAWL_MAX: Duration = Duration::from_secs(3);
/// Transactions that a lying device's saved map may lose.
const DENIED_TRANSACTIONS: usize = 3;

/// How far a device can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Honesty {
    /// What it calls durable is.
    Honest,
    /// It may lie at a power loss when a fault asks for that.
    Doubtful,
    /// It lies at every power loss.
    Liar,
}

/// Until when a device refuses what it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) reads_until: Duration,
    pub(crate) writes_until: Duration,
    /// Its saved map does nothing.
    pub(crate) map_hangs_until: Duration,
    /// Its saved map has no room.
    pub(crate) map_full_until: Duration,
}

impl Refusal {
    /// It refuses something.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        now < self.end()
    }

    /// When it is over.
    pub(crate) fn end(&self) -> Duration {
        self.reads_until.max(self.writes_until).max(self.map_hangs_until).max(self.map_full_until)
    }
}

/// The time that a write takes on a device that crawls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Crawl {
    /// Longer than the copies on the device may be silent.
    #[default]
    Seconds,
    /// Shorter than that, and many times longer than anywhere else.
    Tenths,
}

impl Crawl {
    fn latency(self, random: &mut Random) -> Duration {
        let longest = CRAWL_MAX.as_micros() as u64;
        match self {
            Crawl::Seconds => random.micros(1_000_000, longest),
            Crawl::Tenths => random.micros(250_000, 900_000),
        }
    }
}

/// Until when a device keeps silent about what it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    pub(crate) reads_until: Duration,
    pub(crate) writes_until: Duration,
    /// Each write takes long until then.
    pub(crate) crawls_until: Duration,
    pub(crate) crawl: Crawl,
}

impl Silence {
    /// It keeps silent about something, or is about to.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        now < self.reads_until.max(self.writes_until).max(self.crawls_until)
    }
}

/// Segments of a new log that are initialised before the device opens.
const FIRST_SEGMENTS: u32 = 8;

/// A device. It outlives the processes that use it.
pub(crate) struct Device {
    pub(crate) node: NodeId,
    identity: Identity,
    options: Options,
    /// Segments of the log that are initialised.
    initialised: u32,
    pub(crate) disk: Disk,
    map: InMemoryMap,
    /// What the map was asked for, oldest first: it does one thing after the other, but for leaves that are looked up.
    map_queue: VecDeque<Effect>,
    /// A lookup that is done, and whose answer comes behind that of the next thing which is.
    looked_up: Option<(IoId, Done)>,
    /// Draws what becomes of checkpoints that fail, and how much of a leaf is damaged.
    map_random: Random,
    /// What the disk was asked for, and how long that takes once it is begun.
    queue: IoQueue<(IoId, Duration)>,
    random: Random,
    /// Everything takes this many times as long until then.
    pub(crate) slow: (u32, Duration),
    pub(crate) refuses: Refusal,
    pub(crate) silent: Silence,
    /// Its node lets nobody wait for it: it has kept silent, and must have worked for a while before its copies come
    /// back (docs/decisions/0021).
    pub(crate) avoided: bool,
    /// What it keeps silent about.
    held: Vec<(Life, IoId)>,
    /// The life whose map keeps silent.
    held_map: Option<Life>,
    /// Writes that it was asked for while it crawled, and that have not ended: each still takes seconds.
    crawling: BTreeSet<IoId>,
    /// When the last of them ended, or its map will have.
    crawled_until: Duration,
    /// It has refused something since a process last opened it.
    pub(crate) hurt: bool,
    /// It has lied, and may be damaged.
    pub(crate) lied: bool,
    /// Of a damaged leaf it is not known how many blocks it owned: its store goes on counting them.
    pub(crate) uncounted: bool,
    /// It has called writes done, and lost them.
    pub(crate) lost_writes: bool,
    honesty: Honesty,
    /// At the next power loss it loses writes that it has called durable.
    pub(crate) lies: bool,
    /// The saved map before each of its latest transactions, oldest first, where the device may lie.
    maps: VecDeque<InMemoryMap>,
    /// It is taken away when its node's process ends.
    pub(crate) retired: bool,
}

impl Device {
    /// A formatted device.
    ///
    /// # Errors
    /// When the options don't fit together.
    pub(crate) fn format(
        identity: Identity,
        node: NodeId,
        options: Options,
        random: Random,
        honesty: Honesty,
        depth: usize,
    ) -> Result<Device, String> {
        let format = Store::format(&options, &identity).map_err(|error| error.to_string())?;
        let mut disk = Disk::new(options.device_bytes(), honesty != Honesty::Honest);
        let mut random = random;
        disk.start(
            IoId(0),
            Request::Write { offset: format.offset, bytes: format.pieces.concat().into(), durable: true },
        );
        disk.finish(IoId(0), &mut random);
        let mut map = InMemoryMap::new();
        map.checkpoint(format.checkpoint).map_err(|error| error.to_string())?;
        Ok(Device {
            node,
            identity,
            initialised: options.segments,
            options,
            disk,
            map,
            map_queue: VecDeque::new(),
            looked_up: None,
            map_random: random.clone().fork(),
            queue: IoQueue::new(depth, depth - 1),
            random,
            slow: (1, Duration::ZERO),
            refuses: Refusal::default(),
            silent: Silence::default(),
            avoided: false,
            held: Vec::new(),
            held_map: None,
            crawling: BTreeSet::new(),
            crawled_until: Duration::ZERO,
            hurt: false,
            lied: false,
            uncounted: false,
            lost_writes: false,
            honesty,
            lies: false,
            maps: VecDeque::new(),
            retired: false,
        })
    }

    /// The device's store, as a process opens it.
    ///
    /// # Errors
    /// When the map can't be read.
    pub(crate) fn open(&self) -> Result<Store, String> {
        let root = self.map.root().map_err(|error| error.to_string())?.ok_or("there is no checkpoint")?;
        let mut store = Store::open(self.options.clone(), self.identity, root);
        store.segments_ready(self.initialised, Initialisation::GoesOn);
        Ok(store)
    }

    /// The same device with a log that is initialised while it is in use.
    pub(crate) fn with_new_log(mut self) -> Device {
        self.initialised = FIRST_SEGMENTS.min(self.options.segments);
        self
    }

    /// One more segment is initialised, if one is left. Gives how many are.
    pub(crate) fn initialise_segment(&mut self) -> Option<u32> {
        let left = self.initialised < self.options.segments;
        self.initialised += u32::from(left);
        left.then_some(self.initialised)
    }

    /// What is saved of the map.
    pub(crate) fn saved_map(&self) -> &InMemoryMap {
        &self.map
    }

    /// Power fails. A checkpoint that was being saved is there or not; one behind it only if it is.
    pub(crate) fn crash(&mut self) {
        let forgets = std::mem::take(&mut self.lies);
        self.held.clear();
        self.held_map = None;
        self.looked_up = None;
        self.avoided = false;
        self.crawling.clear();
        // Whoever opens it next may find out.
        self.hurt |= self.lost_writes;
        self.queue.clear();
        self.disk.crash(forgets || self.honesty == Honesty::Liar, &mut self.random);
        for effect in std::mem::take(&mut self.map_queue) {
            if self.random.chance(50) {
                break;
            }
            drop(self.perform(effect));
        }
        let mut maps = std::mem::take(&mut self.maps);
        if forgets {
            (self.hurt, self.lied) = (true, true);
            for _ in 0..self.random.below(maps.len() as u64 + 1) {
                if let Some(before) = maps.pop_back() {
                    self.map = before;
                }
            }
        }
    }

    /// The saved map does what it was asked; `None` when it was asked for something that is no map's.
    fn perform(&mut self, effect: Effect) -> Option<(IoId, Done)> {
        if self.honesty == Honesty::Doubtful && matches!(effect, Effect::Checkpoint { .. }) {
            self.maps.push_back(self.map.clone());
            if self.maps.len() > DENIED_TRANSACTIONS {
                self.maps.pop_front();
            }
        }
        self.map.perform(effect).ok()
    }

    /// The device's disk has finished something, or refuses it.
    fn finish(&mut self, io: IoId, now: Duration) -> Option<Done> {
        let until = if self.disk.is_read(io) { self.refuses.reads_until } else { self.refuses.writes_until };
        if now < until {
            self.hurt = true;
            let error = || DeviceError("Input/output error".into());
            return Some(match self.disk.fail(io, &mut self.random)? {
                Failed::Write => Done::Written(Err(error())),
                Failed::Read => Done::Read(Err(error())),
                Failed::Flush => Done::Flushed(Err(error())),
            });
        }
        Some(match self.disk.finish(io, &mut self.random)? {
            Answer::Written => Done::Written(Ok(())),
            Answer::Read(bytes) => Done::Read(Ok(bytes)),
            Answer::Unreadable => Done::Read(Err(DeviceError("Medium error".into()))),
            Answer::Flushed => Done::Flushed(Ok(())),
        })
    }

    /// The saved map has finished something, or refuses it.
    fn finish_map(&mut self, effect: Effect, now: Duration) -> Option<(IoId, Done)> {
        let error = || "Input/output error".to_owned();
        let is_checkpoint = matches!(effect, Effect::Checkpoint { .. });
        // A checkpoint reads as well. What it could not write is not tried again, and may be there all the same: a
        // flush that fails says nothing of what was written before.
        if is_checkpoint && now < self.refuses.writes_until {
            self.hurt = true;
            let failed = effect.map_error(MapError::Failed(error()));
            if self.map_random.chance(50) {
                drop(self.perform(effect));
            }
            return failed;
        }
        if is_checkpoint && now < self.refuses.map_full_until {
            self.hurt = true;
            return effect.map_error(MapError::Full("No space left on device".to_owned()));
        }
        if now < self.refuses.reads_until {
            self.hurt = true;
            return effect.map_error(MapError::Refused(error()));
        }
        self.perform(effect)
    }

    /// The saved map is made anew, from the log alone.
    ///
    /// # Errors
    /// When the log does not do for that.
    pub(crate) fn rebuild_map(&mut self, settings: RebuildSettings) -> Result<(), String> {
        let settings = RebuildSettings { segments_ready: self.initialised, ..settings };
        let mut rebuild = Rebuild::new(&self.disk, &settings, &mut |_, _, _| {}).map_err(|error| error.to_string())?;
        let mut map = InMemoryMap::new();
        rebuild.save(&mut map, &mut |_, _, _| {}).map_err(|error| error.to_string())?;
        self.map = map;
        self.maps.clear();
        Ok(())
    }

    /// Copies on it do not count before they have been compared with others, or did not at the last checkpoint.
    pub(crate) fn is_unproven(&self) -> bool {
        self.map.root().ok().flatten().is_some_and(|root| root.root.groups.iter().any(|group| group.unproven))
    }

    /// A leaf of the saved map is damaged, and sometimes what the index says of it; false when there is none.
    pub(crate) fn damage_a_leaf(&mut self, random: &mut Random) -> bool {
        let leaves: Vec<(LayerId, ChunkIndex)> = self.map.leaves().map(|(key, _)| (key.layer, key.chunk)).collect();
        !leaves.is_empty() && {
            let (layer, chunk) = *random.pick(&leaves);
            let damage = if self.map_random.chance(30) { MapDamage::LeafAndIndex } else { MapDamage::Leaf };
            self.uncounted |= damage == MapDamage::LeafAndIndex;
            self.map.damage(layer, chunk, damage)
        }
    }

    /// The page of a leaf of the saved map can't be read any more; false when there is none.
    pub(crate) fn spoil_a_leaf(&mut self, random: &mut Random) -> bool {
        let leaves: Vec<(LayerId, ChunkIndex)> = self.map.leaves().map(|(key, _)| (key.layer, key.chunk)).collect();
        !leaves.is_empty() && {
            let (layer, chunk) = *random.pick(&leaves);
            self.hurt = true;
            self.map.damage(layer, chunk, MapDamage::Unreadable)
        }
    }

    /// A leaf of its saved map can't be read, and has not been saved anew since.
    pub(crate) fn has_unreadable_leaf(&self) -> bool {
        self.map.unreadable().next().is_some()
    }

    /// Until when it crawls, as far as is known: not over while something takes long that it was asked
    /// for before.
    pub(crate) fn crawls_until(&self, now: Duration) -> Duration {
        let under_way = if self.crawling.is_empty() { Duration::ZERO } else { now + CRAWL_MAX };
        self.silent.crawls_until.max(self.crawled_until).max(under_way)
    }

    /// How long it takes for something.
    pub(crate) fn latency(&mut self, now: Duration, effect: &Effect) -> Duration {
        let random = &mut self.random;
        if now < self.silent.crawls_until
            && let Effect::Write { io, .. } | Effect::Checkpoint { io, .. } = effect
        {
            self.hurt = true;
            let latency = self.silent.crawl.latency(random);
            match effect {
                Effect::Write { .. } => drop(self.crawling.insert(*io)),
                _ => self.crawled_until = self.crawled_until.max(now + latency),
            }
            return latency;
        }
        let usual = match effect {
            Effect::Checkpoint { .. } => random.micros(500, 10_000),
            Effect::Flush { .. } => random.micros(200, 3000),
            _ if random.chance(95) => random.micros(20, 300),
            _ => random.micros(300, 10_000),
        };
        if now < self.slow.1 { usual * self.slow.0 } else { usual }
    }

    /// The disk is asked for something, which takes so long once it is begun.
    pub(crate) fn ask_disk(&mut self, io: IoId, request: Request, latency: Duration) {
        let class = if matches!(request, Request::Read { .. }) { IoClass::Read } else { IoClass::Write };
        self.queue.push(class, (io, latency));
        self.disk.start(io, request);
    }

    /// What the disk begins next, and how long that takes; `None` while it has enough to do.
    pub(crate) fn begin(&mut self) -> Option<(IoId, Duration)> {
        self.queue.start()
    }

    /// The disk has finished something of a life.
    pub(crate) fn disk_finishes(&mut self, io: IoId, life: Life, now: Duration) -> DiskEnd {
        let is_read = self.disk.is_read(io);
        if now < if is_read { self.silent.reads_until } else { self.silent.writes_until } {
            self.hurt = true;
            self.held.push((life, io));
            return DiskEnd::Silence;
        }
        if self.crawling.remove(&io) {
            self.crawled_until = self.crawled_until.max(now);
        }
        self.queue.ended(if is_read { IoClass::Read } else { IoClass::Write });
        DiskEnd::Answer(self.finish(io, now))
    }

    /// The saved map is asked for something. True when it has nothing else to do.
    pub(crate) fn ask_map(&mut self, effect: Effect) -> bool {
        self.map_queue.push_back(effect);
        self.map_queue.len() == 1
    }

    /// The saved map has finished the oldest thing that it was asked.
    pub(crate) fn map_finishes(&mut self, life: Life, now: Duration) -> MapEnd {
        let is_write = matches!(self.map_queue.front(), Some(Effect::Checkpoint { .. }));
        if now < if is_write { self.silent.writes_until } else { self.silent.reads_until } {
            self.hurt = true;
            self.held_map = Some(life);
            return MapEnd::Silence;
        }
        if now < self.refuses.map_hangs_until {
            return MapEnd::HangsUntil(self.refuses.map_hangs_until);
        }
        let Some(effect) = self.take_from_map_queue() else { return MapEnd::Silence };
        // Another thread does lookups, and may be late with its answer.
        let passes = matches!(effect, Effect::LoadMergedOwners { .. })
            && self.map_queue.iter().any(|effect| matches!(effect, Effect::Checkpoint { .. }));
        let done = self.finish_map(effect, now);
        let mut answers: Vec<(IoId, Done)> = Vec::new();
        if passes && self.looked_up.is_none() && self.map_random.chance(50) {
            self.looked_up = done;
        } else {
            answers.extend(done.into_iter().chain(self.looked_up.take()));
        }
        let next = self.map_queue.pop_front().map(|next| {
            let latency = self.latency(now, &next);
            self.map_queue.push_front(next);
            latency
        });
        MapEnd::Answer { answers, next }
    }

    /// What the map does next: the oldest thing, or a lookup beside that.
    fn take_from_map_queue(&mut self) -> Option<Effect> {
        let lookup = self.map_queue.iter().position(Effect::is_lookup);
        match lookup.filter(|lookup| *lookup > 0) {
            Some(lookup) if self.map_random.chance(50) => self.map_queue.remove(lookup),
            _ => self.map_queue.pop_front(),
        }
    }

    /// It may answer again: what it has kept silent about, each in its own time, and the life whose map goes on. `None`
    /// while it keeps silent.
    pub(crate) fn speak_again(&mut self, now: Duration) -> Option<(Vec<LateAnswer>, Option<Life>)> {
        if self.silent.is_on(now) {
            return None;
        }
        let held = std::mem::take(&mut self.held).into_iter();
        let random = &mut self.random;
        let answers = held.map(|(life, io)| (now + random.micros(20, 300), life, io)).collect();
        Some((answers, self.held_map.take()))
    }
}

/// When a disk answers what it has kept silent about: what a life had asked for.
pub(crate) type LateAnswer = (Duration, Life, IoId);

/// What comes of something that a disk was asked for.
pub(crate) enum DiskEnd {
    /// Nothing, for now.
    Silence,
    /// This; `None` when it was not asked for that any more.
    Answer(Option<Done>),
}

/// What comes of something that a saved map was asked for.
pub(crate) enum MapEnd {
    /// Nothing, for now.
    Silence,
    /// Nothing before then.
    HangsUntil(Duration),
    /// This; and what it was asked for next takes so long.
    Answer { answers: Vec<(IoId, Done)>, next: Option<Duration> },
}
