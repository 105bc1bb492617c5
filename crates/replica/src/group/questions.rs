//! What a group knows of itself, for those who drive it and for people.

use super::{Group, Role};
use crate::action::Client;
use crate::config::GroupConfig;
use crate::finding::ScrubReport;
use crate::primary::Primary;
use crate::repair::ResyncProgress;
use crate::state::GroupState;
use azekura_base::{DeviceId, Epoch, PgId, Sequence};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

impl Group {
    /// The group's name.
    #[must_use]
    pub fn id(&self) -> PgId {
        self.cx.pg
    }

    /// The device that holds this copy.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.cx.me
    }

    /// The configuration that this copy knows.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.cx.config
    }

    /// What this copy knows and has under way as primary; `None` while it is a secondary.
    fn primary(&self) -> Option<&Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            Role::Secondary(_) => None,
        }
    }

    /// The epoch that this copy has entered: on a primary, the one that it reigns in.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.primary().map_or(self.cx.epochs.recorded(), Primary::epoch)
    }

    /// Everything up to here is committed.
    #[must_use]
    pub fn committed(&self) -> Sequence {
        self.cx.tail.committed()
    }

    /// Everything up to here is durable on this copy's device.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        self.cx.durable
    }

    /// The last write that this copy has acknowledged to a gateway since the process began.
    #[must_use]
    pub fn acknowledged(&self) -> Sequence {
        self.cx.acknowledged()
    }

    /// Of how many gateways it is remembered which writes are committed.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.cx.sessions.count()
    }

    /// The last prepared place.
    #[must_use]
    pub fn prepared(&self) -> Sequence {
        self.cx.tail.end()
    }

    /// Every in-sync copy holds everything up to here, for heartbeats to tell.
    #[must_use]
    pub fn low_watermark(&self) -> Sequence {
        self.cx.low_watermark()
    }

    /// True while this copy is primary and has opened its epoch.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.primary().is_some_and(Primary::is_open)
    }

    /// True while this copy is, or gathers what it needs to be, primary of an epoch that the configuration names.
    #[must_use]
    pub fn acts_as_primary(&self) -> bool {
        self.primary().is_some()
    }

    /// True while this copy answers readers as primary.
    #[must_use]
    pub fn is_serving(&self, now: Duration) -> bool {
        self.primary().is_some_and(|primary| primary.may_serve(&self.cx, now))
    }

    /// True while this copy has proposed to reign, or to begin its reign, and has not heard whether it may.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        match &self.role {
            Role::Primary(primary) => primary.is_gathering(),
            Role::Secondary(secondary) => secondary.is_claiming(),
        }
    }

    /// True when this copy has everything that was committed before the configuration that it knows: it is in sync, and
    /// part of an epoch that was opened in this life of it. Before that its primary may still send it what its disk has
    /// lost of an earlier life, and had called durable.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let entered = match &self.role {
            Role::Primary(primary) => primary.is_open(),
            Role::Secondary(secondary) => {
                let completeness = &self.cx.completeness;
                secondary.has_entered(&self.cx) && !completeness.is_learning() && !completeness.is_unproven()
            }
        };
        entered && self.cx.is_in_sync()
    }

    /// The group's condition at time `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> GroupState {
        match &self.role {
            Role::Primary(primary) => primary.state(&self.cx, now),
            Role::Secondary(secondary) => secondary.state(&self.cx, now),
        }
    }

    /// Bytes for the store to keep with a checkpoint: they come back as [`crate::Recovered::note`].
    #[must_use]
    pub fn note(&self) -> Bytes {
        self.cx.sessions.to_note()
    }

    /// Writes that were ordered since the last call, by who sent them.
    pub fn take_writers(&mut self) -> BTreeMap<Client, u32> {
        self.as_primary(|primary, _| primary.take_writers()).unwrap_or_default()
    }

    /// The secondaries that a heartbeat must reach, if this copy is primary, and whether they may answer readers by
    /// themselves: only those that commits wait for and the configuration names (0010, reads), and only while this copy
    /// may, since another primary could reign beside this one otherwise.
    pub fn followers(&self, now: Duration) -> impl Iterator<Item = (DeviceId, bool)> + '_ {
        self.primary().into_iter().flat_map(move |primary| primary.followers(&self.cx, now))
    }

    /// Copies that could be brought up to date now, or are.
    pub fn learners(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.primary().into_iter().flat_map(|primary| primary.learners(&self.cx))
    }

    /// How far the copies are that are being brought up to date.
    pub fn resyncs(&self) -> impl Iterator<Item = (DeviceId, ResyncProgress)> + '_ {
        self.primary().into_iter().flat_map(Primary::resyncs)
    }

    /// How far a scrub has come.
    #[must_use]
    pub fn scrubbing(&self) -> Option<ScrubReport> {
        self.primary()?.scrubbing()
    }

    /// This copy is primary, and brings copies up to date or scrubs.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.primary().is_some_and(Primary::has_background)
    }

    /// Bytes that the background has moved since the last call; less than nothing, when too many had been counted
    /// before.
    pub fn take_background_use(&mut self) -> i64 {
        self.cx.allowance.take_use()
    }

    /// This copy is primary, and writes of clients have their place in the order and no answer yet.
    #[must_use]
    pub fn keeps_writes_waiting(&self) -> bool {
        self.primary().is_some() && self.cx.tail.committed() < self.cx.tail.end()
    }

    /// Gives the times that writes have taken here since the last call, from their place in the order to their answer.
    pub fn drain_write_times(&mut self) -> impl Iterator<Item = Duration> + '_ {
        self.cx.drain_write_times()
    }
}
