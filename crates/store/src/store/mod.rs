//! The store's interface: it passes calls and the ends of effects on to its parts.

mod chunks;
mod ends;
mod groups;
mod inside;
mod layers;
mod map_silence;
mod opening;

use crate::checkpoint::{CheckpointBatch, CheckpointRoot, Checkpointer, Position, Root, SegmentRow};
use crate::cx::{LogEnd, StoreCx};
use crate::effect::{Completion, Done, Effect, Failure, IoId, OpenError};
use crate::engine::{Engine, Op};
use crate::log::LogWriter;
use crate::log::format::Superblock;
use crate::options::{Identity, Initialisation, Options};
use crate::record::Record;
use crate::recovery::Recovery;
use crate::report::Report;
use crate::segments::Segments;
use azekura_base::{BlockRange, PgId, Sequence};
use bytes::Bytes;
use map_silence::MapSilence;
use std::time::Duration;

/// When less than this share of the capacity is left, no write waits for its leaf.
const TIGHT_SHARE: u64 = 32;

/// What formatting writes: the superblock to the device, then the first checkpoint to the saved map.
#[derive(Debug)]
pub struct Format {
    /// Where the superblock goes, in bytes.
    pub offset: u64,
    /// The superblock, page-aligned whole blocks.
    pub pieces: Vec<Bytes>,
    /// The first checkpoint.
    pub checkpoint: CheckpointBatch,
}

/// One device's store.
///
/// # How it is driven
///
/// A store never blocks and never does I/O. Calls change its state, and none of them waits: what came of one is a
/// [`Completion`] with the caller's token, of questions and work in the background a [`Report`]. Whoever drives it
/// turns in a circle:
///
/// 1. calls, in any order and number: [`Store::append`], [`Store::commit`], [`Store::read`] and the others;
/// 2. [`Store::pump`], once: the records gathered since become one write, cleaning and jobs go on;
/// 3. [`Store::next_effect`] until there is none: each is begun, the device's on the device, the map's on a thread that
///    may block ([`crate::SavedMap::perform`]);
/// 4. [`Store::next_completion`] and [`Store::next_report`] until there are none;
/// 5. [`Store::done`] for each effect that has ended, in whatever order they end; then again from 1.
///
/// From time to time [`Store::tick`] tells how late it is, and [`Store::begin_checkpoint`] is called when
/// [`Store::checkpoint_due`] says so.
///
/// # Its states
///
/// ```text
///   open ──► recovering ──► running
///                │             │  the device or the saved map fails at a write
///                ▼             ▼
///              failed ◄────────┘
/// ```
///
/// *Recovering*, it reads the log and takes no calls but those named at [`Store::open`]. *Running*, it takes all of
/// them. *Failed*, it ignores what would change it: nothing becomes durable any more; what was read into memory can be
/// read. A device that refuses a read fails that read and nothing else.
///
/// # Its parts
///
/// The *engine* has everything that an operation on the map can touch, and the order of operations. The *log* turns
/// records into batches and says when they are durable. The *checkpointer* saves what has changed, so that replay
/// begins later. *Recovery* is there until the store is open. Each has private state and knows none of those above it:
/// the store hands each the context and the others that it names. See the crate's documentation for a tour.
///
/// # What that costs
///
/// One map of effects under way, which is looked into once for each, and one queue for each chunk whose operations
/// wait. Whoever reads the code follows a write through an effect and its end, not down a stack. What it buys: a
/// simulator decides every order of events and finds every failure again from its seed, and no lock is held anywhere.
#[derive(Debug)]
pub struct Store {
    engine: Engine,
    log: LogWriter,
    checkpointer: Checkpointer,
    /// While it is being opened.
    recovery: Option<Box<Recovery>>,
    map_silence: MapSilence,
}

