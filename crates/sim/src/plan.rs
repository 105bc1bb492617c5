//! What a run does: how large, with which faults.

use crate::kernel::random::Random;
use azekura_node::ReadLimits;
use azekura_replica::{AckRule, SESSIONS_MAX, WindowLimits};
use azekura_store::Options;
use std::num::NonZeroU8;
use std::time::Duration;

/// Which faults happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// None.
    Calm,
    /// Connections break; links and disks are slow at times.
    Connections,
    /// As `connections`, and nodes crash and restart, one by one and all at once.
    Crash,
    /// Bits of stored blocks flip, and leaves of the saved map are damaged, on one device.
    Flips,
    /// Links are cut one way and both, single nodes and halves are isolated, with and without the configuration store,
    /// for moments and for longer than leases.
    Partitions,
    /// Processes stand still for moments and for longer than leases.
    Stalls,
    /// Devices hang and crawl, one at a time, and nothing else happens: every operation ends in time.
    Hangs,
    /// As `partitions`, and all the time attachments of the volume are ended by force.
    Attachments,
    /// As `partitions`, and all the time two hosts put each other out of the volume by reservations.
    Reservations,
    /// As `all`, and all the time snapshots of two volumes are made, cloned, read and deleted.
    Snapshots,
    /// Devices are wiped, refuse, lie, are drained, removed and added; and nodes crash, and links and disks are slow.
    Devices,
    /// One client does everything that there is to do with volumes, one operation at a time, and a model knows what
    /// each must hold; with no faults, with crashes or with all, as the seed has it.
    Fsx,
    /// One class has its only copy on a node that is away for the middle of the run; another has none there.
    Lost,
    /// The links of one node are narrower than the load, while connections break and nodes crash.
    Slow,
    /// Nodes prove keys, which are changed, taken away and lied about; and connections break and nodes crash.
    Keys,
    /// Everything but decay and snapshots.
    All,
}

impl Mode {
    /// Faults last for seconds, so clients must take their time.
    fn is_long(self) -> bool {
        matches!(
            self,
            Mode::Partitions
                | Mode::Stalls
                | Mode::Hangs
                | Mode::Attachments
                | Mode::Reservations
                | Mode::Snapshots
                | Mode::Devices
                | Mode::Keys
                | Mode::All
        )
    }

    /// Links are cut.
    pub(crate) fn has_partitions(self) -> bool {
        matches!(
            self,
            Mode::Partitions | Mode::Attachments | Mode::Reservations | Mode::Snapshots | Mode::Devices | Mode::All
        )
    }

    /// Classes may demand a number of copies: clients can bear it that writes fail when there are too few for long.
    fn may_demand_copies(self) -> bool {
        !matches!(self, Mode::Snapshots | Mode::Reservations | Mode::Fsx | Mode::Flips | Mode::Hangs)
    }
}

