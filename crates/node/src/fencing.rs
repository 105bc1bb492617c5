//! Telling every group of a volume that attachments have ended, or that its head is frozen, and waiting until all have
//! confirmed it.

use crate::fences::Attachments;
use azekura_base::{Endpoint, LayerId, PgId, RequestId, VolumeId};
use azekura_replica::Client;
use azekura_wire::{FenceDone, Freeze};
use std::collections::BTreeMap;
use std::time::Duration;

mod steps;

/// A group's primary that has been asked.
struct Question {
    request: RequestId,
    of: Endpoint,
    at: Duration,
}

/// What groups are told.
enum Announcement {
    /// These attachments stand; all others up to that generation have ended.
    Fence(Attachments),
    /// The head layer is frozen since that revision.
    Freeze(LayerId, u64),
}

/// One wish.
struct Run {
    volume: VolumeId,
    what: Announcement,
    /// Groups that have not confirmed.
    left: BTreeMap<PgId, Option<Question>>,
    until: Duration,
}

/// All wishes of this node.
#[derive(Default)]
pub(crate) struct Fencing {
    runs: BTreeMap<u64, Run>,
    /// Which wish and group a question was for.
    questions: BTreeMap<RequestId, (u64, PgId)>,
    asked: u64,
    next: Duration,
    /// Freezes of revisions that are not known here yet.
    early_freezes: Vec<(Client, Freeze)>,
}

impl Fencing {
    /// When there is something to do, if there is.
    pub(crate) fn next(&self) -> Option<Duration> {
        (!self.runs.is_empty()).then_some(self.next)
    }

    /// Groups that have not confirmed.
    pub(crate) fn groups_to_ask(&self) -> impl Iterator<Item = PgId> + '_ {
        self.runs.values().flat_map(|run| run.left.keys().copied())
    }

    /// Shards that have been asked and have not answered.
    pub(crate) fn asked(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.runs.values().flat_map(|run| run.left.values().flatten().map(|asked| asked.of))
    }

    /// Somebody may be asked who could not be before.
    pub(crate) fn link_up(&mut self, now: Duration) {
        self.next = now;
    }

    /// What was asked of a shard is lost.
    pub(crate) fn link_down(&mut self, peer: Endpoint) {
        for asked in self.runs.values_mut().flat_map(|run| run.left.values_mut()) {
            if asked.as_ref().is_some_and(|asked| asked.of == peer) {
                *asked = None;
            }
        }
    }

    fn done(&mut self, done: &FenceDone) {
        let Some((token, pg)) = self.questions.remove(&done.request) else { return };
        let Some(run) = self.runs.get_mut(&token) else { return };
        if done.result.is_ok() {
            run.left.remove(&pg);
        } else if let Some(asked) = run.left.get_mut(&pg)
            && asked.as_ref().is_some_and(|asked| asked.request == done.request)
        {
            *asked = None;
        }
    }
}
