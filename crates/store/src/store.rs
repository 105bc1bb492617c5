//! The store's interface, and what its parts share.

use crate::checkpoint::{
    CheckpointBatch, CheckpointRoot, Checkpointer, Position, Root, SegmentRow, Sources, replay_bytes,
};
use crate::cleaner::Cleaner;
use crate::copies::Copies;
use crate::cx::{Io, LogEnd, StoreCx};
use crate::damage::{Damage, Watchdog};
use crate::differences::Comparing;
use crate::effect::{Completion, Done, Effect, Failure, IoId, MapError, OpenError};
use crate::format::{EntryHead, Superblock};
use crate::groups::Groups;
use crate::hash::FixedMap;
use crate::heirs::Heirs;
use crate::jobs::{Job, Jobs};
use crate::layers::Layers;
use crate::leaf::LeafKey;
use crate::leaf_cache::LeafCache;
use crate::log::{Item, LogWriter};
use crate::measuring::Measurement;
use crate::ops::{LEAVES_PER_LOAD_MAX, Op};
use crate::options::{Identity, Options};
use crate::questions::ChangedQuery;
use crate::read_cache::ReadCache;
use crate::reads::PendingRead;
use crate::record::GroupState;
use crate::recovery::Recovery;
use crate::report::Report;
use crate::segments::Segments;
use crate::statistics::{Space, Statistics};
use azekura_base::{
    BlockRange, ChunkIndex, CompareLayers, LayerId, MeasureLayer, PgId, Prepared, RequestId, Sequence, SessionId,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

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
/// It never blocks and never does I/O: calls change its state, [`Store::next_effect`] says what is to be done,
/// [`Store::done`] tells it the result, and [`Store::next_completion`] says what came of the calls. Whoever drives it
/// calls [`Store::pump`] once after each round of calls: the records gathered since become one write.
///
/// Its price is one map of pending effects and one queue for each chunk that waits; its gain is that a simulator can
/// decide every order of events. See the crate's documentation for a tour.
#[derive(Debug)]
pub struct Store {
    pub(crate) cx: StoreCx,
    /// While it is being opened.
    pub(crate) recovery: Option<Box<Recovery>>,
    /// See [`Options::promised_blocks`].
    pub(crate) promised_blocks: u32,
    pub(crate) groups: Groups,
    pub(crate) layers: Layers,
    pub(crate) dropped: BTreeSet<LayerId>,
    pub(crate) jobs: Jobs,
    pub(crate) heirs: Heirs,
    pub(crate) measurements: BTreeMap<u64, Measurement>,
    pub(crate) comparisons: BTreeMap<u64, Comparing>,
    pub(crate) log: LogWriter,
    pub(crate) cache: LeafCache,
    /// Leaves to ask for with the next effects.
    pub(crate) loads_wanted: Vec<LeafKey>,
    /// Operations that wait, by chunk.
    pub(crate) ops: FixedMap<(PgId, ChunkIndex), VecDeque<Op>>,
    /// Chunks whose first operation waits for its record to be durable.
    pub(crate) blocked: Vec<(PgId, ChunkIndex)>,
    pub(crate) copies: Copies,
    pub(crate) reads: FixedMap<u64, PendingRead>,
    pub(crate) next_read: u64,
    pub(crate) read_cache: ReadCache,
    pub(crate) cleaner: Cleaner,
    pub(crate) damage: Damage,
    pub(crate) watchdog: Watchdog,
    pub(crate) checkpointer: Checkpointer,
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
            heirs: Vec::new(),
            heirs_gone: Vec::new(),
        };
        Ok(Format { offset: 0, pieces: vec![Superblock::encode(options, identity)], checkpoint })
    }

    /// Starts to open the device whose last checkpoint is `checkpoint`; [`Completion::Recovered`] ends it. Until then
    /// only [`Store::set_parent`], [`Store::next_effect`], [`Store::done`] and [`Store::next_completion`] may be
    /// called. The parents of all layers must be set before the first effect is done.
    #[must_use]
    pub fn open(options: Options, identity: Identity, checkpoint: CheckpointRoot) -> Store {
        let segments = Segments::new(&options, &checkpoint.segments);
        let log = LogEnd::new(checkpoint.root.incarnation, checkpoint.root.durable);
        let mut store = Store {
            recovery: Some(Box::new(Recovery::new(&checkpoint))),
            promised_blocks: options.promised_blocks(),
            groups: Groups::default(),
            layers: Layers::new(&checkpoint.layers),
            dropped: BTreeSet::new(),
            jobs: Jobs::restored(&checkpoint.root.jobs),
            heirs: Heirs::default(),
            measurements: BTreeMap::new(),
            comparisons: BTreeMap::new(),
            log: LogWriter::default(),
            cache: LeafCache::new(options.leaf_cache_bytes_max),
            loads_wanted: Vec::new(),
            ops: FixedMap::default(),
            blocked: Vec::new(),
            copies: Copies::default(),
            reads: FixedMap::default(),
            next_read: 0,
            read_cache: ReadCache::new(options.read_cache_bytes_max),
            cleaner: Cleaner::default(),
            damage: Damage::new(&checkpoint.damaged),
            watchdog: Watchdog::default(),
            checkpointer: Checkpointer::default(),
            cx: StoreCx::new(options, identity, segments, log),
        };
        for row in checkpoint.root.groups {
            let pg = row.pg;
            let group = store.groups.get_mut(pg);
            (group.epoch, group.epoch_durable) = (row.epoch, row.epoch);
            group.committed_saved = row.committed;
            group.incomplete = row.complete;
            group.note = row.note;
            group.note_version = row.note_version;
            group.replayed_requests = row.requests;
            for row in row.pending {
                store.restore_pending(pg, row);
            }
        }
        // What segments count beyond what the layers own.
        let owned: u64 = checkpoint.layers.iter().map(|(_, blocks)| blocks).sum();
        store.cx.segments_mut().ghosts = store.cx.segments().live().saturating_sub(owned);
        for job in checkpoint.root.jobs {
            match job {
                Job::DropLayer(layer) => {
                    store.dropped.insert(layer);
                }
                Job::ForgetGroup(pg) => {
                    let group = store.groups.get_mut(pg);
                    (group.forgetting, group.forgotten) = (true, true);
                }
                Job::MergeLayer { .. } => {}
            }
        }
        if let Some(problem) = store.cx.options().problem() {
            store.cx.fail_open(OpenError::Options(problem));
        } else if checkpoint.root.identity != *store.cx.identity() {
            store.cx.fail_open(OpenError::Identity("the map belongs to another device or cluster".into()));
        } else {
            store.start_recovery();
        }
        store
    }

    /// Who asked for the writes of `pg` that openings have found committed since [`Store::note`] was given: of each
    /// session those that lie less than [`REPLAYED_REQUESTS_MAX`] below its highest.
    pub fn replayed_requests(&self, pg: PgId) -> impl Iterator<Item = (SessionId, RequestId)> + '_ {
        self.groups.get(pg).into_iter().flat_map(|group| group.replayed_requests.iter())
    }

    /// Keeps `note`, of at most 1 KiB, for `pg` in place of the last one. [`Completion::Durable`] with `token` follows.
    ///
    /// # Panics
    /// When the note is longer.
    pub fn set_note(&mut self, token: u64, pg: PgId, note: Bytes) {
        assert!(note.len() <= EntryHead::NOTE_BYTES_MAX, "a note of {} bytes", note.len());
        if !self.cx.is_running() {
            return;
        }
        let group = self.groups.get_mut(pg);
        group.take_note(note.clone());
        let item = Item::Note { pg, version: group.note_version, note };
        let id = self.cx.new_id();
        self.log.push(id, Some(token), item);
    }

    /// The note kept for `pg`; empty when there is none.
    #[must_use]
    pub fn note(&self, pg: PgId) -> Bytes {
        self.groups.get(pg).map(|group| group.note.clone()).unwrap_or_default()
    }

    /// Reads blocks as committed now. [`Completion::Read`] with `token` follows.
    ///
    /// # Panics
    /// When the blocks are not inside the chunk.
    pub fn read(&mut self, token: u64, pg: PgId, range: BlockRange) {
        assert!(range.is_valid(), "not inside a chunk");
        self.submit((pg, range.chunk), Op::Read { token, pg, range });
    }

    /// Reads the payload of a write that is prepared and not yet applied. [`Completion::Prepared`] follows.
    pub fn read_prepared(&mut self, token: u64, pg: PgId, sequence: Sequence) {
        self.start_read_prepared(token, pg, sequence);
    }

    /// Says which blocks of a chunk take space. [`Completion::Status`] follows.
    pub fn status(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex) {
        self.submit((pg, chunk), Op::Status { token, pg, layer, chunk });
    }

    /// Lists the chunks of `pg` that committed writes after `after` touched. [`Completion::Modified`] follows.
    pub fn modified_since(&mut self, token: u64, pg: PgId, after: Sequence) {
        let io = self.cx.new_io(Io::Modified { token, pg, after });
        let from = (LayerId(0), ChunkIndex(0));
        self.cx.ask(Effect::ScanModified { io, pg, after, from, limit: usize::MAX });
        if after == Sequence::ZERO {
            // Who wants to know of everything can rely on the list only if the map has all that it should have.
            let io = self.cx.new_io(Io::Totals(pg));
            self.cx.ask(Effect::CompareTotals { io, pg });
        }
    }

    /// The prepared, uncommitted writes of `pg`, in order.
    pub fn prepared(&self, pg: PgId) -> impl Iterator<Item = Prepared> + '_ {
        let group = self.groups.get(pg);
        let uncommitted = group.map(|group| {
            let start = group.pending.partition_point(|p| p.info.header.sequence <= group.committed);
            group.pending.range(start..).map(|p| p.info)
        });
        uncommitted.into_iter().flatten()
    }

    /// How far `pg` is.
    #[must_use]
    pub fn group(&self, pg: PgId) -> GroupState {
        self.groups.get(pg).map(|group| group.state()).unwrap_or_default()
    }

    /// All groups that the store has seen, in order.
    pub fn groups(&self) -> impl Iterator<Item = (PgId, GroupState)> + '_ {
        self.groups.iter().map(|(pg, group)| (pg, group.state()))
    }

    /// Lists the chunks of `pg` that committed writes after `after` touched, or with `after` 0 all that it holds, in
    /// order of layer and chunk: at most about `limit`, from `from` on. [`Report::Changed`] follows.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn changed_since(
        &mut self,
        token: u64,
        pg: PgId,
        after: Sequence,
        from: Option<(LayerId, ChunkIndex)>,
        limit: usize,
    ) {
        assert!(limit > 0, "a page of nothing");
        let from = from.unwrap_or((LayerId(0), ChunkIndex(0)));
        let io = self.cx.new_io(Io::Changed(ChangedQuery { token, pg, after, from, limit }));
        self.cx.ask(Effect::ScanModified { io, pg, after, from, limit });
    }

    /// Says what a chunk holds as committed now, as checksums. [`Report::Digest`] follows.
    pub fn digest(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex) {
        self.submit((pg, chunk), Op::Digest { token, key: LeafKey { layer, chunk, pg } });
    }

    /// Gives up everything that this device holds of `pg`. [`Completion::Durable`] with `token` follows at once,
    /// [`Report::Forgotten`] when all of it is gone; until then nothing may be appended for the group, or read of it.
    pub fn forget_group(&mut self, token: u64, pg: PgId) {
        if self.cx.is_running() {
            self.groups.get_mut(pg).forgetting = true;
            self.record_job(token, Job::ForgetGroup(pg));
        }
    }

    /// The group is being given up.
    #[must_use]
    pub fn is_forgetting(&self, pg: PgId) -> bool {
        self.groups.get(pg).is_some_and(|group| group.forgetting)
    }

    /// Tells that `layer` lies on top of `parent`. Must be known before the first record that names `layer`, and again
    /// after each opening. A layer on which another lies is frozen: its last write must be committed before the first
    /// to the layer on top.
    ///
    /// # Panics
    /// When they are the same.
    pub fn set_parent(&mut self, layer: LayerId, parent: LayerId) {
        self.layers.set_parent(layer, Some(parent));
    }

    /// Tells that `layer` lies on top of nothing any more: the layer below has been merged into it and was the last.
    pub fn clear_parent(&mut self, layer: LayerId) {
        self.layers.set_parent(layer, None);
    }

    /// Gives what `layer` holds on this device to `into`, the only layer that lies on top of it, as far as that has not
    /// replaced it. [`Completion::Durable`] with `token` follows at once, [`Report::LayerGone`] when it is done. Until
    /// then the tree of layers must stay as it is at this place, also over a restart; afterwards the parent of
    /// `into` is the parent of `layer`.
    pub fn merge_layer(&mut self, token: u64, layer: LayerId, into: LayerId) {
        if self.cx.is_running() {
            self.record_job(token, Job::MergeLayer { layer, into });
        }
    }

    /// The layer is being merged into its child, or dropped, or is not quite gone yet.
    #[must_use]
    pub fn is_ending(&self, layer: LayerId) -> bool {
        self.jobs.is_merging(layer) || self.dropped.contains(&layer)
    }

    fn record_job(&mut self, token: u64, job: Job) {
        let id = self.cx.new_id();
        self.log.push(id, Some(token), Item::Job { job });
    }

    /// All layers that hold something on this device, and the blocks that each accounts for: together they are all that
    /// is live.
    pub fn layers(&self) -> impl Iterator<Item = (LayerId, u64)> + '_ {
        self.layers.iter()
    }

    /// Finds out how many blocks the end of a layer would give back, a part of its chunks at a time.
    /// [`Report::Measured`] follows; meanwhile everything else goes on, and the figure is as of some time in between
    /// for each chunk.
    pub fn measure_layer(&mut self, token: u64, asked: MeasureLayer) {
        self.start_measurement(token, asked);
    }

    /// Finds out which blocks two layers show differently, a part of the chunks at a time. [`Report::Differences`]
    /// follows; meanwhile everything else goes on. Writes that were committed before are in it, those of meanwhile may
    /// be. It may name blocks that are the same, and leaves out none that differ, as long as neither layer is ending
    /// ([`Store::is_ending`]).
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn compare_layers(&mut self, token: u64, asked: CompareLayers) {
        assert!(asked.limit > 0, "a page of nothing");
        self.start_comparison(token, asked);
    }

    /// Gives up everything that `layer` holds on this device. [`Completion::Durable`] with `token` follows at once,
    /// [`Report::LayerGone`] when the space has come back. No layer may lie on top of it, and nothing may read it
    /// any more; until it is gone, a late write to it is ignored.
    pub fn drop_layer(&mut self, token: u64, layer: LayerId) {
        self.record_job_first(token, Job::DropLayer(layer));
    }

    /// Ahead of all others: writes that wait for space may be waiting for this.
    fn record_job_first(&mut self, token: u64, job: Job) {
        if self.cx.is_running() {
            let id = self.cx.new_id();
            self.log.push_first(id, token, Item::Job { job });
        }
    }

    /// Sends what was appended since the last call: to be called once in each turn of the event loop.
    pub fn pump(&mut self) {
        if self.cx.is_running() {
            self.run_jobs();
            self.clean();
            self.seal_batches();
            self.check_counts();
        }
    }

    /// Tells the time since some fixed moment, also to a store that is being opened. What has become due is done in the
    /// next [`Store::pump`].
    pub fn tick(&mut self, now: Duration) {
        let passed = self.cx.tick(now);
        self.watch_map(passed);
        self.checkpointer.retry(&mut self.cx);
    }

    /// It is time for [`Store::begin_checkpoint`].
    #[must_use]
    pub fn checkpoint_due(&self) -> bool {
        self.checkpointer.is_due(&self.cx, &self.cache, &self.groups, &self.jobs)
    }

    /// Saves a part of what has changed; [`Completion::Checkpointed`] follows. `note` may give a new note to keep with
    /// a group. Does nothing while a checkpoint is in progress.
    pub fn begin_checkpoint(&mut self, note: impl FnMut(PgId) -> Option<Bytes>) {
        if self.cx.is_running() && !self.checkpointer.is_saving() {
            self.start_checkpoint(self.cx.options().checkpoint_leaves_max, note);
        }
    }

    /// There was no room for a checkpoint: it is tried again, at [`Store::tick`].
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.checkpointer.waits_for_room()
    }

    pub(crate) fn start_checkpoint(&mut self, leaves_max: usize, note: impl FnMut(PgId) -> Option<Bytes>) {
        let Store { cx, cache, layers, heirs, damage, groups, jobs, cleaner, .. } = self;
        let from = Sources { cx, cache, layers, heirs, damage, groups, jobs, cleaner };
        self.checkpointer.begin(from, leaves_max, note);
    }

    /// The saved map has, or has not, done the transaction.
    fn checkpoint_saved(&mut self, result: Result<(), MapError>) {
        let Some(saved) = self.checkpointer.on_saved(&mut self.cx, result) else { return };
        self.cache.saved(&saved.leaves);
        self.heirs.saved();
        let freed = self.cx.segments_mut().end_checkpoint(saved.position);
        self.cx.counters().gc_segments += freed.len() as u64;
        self.cx.counters().checkpoints += 1;
        let ops = &self.ops;
        self.cache.evict(|key| ops.contains_key(&(key.pg, key.chunk)));
        self.jobs_saved(&saved.jobs, &saved.over);
        if self.cx.is_running() {
            self.cx.complete(Completion::Checkpointed);
        }
        self.recovery_checkpointed();
    }

    /// Segments from `segments` on are not initialised on the device yet, and are not written to. All are taken to be
    /// until this is called.
    pub fn segments_ready(&mut self, segments: u32) {
        self.cx.segments_mut().set_ready(segments);
    }

    /// The next thing to do, if there is one.
    pub fn next_effect(&mut self) -> Option<Effect> {
        while !self.loads_wanted.is_empty() {
            let rest = self.loads_wanted.split_off(self.loads_wanted.len().min(LEAVES_PER_LOAD_MAX));
            let keys = std::mem::replace(&mut self.loads_wanted, rest);
            self.load_leaves(keys);
        }
        let effect = self.cx.next_effect()?;
        if !matches!(effect, Effect::Write { .. } | Effect::Read { .. } | Effect::Flush { .. }) {
            self.watchdog.asked();
        }
        Some(effect)
    }

    pub(crate) fn load_leaves(&mut self, keys: Vec<LeafKey>) {
        let io = self.cx.new_io(Io::Leaves(keys.clone()));
        self.cx.ask(Effect::LoadLeaves { io, keys });
    }

    /// Tells how an effect ended.
    ///
    /// # Panics
    /// When there is no such effect, or `done` is the end of another kind.
    pub fn done(&mut self, io: IoId, done: Done) {
        let what = self.cx.take_io(io);
        if !matches!(done, Done::Written(_) | Done::Read(_) | Done::Flushed(_)) {
            self.watchdog.done();
        }
        let failure = done.map_failure().cloned();
        self.ended(io, what, done);
        if let Some(error) = failure {
            self.cx.fail(Failure::Map(error));
        }
        self.check_counts();
    }

    fn ended(&mut self, io: IoId, what: Io, done: Done) {
        match (what, done) {
            (Io::Batch, Done::Written(Ok(()))) => {
                if !self.cx.has_failed() {
                    self.batch_written(io);
                    self.seal_batches();
                }
            }
            (Io::Batch, Done::Written(Err(error))) => self.cx.fail(Failure::Device(error)),
            (Io::Fetch(fetch), Done::Read(result)) => self.fetched(fetch, result),
            (Io::Leaves(keys), Done::Leaves(result)) => {
                self.leaves_loaded(&keys, result);
                self.replay_goes_on();
            }
            (Io::Checkpoint, Done::Checkpointed(result)) => {
                self.checkpoint_saved(result);
                self.seal_batches();
            }
            (Io::Recovery, Done::Read(result)) => self.recovery_read(result),
            (Io::Recovery, Done::Flushed(result)) => self.recovery_flushed(result),
            (Io::Job(job), Done::Layer(result)) => self.job_listed(job, result),
            (Io::Job(job), Done::Modified(result)) => {
                self.job_listed(job, result.map(|listed| listed.into_iter().map(|(key, _)| key).collect()));
            }
            (Io::Measure(token), Done::Layer(result)) => self.measure_listed(token, result),
            (Io::Comparison(token), Done::Modified(result)) => self.differences_listed(token, result),
            (Io::Changed(query), Done::Modified(result)) => self.changed_listed(&query, result),
            (Io::Heirs(segment), Done::Heirs(result)) => {
                self.heirs_listed(segment, result);
                self.seal_batches();
            }
            (Io::Modified { token, pg, after }, Done::Modified(result)) => {
                self.modified_listed(token, pg, after, result);
            }
            (Io::Totals(pg), Done::Totals(result)) => {
                if let Ok(Some(what)) = result {
                    self.cx.report(Report::RowsLost { pg, what });
                }
            }
            (Io::Collect, Done::Read(result)) => {
                self.cleaner.on_read(&mut self.cx, &self.jobs, io, result);
                self.seal_batches();
            }
            (what, done) => panic!("{what:?} can't end with {done:?}"),
        }
    }

    /// The next thing that came of the calls, if there is one.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.cx.next_completion()
    }

    /// The next thing that came of questions and of work in the background, if there is one.
    pub fn next_report(&mut self) -> Option<Report> {
        self.cx.next_report()
    }

    /// How full the device is.
    #[must_use]
    pub fn space(&self) -> Space {
        Space::of(self)
    }

    /// Counters and present sizes.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            leaf_hits: self.cache.hits,
            leaf_misses: self.cache.misses,
            leaf_bytes: self.cache.bytes() as u64,
            cache_hits: self.read_cache.hits,
            cache_misses: self.read_cache.misses,
            cache_bytes: self.read_cache.bytes() as u64,
            replay_bytes: replay_bytes(&self.cx),
            batches_in_flight: self.log.batches_in_flight() as u64,
            records_waiting: self.log.queue().len() as u64,
            ..*self.cx.statistics()
        }
    }

    /// The options that the store was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        self.cx.options()
    }
}