/// A part of the simulated world that does not keep its promises, to see that the checkers notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lie {
    /// Disks lose writes at a crash that they had called durable.
    LosingDisk,
    /// Stores are told that a write is durable when it has only been started.
    EarlyDurable,
    /// The network answers a `Prepare` before the secondary has it on its disk.
    EarlyPrepareOk,
    /// The network delivers some client writes once more, later, as if they were new.
    DoubledWrites,
    /// One node's clock runs at a third of its speed: it takes its leases for longer than they are.
    SlowClock,
    /// Processes that were paused with their clocks do not notice it: they take their leases for what they were before.
    UnnoticedPause,
    /// The network empties the writes that a copy is sent while it is brought up to date.
    NoLiveWrites,
    /// The network leaves blocks out when a copy says which of them differ.
    SkippedChanges,
    /// Writes that go from node to node are taken for those of an attachment that nobody has ended.
    NoFence,
    /// The network answers a `Fence` in the place of the primary, which never hears of it.
    UnheardFence,
    /// Reservations are confirmed without a look at who heeds them.
    UnaskedNodes,
    /// Front ends say that they heed reservations while writes from before are under way.
    #[cfg(feature = "sabotage")]
    HastyHeeding,
    /// What hosts write is let in at each node that they come through.
    #[cfg(feature = "sabotage")]
    EveryPathWrites,
    /// What was asked of a session's unit goes on after its connection was closed.
    #[cfg(feature = "sabotage")]
    LostGoesOn,
    /// Writes wait until their unit is open.
    #[cfg(feature = "sabotage")]
    WaitingWrites,
    /// Blocks get another key, and the former one goes, without a look at who may still write under that.
    HastyRekeying,
    /// A pass through a volume takes the answer for the pass before, which was for another key or another head.
    #[cfg(feature = "sabotage")]
    StaleAnswers,
    /// The network answers a `Freeze` in the place of the primary, which never hears of it: some groups go on before
    /// all have stopped.
    UnheardFreeze,
    /// The network loses what nodes tell each other of layers.
    UnheardLayers,
    /// A device that was wiped comes back empty under its old number, as if it held what it held.
    EmptyDevice,
    /// Drained devices are taken away before their groups have other copies.
    HastyRemoval,
    /// One node takes the head after a revert for one that lies on the head before it.
    HeadAfterRevert,
    /// Layers that are to be merged into their only child are dropped.
    DroppingMerge,
    /// A configuration that was restored from an older backup is believed.
    OlderConfiguration,
    /// A clone lies on the head of the source instead of its snapshot.
    CloneOfHead,
    /// Front ends do not hear that volumes are gone.
    UnheardDeletions,
    /// Clients that open a volume which is attached already do not count as its users.
    #[cfg(feature = "sabotage")]
    UncountedClients,
    /// Groups remember the writes of one gateway, and forget those of the others.
    #[cfg(feature = "sabotage")]
    ForgottenSessions,
    /// Groups forget the writes of nodes that have left the cluster, and still take what comes of those nodes.
    #[cfg(feature = "sabotage")]
    UnfencedNodes,
    /// A new primary forgets what was prepared before it.
    #[cfg(feature = "sabotage")]
    ForgottenTail,
    /// A new primary begins its reign without having heard as many copies as its ack rule needs.
    #[cfg(feature = "sabotage")]
    HastyClaim,
    /// A copy whose device has lost repairs says nothing of it.
    #[cfg(feature = "sabotage")]
    LostRepairs,
    /// A copy that starts has forgotten for whom it has voted, and follows whoever asks first.
    #[cfg(feature = "sabotage")]
    ForgottenVotes,
    /// Primaries order writes to what they compare meanwhile.
    #[cfg(feature = "sabotage")]
    CompareBesideWrites,
    /// Writes are acknowledged on whatever copies there are.
    #[cfg(feature = "sabotage")]
    TooFewCopies,
    /// Under the ack rule `all`, writes are acknowledged when the primary's own copy has them.
    #[cfg(feature = "sabotage")]
    OneForAll,
    /// Nothing bounds what is on its way to copies that nobody waits for.
    #[cfg(feature = "sabotage")]
    NoWindow,
    /// Nodes do not notice that a device hangs, until it is out of service.
    #[cfg(feature = "sabotage")]
    UnnoticedHang,
    /// Primaries do not notice that a copy is slow.
    #[cfg(feature = "sabotage")]
    UnnoticedSlowness,
    /// Gateways forget the writes that they have given up, and shards of a process know nothing of each other's.
    #[cfg(feature = "sabotage")]
    ForgottenErrors,
    /// A gateway has one window for its writes to all groups.
    #[cfg(feature = "sabotage")]
    SharedWindow,
    /// Heartbeats wait behind data.
    HeartbeatsBehindData,
    /// Nodes do not look whose keys they are that are proved to them.
    #[cfg(feature = "sabotage")]
    IgnoredKeys,
    /// Connections stay when their keys are taken away.
    #[cfg(feature = "sabotage")]
    KeptKeys,
}

/// How many shards a node's process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// So many.
    Each(NonZeroU8),
    /// Each process has its own number, this one at most: a later process of a node perhaps another.
    UpTo(NonZeroU8),
}

impl Shards {
    /// One, as all runs had before there were shards.
    pub const ONE: Shards = Shards::Each(NonZeroU8::MIN);

