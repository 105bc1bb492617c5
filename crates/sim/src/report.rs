//! What came of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What must hold. The numbers are those of the invariants in ARCHITECTURE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// 1: what is acknowledged is on as many copies as the class demands.
    Acknowledged,
    /// 2 (and by the reads after crashes, 1): what is read is the latest acknowledged write, or a concurrent one.
    Linearizable,
    /// 3: one primary an epoch, one write a place of its order.
    OnePrimary,
    /// A write is applied once, however often it is sent.
    AppliedOnce,
    /// What was written under an attachment that has ended is applied before that is confirmed, or never.
    Fenced,
    /// 5: a snapshot holds what was acknowledged before it was asked for, nothing that was asked for after it was
    /// there, is one that a moment's stop could have left, and never changes.
    Snapshot,
    /// What is read of a volume or a snapshot is what was written to it, whatever was done with it since.
    Model,
    /// 6: a store opens after every crash and keeps what it had called durable.
    StoreKeeps,
    /// 7: a damaged block is never returned as data.
    NoDamagedData,
    /// 9: what the map reaches and what counts as live are equal.
    SpaceExact,
    /// 10: without faults, everything that was begun ends.
    Liveness,
    /// When nothing is under way, all copies hold the same.
    CopiesEqual,
    /// Nodes understand each other, and have nothing to complain about.
    Protocol,
    /// What is on its way is bounded, and heartbeats are not held up by it.
    Bounded,
    /// Nodes talk with who has a key of the node that it says it is, and with nobody else.
    Keys,
    /// An assertion in the code under test.
    Assertion,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invariant::Acknowledged => "invariant 1 (acknowledged on enough copies)",
            Invariant::Linearizable => "invariants 1 and 2 (acknowledged writes are read)",
            Invariant::OnePrimary => "invariant 3 (one primary, one order)",
            Invariant::AppliedOnce => "writes are applied once",
            Invariant::Fenced => "who has lost the volume writes nothing",
            Invariant::Snapshot => "invariant 5 (snapshots are of one moment)",
            Invariant::Model => "what is read is what the model has",
            Invariant::StoreKeeps => "invariant 6 (stores keep what is durable)",
            Invariant::NoDamagedData => "invariant 7 (damaged blocks are not data)",
            Invariant::SpaceExact => "invariant 9 (space is accounted for)",
            Invariant::Liveness => "invariant 10 (everything ends)",
            Invariant::CopiesEqual => "copies are equal",
            Invariant::Protocol => "nodes understand each other",
            Invariant::Bounded => "what is on its way is bounded",
            Invariant::Keys => "nodes talk with none that has not their keys",
            Invariant::Assertion => "an assertion in the code",
        })
    }
}

/// Something that must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What must hold.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
    /// When, in the run's time.
    pub at: Duration,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold at {:.6} s: {}", self.invariant, self.at.as_secs_f64(), self.what)
    }
}

impl std::error::Error for Violation {}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations that clients started, the final reads included.
    pub operations: u64,
    /// Operations that ended well.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Operations that failed because no copy served them for as long as they wait.
    pub timed_out: u64,
    /// Operations whose gateway died.
    pub unknown: u64,
    /// Operations that were refused because their attachment had ended.
    pub fenced: u64,
    /// Times that all groups confirmed to keep ended attachments out.
    pub fences: u64,
    /// Times that they did not in time.
    pub fences_failed: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Starts of processes.
    pub starts: u64,
    /// Warnings of nodes.
    pub warnings: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Bytes that stores wrote to their logs.
    pub log_bytes: u64,
    /// Segments emptied by the cleaner.
    pub cleaned_segments: u64,
    /// Blocks moved by the cleaner.
    pub moved_blocks: u64,
    /// Those of them that went into segments of their own (decision 0036).
    pub moved_apart_blocks: u64,
    /// Those that were put together because somebody read them (decision 0063).
    pub gathered_blocks: u64,
    /// Checkpoints saved.
    pub checkpoints: u64,
    /// Blocks that failed their checksum.
    pub checksum_errors: u64,
    /// Parts of requests that gateways sent again for want of an answer.
    pub asked_again: u64,
    /// Scrubs of groups that ended.
    pub scrubs: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Steps in the trace.
    pub steps: u64,
    /// A hash of all steps: the same for the same seed and plan.
    pub trace_hash: u64,
    /// The run's own time.
    pub virtual_time: Duration,
}

impl Report {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.done += other.done;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.unknown += other.unknown;
        self.fenced += other.fenced;
        self.fences += other.fences;
        self.fences_failed += other.fences_failed;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.starts += other.starts;
        self.warnings += other.warnings;
        self.messages += other.messages;
        self.message_bytes += other.message_bytes;
        self.log_bytes += other.log_bytes;
        self.cleaned_segments += other.cleaned_segments;
        self.moved_blocks += other.moved_blocks;
        self.moved_apart_blocks += other.moved_apart_blocks;
        self.gathered_blocks += other.gathered_blocks;
        self.checkpoints += other.checkpoints;
        self.asked_again += other.asked_again;
        self.scrubs += other.scrubs;
        self.checksum_errors += other.checksum_errors;
        self.events += other.events;
        self.steps += other.steps;
        self.virtual_time += other.virtual_time;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        writeln!(
            f,
            "{} operations in {:.0} s of virtual time: {} done, {} failed, {} timed out, {} fenced, {} of \
             unknown outcome",
            self.operations,
            self.virtual_time.as_secs_f64(),
            self.done,
            self.failed,
            self.timed_out,
            self.fenced,
            self.unknown
        )?;
        writeln!(
            f,
            "{} events, {} messages of {} MiB, {} MiB of log, {} checkpoints, {} segments cleaned, {} blocks moved, {} of them apart, {} for readers",
            self.events,
            self.messages,
            self.message_bytes / MIB,
            self.log_bytes / MIB,
            self.checkpoints,
            self.cleaned_segments,
            self.moved_blocks,
            self.moved_apart_blocks,
            self.gathered_blocks
        )?;
        let faults: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        write!(
            f,
            "{} starts of processes, {} scrubs, {} checksum errors, {} parts asked for again, {} fences confirmed and {} not; \
             faults: {}",
            self.starts,
            self.scrubs,
            self.checksum_errors,
            self.asked_again,
            self.fences,
            self.fences_failed,
            if faults.is_empty() { "none".into() } else { faults.join(", ") }
        )
    }
}
