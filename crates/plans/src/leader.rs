//! The leader of the control plane: what it does next.

use std::time::Duration;

use azekura_model::Model;

use crate::cuts::Seen;
use crate::followers::Followers;
use crate::homes::{self, Absences, Move};
use crate::plan::Plan;
use crate::protection::Protector;
use crate::{layers, restored};

/// A moment, on two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On a clock that nobody sets, from whenever it began.
    pub elapsed: Duration,
    /// Seconds since 1970.
    pub unix_seconds: u64,
}

/// What one node that leads has seen so far, and what it makes of the configuration.
///
/// # How it is driven
///
/// Whoever leads makes one, and drops it with the lead. When the configuration has changed, or [`Leader::next`] is due,
/// it asks [`Leader::step`] for a [`Round`], begins the snapshots in it (and tells [`Leader::made`] when one is there,
/// or could not be made), and takes the plans in their order, each as one transaction. Of plans with one subject, those
/// behind one that has failed are left out, and [`Leader::look_again`] sees to it that they come again.
/// `azekura-control` does so on a configuration server, the simulator in memory.
///
/// # Its states
///
/// It has none for what is to be done: that is in the configuration, and a step reads it anew each time. So a round may
/// stop anywhere, and a plan that was overtaken changes nothing. What it keeps is since when it has seen something, and
/// what it has begun:
///
/// ```text
///   a node stays away         ──► away since …      ──► lost: its copies get new homes
///   a volume is used elsewhere ──► elsewhere since … ──► its home follows it
///   a cut is begun            ──► open since …      ──► nobody finishes it: called off
///   a snapshot is due         ──► being made        ──► made; or failed, and due again later
/// ```
///
/// A new leader begins anew, so that what is counted from when it was seen is done later then, never sooner.
///
/// # What that costs
///
/// A step goes through the whole model: all groups for their homes, all layers, all volumes. Snapshots are gone through
/// when they have changed, or when one of them ends. That happens when something has changed, on one node of the
/// cluster, a few times a second at the most.
#[derive(Debug, Default)]
pub struct Leader {
    absences: Absences,
    followers: Followers,
    cuts: Seen,
    protector: Protector,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Protected volumes whose snapshots are due: this takes the volumes' groups, not the configuration alone.
    /// [`Leader::made`] is to be told of each.
    pub snapshots: Vec<String>,
    /// Changes of the configuration, in this order.
    pub plans: Vec<Plan>,
}

impl Leader {
    /// What is to be done now, by a model that may be older than the configuration.
    pub fn step(&mut self, model: &Model, now: Moment) -> Round {
        let snapshots = self.protector.due(model, now.unix_seconds);
        let cuts = self.cuts.step(model, now.elapsed).into_iter().map(Plan::CallOff);
        let over = self.protector.over(model, now.unix_seconds).into_iter();
        let over = over.map(|(volume, name)| Plan::DeleteSnapshot(volume, name));
        let layers = layers::step(model).into_iter().map(Plan::Layer);
        let removal = model.removal_steps().into_iter().map(Plan::Removal);
        let own = self.followers.step(model, now).into_iter().map(Plan::Own);
        let homes = self.absences.step(model, now.elapsed).into_iter().map(Plan::Move);
        let plans = cuts.chain(over).chain(restored::step(model)).chain(layers).chain(removal).chain(own).chain(homes);
        Round { snapshots, plans: plans.collect() }
    }

    /// When something will be due although nothing has changed, on the clock of [`Moment::elapsed`].
    #[must_use]
    pub fn next(&self, model: &Model, now: Moment) -> Option<Duration> {
        let in_seconds = |at: u64| now.elapsed + Duration::from_secs(at.saturating_sub(now.unix_seconds));
        let absence = self.absences.next(homes::patience(model), now.elapsed);
        [absence, self.followers.next(), self.cuts.next(), self.protector.next().map(in_seconds)]
            .into_iter()
            .flatten()
            .min()
    }

    /// The groups whose members are to change, by what was seen before. None: all copies are where they should be, or
    /// on their way.
    #[must_use]
    pub fn moves(&self, model: &Model, now: Moment) -> Vec<Move> {
        self.absences.moves(model, now.elapsed)
    }

    /// A protected volume's snapshot is made, or could not be.
    pub fn made(&mut self, volume: &str, failed: bool, unix_seconds: u64) {
        self.protector.made(volume, failed, unix_seconds);
    }

    /// Not all that was planned could be done.
    pub fn look_again(&mut self) {
        self.protector.look_again();
    }
}