    /// What `seed` draws: one, or up to 2, 3 or 4.
    #[must_use]
    pub fn draw(seed: u64) -> Shards {
        let more = Random::new(seed ^ 0x7061_7274).below(u64::from(SHARDS_MAX)) as u8;
        Shards::UpTo(NonZeroU8::MIN.saturating_add(more))
    }

    /// The most that a process has.
    pub(crate) fn most(self) -> u8 {
        match self {
            Shards::Each(count) | Shards::UpTo(count) => count.get(),
        }
    }
}

/// A run's size and faults.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What happens.
    pub mode: Mode,
    /// The mode whose faults happen.
    pub faults: Mode,
    /// What lies, if anything.
    pub lie: Option<Lie>,
    /// Nodes.
    pub nodes: u32,
    /// Devices on each node.
    pub devices_per_node: u32,
    /// Shards of each node.
    pub shards: Shards,
    /// Shards of one process hand each other messages by value; else they are peers on the network.
    pub joined: bool,
    /// Every start of a node enters its record, of which all others hear, as in the product. Fresh seeds have it so,
    /// and others not, so that they mean what they always meant.
    pub registered_starts: bool,
    /// Copies of each placement group, on different nodes.
    pub copies: u32,
    /// When writes are acknowledged.
    pub ack: AckRule,
    /// Copies without which nothing is acknowledged.
    pub copies_min: u32,
    /// Placement groups.
    pub groups: u32,
    /// Chunks of the volume.
    pub chunks: u32,
    /// Clients.
    pub clients: u32,
    /// Operations that clients start before the run ends.
    pub operations: u64,
    /// Most time between two operations of a client, in milliseconds.
    pub pause_ms_max: u64,
    /// Devices are lost, refuse, lie, are drained and replaced.
    pub devices_fail: bool,
    /// Devices that fail also call single writes done that they lose.
    pub writes_lost: bool,
    /// How many of the faults, in percent, are made for one interleaving, where one is known.
    pub directed_percent: u64,
    /// Operations that a device's disk works on at a time; the others wait in its queue.
    pub disk_depth: usize,
    /// How many reads of clients a node lets a device's store work on at a time.
    pub reads: ReadLimits,
    /// The configuration is restored from older backups. Not together with failing devices.
    pub goes_back: bool,
    /// How long requests wait for a group that does not serve them, before they fail; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// Some writes that gateways send arrive once more, seconds later: behind what other shards of the same process
    /// have sent meanwhile.
    pub writes_linger: bool,
    /// The clients' volume gets limits, other ones and none, while they use it.
    pub limits_change: bool,
    /// Some writes expect to find what their client has seen last. Fresh seeds draw it.
    pub compares: bool,
    /// Devices hang and crawl.
    pub devices_hang: bool,
    /// All volumes are encrypted, and their data key is rotated all the time.
    pub rekeys: bool,
    /// The logs of new devices are initialised while they are in use, and data may have to wait for that.
    pub new_logs: bool,
    /// What each connection of one node carries in each direction, in bytes a second.
    pub narrow: Option<u64>,
    /// Gateways whose committed writes each group remembers, at most.
    pub sessions_max: usize,
    /// Nodes without devices come and go for good, one more at a time than groups remember. Only where devices do not
    /// fail.
    pub guests: bool,
    /// How much may be on its way to a node that no write waits for.
    pub windows: WindowLimits,
    /// Shards hang up when nothing has needed a connection for so long: little, so that it happens often.
    pub link_idle: Duration,
    /// Print every step.
    pub trace: bool,
}

/// How many seeds, in percent, change the limits of the clients' volume.
const LIMITS_PERCENT: u64 = 10;