impl Store {
    /// What has to be written to make a device a store of `identity`. Whatever the device held is lost.
    ///
    /// # Errors
    /// When the options don't fit together.
    pub fn format(options: &Options, identity: &Identity) -> Result<Format, OpenError> {
        if let Some(problem) = options.problem() {
            return Err(OpenError::Options(problem));
        }
        let root = Root {
            identity: *identity,
            incarnation: 0,
            durable: 0,
            position: Position { generation: 1, segment: 0, sequence: 1, previous: 0 },
            groups: Vec::new(),
            jobs: Vec::new(),
        };
        let checkpoint = CheckpointBatch {
            root,
            segments: vec![(0, SegmentRow { generation: 1, live: 0, used: true })],
            leaves: Vec::new(),
            removed: Vec::new(),
            layers: Vec::new(),
            merged_owners: Vec::new(),
            merged_owners_gone: Vec::new(),
        };
        Ok(Format { offset: 0, pieces: vec![Superblock::encode(options, identity)], checkpoint })
    }

    /// Starts to open the device whose last checkpoint is `checkpoint`; [`Completion::Recovered`] ends it. Until then
    /// only [`Store::set_parent`], [`Store::next_effect`], [`Store::done`] and [`Store::next_completion`] may be
    /// called. The parents of all layers must be set before the first effect is done.
    #[must_use]
    pub fn open(options: Options, identity: Identity, checkpoint: CheckpointRoot) -> Store {
        let segments = Segments::new(&options, &checkpoint.segments, &checkpoint.layers);
        let log = LogEnd::new(checkpoint.root.incarnation, checkpoint.root.durable);
        let mut store = Store {
            engine: Engine::new(StoreCx::new(options, identity, segments, log), &checkpoint),
            log: LogWriter::default(),
            checkpointer: Checkpointer::default(),
            recovery: Some(Box::new(Recovery::new(&checkpoint))),
            map_silence: MapSilence::default(),
        };
        store.start_opening(checkpoint.root);
        store
    }

    /// Gives `record` to the log. [`Completion::Durable`] with `token` follows when it is on stable storage. A
    /// write must be the next of its group: `sequence` one more than the last, `epoch` the group's. After a failure the
    /// record is ignored. Data is page-aligned in memory, and the caller has verified its checksums.
    ///
    /// # Panics
    /// When the record does not fit the group's state or the chunk: the caller has to have checked.
    pub fn append(&mut self, token: u64, record: impl Into<Record>) {
        assert!(!self.cx().is_recovering(), "nothing can be appended before recovery has ended");
        if self.cx().is_running() {
            let (id, item) = self.engine.prepare(record.into());
            self.log.push(id, Some(token), item);
        }
    }

    /// Makes the prepared writes of `pg` up to `upto` visible to every later read, in order.
    ///
    /// # Panics
    /// When `upto` is beyond what is prepared.
    pub fn commit(&mut self, pg: PgId, upto: Sequence) {
        self.engine.commit(pg, upto);
    }

    /// Reads blocks as committed now. [`Completion::Read`] with `token` follows.
    ///
    /// # Panics
    /// When the blocks are not inside the chunk.
    pub fn read(&mut self, token: u64, pg: PgId, range: BlockRange) {
        assert!(range.is_valid(), "not inside a chunk");
        self.engine.submit((pg, range.chunk), Op::Read { token, pg, range, gathers: false });
    }

    /// As [`Store::read`], for a client, who may want to read this again: blocks of a large read that lie scattered
    /// over the device are put together (decision 0063).
    ///
    /// # Panics
    /// When the blocks are not inside the chunk.
    pub fn serve_read(&mut self, token: u64, pg: PgId, range: BlockRange) {
        assert!(range.is_valid(), "not inside a chunk");
        self.engine.submit((pg, range.chunk), Op::Read { token, pg, range, gathers: true });
    }

    /// Reads the payload of a write that is prepared and not yet applied. [`Completion::Prepared`] follows.
    pub fn read_prepared(&mut self, token: u64, pg: PgId, sequence: Sequence) {
        self.engine.read_prepared(token, pg, sequence);
    }

    /// Asks for leaves of committed writes that wait for theirs; false when none waits. For tests and tools: called
    /// again and again, with effects done and checkpoints saved in between, it brings all of them into the map.
    pub fn settle_map(&mut self) -> bool {
        self.engine.map_mut().settle_before(u64::MAX);
        self.engine.settle();
        let waits = self.engine.map().has_waiting();
        if !waits {
            self.engine.map_mut().settle_before(0);
        }
        waits
    }

