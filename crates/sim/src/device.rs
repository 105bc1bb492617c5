//! A simulated device: a disk, and the saved map beside it.

use crate::disk::{Answer, Disk, Failed, Request};
use crate::events::{Event, Life};
use crate::plan::Lie;
use crate::random::Random;
use crate::world::World;
use azekura_base::{ChunkIndex, DeviceId, IoClass, IoQueue, LayerId, NodeId};
use azekura_store::{
    DeviceError, Done, Effect, Identity, IoId, MapDamage, MapError, MemoryMap, Options, SavedMap, Store,
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
}

impl Refusal {
    /// It refuses something.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        now < self.end()
    }

    /// When it is over.
    pub(crate) fn end(&self) -> Duration {
        self.reads_until.max(self.writes_until).max(self.map_hangs_until)
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

/// A device. It outlives the processes that use it.
pub(crate) struct Device {
    pub(crate) node: NodeId,
    identity: Identity,
    options: Options,
    pub(crate) disk: Disk,
    map: MemoryMap,
    /// What the map was asked for, oldest first: it does one thing after the other.
    map_queue: VecDeque<Effect>,
    /// What the disk was asked for, and how long that takes once it is begun.
    queue: IoQueue<(IoId, Duration)>,
    random: Random,
    /// Everything takes this many times as long until then.
    pub(crate) slow: (u32, Duration),
    pub(crate) refuses: Refusal,
    pub(crate) silent: Silence,
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
    /// It has called writes done, and lost them.
    pub(crate) lost_writes: bool,
    honesty: Honesty,
    /// At the next power loss it loses writes that it has called durable.
    pub(crate) lies: bool,
    /// The saved map before each of its latest transactions, oldest first, where the device may lie.
    maps: VecDeque<MemoryMap>,
    /// It is taken away when its node's process ends.
    pub(crate) retired: bool,
}

impl Device {
    /// A formatted device.
    ///
    /// # Errors
    /// When the options don't fit together.
    pub(crate) fn format(
        id: DeviceId,
        node: NodeId,
        options: Options,
        random: Random,
        honesty: Honesty,
        depth: usize,
    ) -> Result<Device, String> {
        let identity = Identity { cluster: crate::world::CLUSTER, device: id, instance: u64::from(id.0) + 1000 };
        let format = Store::format(&options, &identity).map_err(|error| error.to_string())?;
        let mut disk = Disk::new(options.device_bytes(), honesty != Honesty::Honest);
        let mut random = random;
        disk.start(
            IoId(0),
            Request::Write { offset: format.offset, bytes: format.pieces.concat().into(), durable: true },
        );
        disk.finish(IoId(0), &mut random);
        let mut map = MemoryMap::new();
        map.checkpoint(format.checkpoint).map_err(|error| error.to_string())?;
        Ok(Device {
            node,
            identity,
            options,
            disk,
            map,
            map_queue: VecDeque::new(),
            queue: IoQueue::new(depth, depth - 1),
            random,
            slow: (1, Duration::ZERO),
            refuses: Refusal::default(),
            silent: Silence::default(),
            held: Vec::new(),
            held_map: None,
            crawling: BTreeSet::new(),
            crawled_until: Duration::ZERO,
            hurt: false,
            lied: false,
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
        Ok(Store::open(self.options.clone(), self.identity, root))
    }

    /// What is saved of the map.
    pub(crate) fn saved_map(&self) -> &MemoryMap {
        &self.map
    }

    /// Power fails. A checkpoint that was being saved is there or not; one behind it only if it is.
    pub(crate) fn crash(&mut self) {
        let forgets = std::mem::take(&mut self.lies);
        self.held.clear();
        self.held_map = None;
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
        // A checkpoint reads as well. What it could not write is not tried again.
        if matches!(effect, Effect::Checkpoint { .. }) && now < self.refuses.writes_until {
            self.hurt = true;
            return effect.map_error(MapError::Failed(error()));
        }
        if now < self.refuses.reads_until {
            self.hurt = true;
            return effect.map_error(MapError::Refused(error()));
        }
        self.perform(effect)
    }

    /// A leaf of the saved map is damaged; false when there is none.
    pub(crate) fn damage_a_leaf(&mut self, random: &mut Random) -> bool {
        let leaves: Vec<(LayerId, ChunkIndex)> = self.map.leaves().map(|(key, _)| (key.layer, key.chunk)).collect();
        !leaves.is_empty() && {
            let (layer, chunk) = *random.pick(&leaves);
            self.map.damage(layer, chunk, MapDamage::Leaf)
        }
    }

    /// Until when it crawls, as far as is known: not over while something takes long that it was asked
    /// for before.
    pub(crate) fn crawls_until(&self, now: Duration) -> Duration {
        let under_way = if self.crawling.is_empty() { Duration::ZERO } else { now + CRAWL_MAX };
        self.silent.crawls_until.max(self.crawled_until).max(under_way)
    }

    fn latency(&mut self, now: Duration, effect: &Effect) -> Duration {
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
}

impl World {
    /// A store asks for something.
    pub(crate) fn device_effect(&mut self, life: Life, id: DeviceId, effect: Effect) {
        let now = self.now;
        let lie = self.plan.lie;
        let Some(device) = self.devices.get_mut(&id) else { return };
        let latency = device.latency(now, &effect);
        let (io, request) = match effect {
            Effect::Write { io, offset, pieces, durable } => {
                let bytes: bytes::Bytes = pieces.concat().into();
                let sum = azekura_base::checksum(&bytes);
                self.trace.step(now, u64::from(sum.0) ^ (offset << 32), || {
                    format!("{id:?} writes {offset}+{} {}", bytes.len(), if durable { "durably" } else { "" })
                });
                (io, Request::Write { offset, bytes, durable })
            }
            Effect::Read { io, offset, len } => {
                self.trace.step(now, offset ^ len as u64, || format!("{id:?} reads {offset}+{len}"));
                (io, Request::Read { offset, len })
            }
            Effect::Flush { io } => (io, Request::Flush),
            effect => {
                self.trace.remark(now, || format!("{id:?} map: {}", describe(&effect)));
                device.map_queue.push_back(effect);
                if device.map_queue.len() == 1 {
                    self.queue.push(now + latency, Event::Map(id, life));
                }
                return;
            }
        };
        let early = lie == Some(Lie::EarlyDurable) && matches!(request, Request::Write { .. });
        device.queue.push(class(&request), (io, latency));
        device.disk.start(io, request);
        self.start_disk(id, life);
        if early {
            self.tell(life, |node| node.store_done(id, io, Done::Written(Ok(()))));
        }
    }

    /// A disk begins what its queue gives it.
    fn start_disk(&mut self, id: DeviceId, life: Life) {
        let Some(device) = self.devices.get_mut(&id) else { return };
        while let Some((io, latency)) = device.queue.start() {
            self.queue.push(self.now + latency, Event::Disk(id, life, io));
        }
    }

    /// A disk has finished something.
    pub(crate) fn disk_done(&mut self, id: DeviceId, life: Life, io: IoId) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let Some(device) = self.devices.get_mut(&id) else { return };
        let is_read = device.disk.is_read(io);
        if self.now < if is_read { device.silent.reads_until } else { device.silent.writes_until } {
            device.hurt = true;
            device.held.push((life, io));
            return;
        }
        if device.crawling.remove(&io) {
            device.crawled_until = device.crawled_until.max(self.now);
        }
        device.queue.ended(if is_read { IoClass::Read } else { IoClass::Write });
        let done = device.finish(io, self.now);
        self.start_disk(id, life);
        let done = match done {
            Some(Done::Written(Ok(()))) if self.plan.lie == Some(Lie::EarlyDurable) => return,
            Some(done) => done,
            None => return,
        };
        self.tell(life, |node| node.store_done(id, io, done));
    }

    /// A device may answer again what it has kept silent about.
    pub(crate) fn device_answers(&mut self, id: DeviceId) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id).filter(|device| !device.silent.is_on(now)) else { return };
        let node = device.node;
        for (life, io) in std::mem::take(&mut device.held) {
            let at = now + device.random.micros(20, 300);
            self.queue.push(at, Event::Disk(id, life, io));
        }
        if let Some(life) = device.held_map.take() {
            self.queue.push(now, Event::Map(id, life));
        }
        self.trace.step(now, u64::from(id.0), || format!("{id:?} answers again"));
        if self.operator.is_out(id) && !self.operator.on {
            self.restart_as_planned(node);
        }
    }

    /// A saved map has finished the oldest thing that it was asked.
    pub(crate) fn map_done(&mut self, id: DeviceId, life: Life) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else { return };
        let is_write = matches!(device.map_queue.front(), Some(Effect::Checkpoint { .. }));
        if now < if is_write { device.silent.writes_until } else { device.silent.reads_until } {
            device.hurt = true;
            device.held_map = Some(life);
            return;
        }
        if now < device.refuses.map_hangs_until {
            self.queue.push(device.refuses.map_hangs_until, Event::Map(id, life));
            return;
        }
        let Some(effect) = device.map_queue.pop_front() else { return };
        let done = device.finish_map(effect, now);
        if let Some(next) = device.map_queue.pop_front() {
            let at = now + device.latency(now, &next);
            device.map_queue.push_front(next);
            self.queue.push(at, Event::Map(id, life));
        }
        if let Some((io, done)) = done {
            self.trace.step(now, io.0, || format!("{id:?} map done"));
            self.tell(life, |node| node.store_done(id, io, done));
        }
    }
}

fn class(request: &Request) -> IoClass {
    if matches!(request, Request::Read { .. }) { IoClass::Read } else { IoClass::Write }
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Checkpoint { batch, .. } => format!("checkpoint of {} leaves", batch.leaves.len()),
        Effect::LoadLeaves { keys, .. } => format!("load {} leaves", keys.len()),
        Effect::ScanLayer { layer, .. } => format!("scan {layer:?}"),
        Effect::ScanModified { pg, .. } => format!("scan {pg:?}"),
        Effect::LoadHeirs { segment, .. } => format!("load heirs of segment {segment}"),
        Effect::CompareTotals { pg, .. } => format!("compare totals of {pg:?}"),
        _ => String::new(),
    }
}