impl Plan {
    /// The plan that `seed` draws for a mode.
    #[must_use]
    pub fn draw(mode: Mode, seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x706c_616e);
        let nodes = random.between(3, 4) as u32;
        let guests = may_have_guests(mode) && Random::new(seed ^ 0x6775_6573).chance(GUESTS_PERCENT);
        let mut crowd = Random::new(seed ^ 0x6372_6f77);
        let plan = Plan {
            mode,
            faults: match (mode, Random::new(seed ^ 0x6673_7800).below(10)) {
                (Mode::Fsx, 0..2) => Mode::Calm,
                (Mode::Fsx, 2..5) => Mode::Crash,
                (Mode::Fsx | Mode::Snapshots, _) => Mode::All,
                (Mode::Slow, _) => Mode::Crash,
                (mode, _) => mode,
            },
            lie: None,
            nodes,
            devices_per_node: random.between(1, 2) as u32,
            shards: Shards::ONE,
            joined: true,
            registered_starts: mode == Mode::Keys,
            copies: if random.chance(70) { 2 } else { 3 },
            ack: AckRule::All,
            copies_min: if mode.may_demand_copies() && Random::new(seed ^ 0x6d69_6e00).chance(35) { 2 } else { 1 },
            groups: random.between(2, 4) as u32,
            chunks: 4,
            clients: random.between(2, 6) as u32,
            operations: match mode {
                Mode::Fsx => 800,
                Mode::Slow => 3000,
                _ => 1000,
            },
            pause_ms_max: match mode {
                Mode::Lost => 500,
                Mode::Slow => 10,
                mode if mode.is_long() => 1000,
                _ => 40,
            },
            devices_fail: matches!(mode, Mode::Devices | Mode::All),
            writes_lost: false,
            directed_percent: 10,
            disk_depth: usize::try_from(crowd.between(2, 8)).unwrap_or(2),
            reads: ReadLimits {
                reads_max: crowd.between(1, 8) as usize,
                blocks_max: crowd.between(1, 64) as usize,
                waiting_max: crowd.between(0, 16) as usize,
            },
            goes_back: false,
            io_timeout: draw_io_timeout(mode, seed),
            writes_linger: false,
            limits_change: Random::new(seed ^ 0x6c69_6d74).chance(LIMITS_PERCENT),
            compares: false,
            new_logs: Random::new(seed ^ 0x6e65_776c).chance(NEW_LOGS_PERCENT),
            rekeys: false,
            devices_hang: matches!(mode, Mode::Hangs | Mode::Stalls | Mode::Devices | Mode::All),
            narrow: (mode == Mode::Slow).then(|| draw_bandwidth(&mut Random::new(seed ^ 0x6e61_7272))),
            windows: match mode {
                Mode::Slow => WindowLimits { window_bytes: 256 << 10, lag_bytes_max: 512 << 10 },
                _ => WindowLimits::default(),
            },
            link_idle: Random::new(seed ^ 0x6964_6c65).spread_millis(100, 10_000),
            sessions_max: SESSIONS_MAX,
            guests: false,
            trace: false,
        };
        if guests { plan.with_guests() } else { plan }
    }

    /// The same with guests, and groups that remember few gateways.
    #[must_use]
    pub fn with_guests(self) -> Plan {
        Plan {
            sessions_max: GUESTS_SESSIONS,
            guests: true,
            pause_ms_max: self.pause_ms_max.max(GUESTS_PAUSE_MS),
            ..self
        }
    }

    /// Guests come and go, unless nodes' devices or the whole configuration do.
    pub(crate) fn has_guests(&self) -> bool {
        self.guests && !self.devices_fail && !self.goes_back && !self.rekeys
    }

    /// So many gateways are remembered by each group: as many as there are, where no guest waits for a place.
    pub(crate) fn sessions_limit(&self) -> usize {
        if self.has_guests() { self.sessions_max } else { SESSIONS_MAX }
    }

    /// The same with an ack rule, and as many copies as make it differ from the others.
    #[must_use]
    pub fn with_rule(self, ack: AckRule) -> Plan {
        let copies = match ack {
            AckRule::All => self.copies,
            AckRule::Majority => 3,
            AckRule::EachSite => self.nodes,
        };
        Plan { ack, copies, ..self }
    }

    /// The same with other shards, and devices for all of them but one. With one shard it stays as it is.
    #[must_use]
    pub fn with_shards(self, shards: Shards) -> Plan {
        if shards.most() == 1 {
            return Plan { shards, ..self };
        }
        // A shard is a gateway, and a machine alone may have as many as groups remember where guests come.
        let (guests, sessions_max) = (false, SESSIONS_MAX);
        Plan {
            shards,
            guests,
            sessions_max,
            devices_per_node: self.devices_per_node.max(u32::from(shards.most() - 1)),
            ..self
        }
    }

    /// A store's options: a small device with small limits, so that everything in it happens often.
    pub(crate) fn store_options(&self, random: &mut Random) -> Options {
        // Snapshots keep what is overwritten.
        let times = match self.mode {
            Mode::Snapshots => random.between(2, 4) as u32,
            Mode::Fsx => random.between(1, 3) as u32,
            _ => 1,
        };
        Options {
            segments: random.between(20, 32) as u32 * times,
            segment_blocks: 64,
            batch_blocks_max: random.between(4, 16) as u32,
            batch_records_max: random.between(1, 16) as u32,
            batches_in_flight_max: random.between(1, 4) as u32,
            leaf_cache_bytes_max: random.between(16, 256) as usize * 1024,
            read_cache_bytes_max: random.between(0, 1) as usize * random.between(16, 256) as usize * 1024,
            cleaning_reserve_percent: random.between(10, 25) as u32,
            cleaning_blocks_in_flight_max: random.between(8, 64) as u32,
            // Of every read of two blocks and more that are no neighbours.
            gathered_read_blocks_min: 2,
            gathering_blocks_max: 64,
            replay_bytes_max: random.between(128, 1024) * 1024,
            checkpoint_leaves_max: random.between(1, 8) as usize,
            checkpoint_bytes_max: 12 << 20,
            flush: true,
        }
    }
}