    /// Sends what was appended since the last call: to be called once in each turn of the event loop.
    pub fn pump(&mut self) {
        if self.cx().is_running() {
            self.engine.run_jobs();
            self.settle();
            self.engine.clean();
            self.seal_batches();
            self.engine.check_counts();
        }
    }

    fn settle(&mut self) {
        let space = self.space();
        let tight = space.used + space.capacity / TIGHT_SHARE >= space.capacity;
        let is_short = tight || self.checkpointer.is_short(self.cx());
        self.engine.map_mut().space_is_short(is_short);
        self.engine.settle();
    }

    fn seal_batches(&mut self) {
        self.log.seal_batches(&mut self.engine.sealing(self.checkpointer.is_saving()));
    }

    /// Tells the time since some fixed moment, also to a store that is being opened. What has become due is done in the
    /// next [`Store::pump`].
    pub fn tick(&mut self, now: Duration) {
        let passed = self.engine.cx_mut().tick(now);
        self.engine.retry_leaves();
        self.engine.retry_listings();
        self.map_silence.tick(passed);
        self.checkpointer.retry(self.engine.cx_mut());
    }

    /// How long the saved map has done nothing of what it was asked for, as far as [`Store::tick`] was told of that
    /// time. It does one thing after the other, and some of that takes long.
    #[must_use]
    pub fn map_silence(&self) -> Duration {
        self.map_silence.length()
    }

    /// It is time for [`Store::begin_checkpoint`].
    #[must_use]
    pub fn checkpoint_due(&self) -> bool {
        self.checkpointer.is_due(self.cx(), self.engine.map(), self.engine.groups(), self.engine.jobs())
    }

    /// Saves a part of what has changed; [`Completion::Checkpointed`] follows. `note` may give a new note to keep with
    /// a group. Does nothing while a checkpoint is in progress.
    pub fn begin_checkpoint(&mut self, note: impl FnMut(PgId) -> Option<Bytes>) {
        if self.cx().is_running() && !self.checkpointer.is_saving() {
            let leaves_max = self.cx().options().checkpoint_leaves_max;
            self.checkpointer.begin(self.engine.sources(), leaves_max, note);
        }
    }

    /// There was no room for a checkpoint: the checkpoint is tried again, at [`Store::tick`].
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.checkpointer.waits_for_room()
    }

    /// Segments from `segments` on are not initialised on the device yet, and are not written to; the others follow, or
    /// not. All are taken to be initialised until this is called.
    pub fn segments_ready(&mut self, segments: u32, others: Initialisation) {
        self.engine.cx_mut().segments_mut().set_ready(segments, others);
    }

    /// The next thing to do, if there is one.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.engine.ask_for_leaves();
        let effect = self.engine.cx_mut().next_effect()?;
        if !matches!(effect, Effect::Write { .. } | Effect::Read { .. } | Effect::Flush { .. }) {
            self.map_silence.asked();
        }
        Some(effect)
    }

    /// Tells how an effect ended.
    ///
    /// # Panics
    /// When there is no such effect, or `done` is the end of another kind.
    pub fn done(&mut self, io: IoId, done: Done) {
        let what = self.engine.cx_mut().take_io(io);
        if !matches!(done, Done::Written(_) | Done::Read(_) | Done::Flushed(_)) {
            self.map_silence.done();
        }
        let failure = done.map_failure().cloned();
        self.ended(io, what, done);
        if let Some(error) = failure {
            self.engine.cx_mut().fail(Failure::Map(error));
        }
        self.engine.check_counts();
    }

    /// The next thing that came of the calls, if there is one.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.engine.cx_mut().next_completion()
    }

    /// The next thing that came of questions and of work in the background, if there is one.
    pub fn next_report(&mut self) -> Option<Report> {
        self.engine.cx_mut().next_report()
    }

    /// The options that the store was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        self.cx().options()
    }

    fn cx(&self) -> &StoreCx {
        self.engine.cx()
    }

    /// For tests of what can't be seen from outside.
    #[cfg(test)]
    pub(crate) fn parts(&mut self) -> (&mut Engine, &mut LogWriter) {
        (&mut self.engine, &mut self.log)
    }
}
