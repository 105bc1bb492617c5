//! What every part of the store is handed when it is called: the context of the call.
//!
//! It knows nothing of the parts. A part gets the device's geometry and time from it, asks it for effects, tells it
//! what came of calls, and finds here the two things that all parts share: the table of segments, and how far the log
//! is.

mod io;
mod log_end;
mod outbox;

pub(crate) use io::{Io, VictimId};
pub(crate) use log_end::{LogEnd, log_position};

use crate::effect::{Completion, Effect, Failure, IoId, OpenError};
use crate::options::{Identity, Options};
use crate::report::Report;
use crate::segments::Segments;
use crate::statistics::Statistics;
use outbox::Outbox;
use std::time::Duration;

/// Where in its life the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Recovering,
    Running,
    Failed,
}

/// The context of a call. See the module's description.
#[derive(Debug)]
pub(crate) struct StoreCx {
    options: Options,
    identity: Identity,
    phase: Phase,
    now: Duration,
    segments: Segments,
    log: LogEnd,
    outbox: Outbox,
    next_id: u64,
    statistics: Statistics,
}

impl StoreCx {
    /// Of a store that begins to recover, from the log's end as the checkpoint knew it.
    pub fn new(options: Options, identity: Identity, segments: Segments, log: LogEnd) -> StoreCx {
        StoreCx {
            options,
            identity,
            phase: Phase::Recovering,
            now: Duration::ZERO,
            segments,
            log,
            outbox: Outbox::default(),
            next_id: 1,
            statistics: Statistics::default(),
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn now(&self) -> Duration {
        self.now
    }

    /// Time never goes back. Gives how much has passed since the last call.
    pub fn tick(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        passed
    }

    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    pub fn segments_mut(&mut self) -> &mut Segments {
        &mut self.segments
    }

    pub fn log(&self) -> &LogEnd {
        &self.log
    }

    /// For who writes the log, and for replay.
    pub fn log_mut(&mut self) -> &mut LogEnd {
        &mut self.log
    }

    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What is counted since the store was opened.
    pub fn counters(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    pub fn is_recovering(&self) -> bool {
        self.phase == Phase::Recovering
    }

    pub fn has_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Recovery has ended well.
    pub fn start_running(&mut self) {
        self.phase = Phase::Running;
        self.complete(Completion::Recovered(Ok(())));
    }

    /// Recovery has ended badly.
    pub fn fail_open(&mut self, error: OpenError) {
        self.phase = Phase::Failed;
        self.complete(Completion::Recovered(Err(error)));
    }

    /// Stops for good: nothing becomes durable any more.
    pub fn fail(&mut self, failure: Failure) {
        match self.phase {
            Phase::Failed => {}
            Phase::Running => {
                self.phase = Phase::Failed;
                self.complete(Completion::Failed(failure));
            }
            Phase::Recovering => self.fail_open(failure.into()),
        }
    }

    /// A number that names one record of this life of the store.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Names an effect that is to be asked for.
    pub fn new_io(&mut self, what: Io) -> IoId {
        self.outbox.new_io(what)
    }

    /// What the effect with this name was for; it has ended.
    pub fn take_io(&mut self, io: IoId) -> Io {
        self.outbox.take_io(io)
    }

    pub fn ask(&mut self, effect: Effect) {
        self.outbox.effects.push_back(effect);
    }

    pub fn next_effect(&mut self) -> Option<Effect> {
        self.outbox.effects.pop_front()
    }

    pub fn complete(&mut self, completion: Completion) {
        self.outbox.completions.push_back(completion);
    }

    pub fn next_completion(&mut self) -> Option<Completion> {
        self.outbox.completions.pop_front()
    }

    pub fn report(&mut self, report: Report) {
        self.outbox.reports.push_back(report);
    }

    pub fn next_report(&mut self) -> Option<Report> {
        self.outbox.reports.pop_front()
    }
}