fn may_have_guests(mode: Mode) -> bool {
    matches!(mode, Mode::Connections | Mode::Crash | Mode::Partitions)
}

/// In so many runs, logs are initialised while they are in use.
const NEW_LOGS_PERCENT: u64 = 20;
/// In so many runs of the modes where they may, guests come and go.
const GUESTS_PERCENT: u64 = 20;
/// Groups remember so many gateways where they do.
const GUESTS_SESSIONS: usize = 3;
/// And clients take their time there, so that some come and go: milliseconds.
const GUESTS_PAUSE_MS: u64 = 300;

/// In some runs requests fail when they have waited for long.
fn draw_io_timeout(mode: Mode, seed: u64) -> Option<Duration> {
    let mut random = Random::new(seed ^ 0x7469_6d65);
    let fails = matches!(
        mode,
        Mode::Crash | Mode::Partitions | Mode::Stalls | Mode::Attachments | Mode::Reservations | Mode::All
    );
    (fails && random.chance(40)).then(|| random.spread_millis(1000, 15_000))
}

/// One node's links carry less than clients write, and sometimes so little that its copies are slow by any measure.
fn draw_bandwidth(random: &mut Random) -> u64 {
    if random.chance(50) { random.between(2_000_000, 6_000_000) } else { random.between(300_000, 1_000_000) }
}

/// The most shards that a seed draws.
const SHARDS_MAX: u8 = 4;
/// Most bytes on their way on one narrow connection: the windows of a run, what clients have under way, and what takes
/// the same way beside that.
pub(crate) const LINK_BYTES_MAX: usize = 4 << 20;
/// Blocks that one write carries at most: what a record may hold on the small segments used here.
pub(crate) const WRITE_BLOCKS_MAX: u64 = 16;
/// Operations of one client that are under way at once, at most.
pub(crate) const CLIENT_DEPTH_MAX: usize = 4;
/// While one device hangs and all else is well, an operation ends within this time (invariant 10; docs/decisions/0021).
pub(crate) const OPERATION_MAX: Duration = Duration::from_secs(5);
/// For so long everybody may wait for a device that is slow before it is left behind (docs/decisions/0021).
pub(crate) const SLOW_MAX: Duration = Duration::from_secs(10);
/// The workload ends after this time, even if not all operations could be started.
pub(crate) const WORKLOAD_MAX: Duration = Duration::from_secs(900);
/// Without faults and with all nodes up, everything must be done within this time (invariant 10 asks for less; the
/// slowest links and disks of a run are slower than those it speaks of).
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(60);
