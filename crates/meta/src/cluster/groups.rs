//! Placement groups: made once for a class, changed only by compare-and-swap.

use azekura_base::{DeviceId, PgId};
use azekura_model::transitions::groups::{NewGroup, confirm_copy_forgotten, replace_group};
use azekura_model::transitions::new_groups::{GroupsPlanned, give_groups, plan_groups, planned_groups, write_groups};
use azekura_model::{ClassRecord, GroupRecord, Key, Kind, MetaError, Model, ScrubRecord, Versioned};
use std::sync::Arc;
use tokio::time::Instant;

use super::{Attempt, MetaClient, Try};
use crate::time::unix_seconds;

pub use azekura_model::transitions::new_groups::GROUPS_PER_CLASS_MAX;

/// Groups written by one transaction; etcd takes 128 operations.
const GROUPS_PER_TXN: usize = 100;

/// Outcome of a compare-and-swap.
#[derive(Debug)]
pub enum CasOutcome<T> {
    /// The record is as wanted.
    Updated {
        /// Its new revision.
        mod_revision: i64,
    },
    /// Somebody else was faster.
    Conflict {
        /// The record as it is; `None`: it is gone.
        current: Option<Versioned<T>>,
    },
}

impl MetaClient {
    /// Replaces a group's record if it was last changed at `expected_mod_revision`. When the answer is lost, the
    /// record is read to find out; it is reported as updated when it is what was wanted.
    pub async fn update_group(
        &self,
        wanted: &GroupRecord,
        expected_mod_revision: i64,
    ) -> Result<CasOutcome<GroupRecord>, MetaError> {
        let key = &Key::Group(wanted.id);
        self.settle("updating the placement group", |Try { deadline, uncertain, wait }| async move {
            if uncertain {
                let (current, mod_revision) = self.read_group(key, deadline).await?;
                if current.as_ref() == Some(wanted) {
                    return Ok(Attempt::Done(CasOutcome::Updated { mod_revision }));
                }
                if mod_revision != expected_mod_revision {
                    return Ok(Attempt::Done(conflict(current, mod_revision)));
                }
                // Not executed yet. If it still will be: its condition and ours admit only one of the two.
            }
            let answer = self.change(replace_group(wanted, expected_mod_revision), wait).await?;
            if answer.succeeded {
                let mod_revision = answer.header.map_or(0, |header| header.revision);
                return Ok(Attempt::Done(CasOutcome::Updated { mod_revision }));
            }
            let (current, mod_revision) = self.read_group(key, deadline).await?;
            Ok(Attempt::Done(conflict(current, mod_revision)))
        })
        .await
    }

    /// Changes when a group was scrubbed, or should be. What else its record says stays as it is. The
    /// revision since which the record says so.
    pub async fn update_scrub(&self, pg: PgId, change: impl Fn(&mut ScrubRecord)) -> Result<i64, MetaError> {
        let known = |group: &Arc<Versioned<GroupRecord>>| Versioned {
            record: group.record.clone(),
            mod_revision: group.mod_revision,
        };
        let mut current = self.model().groups.get(&pg).map(known);
        while let Some(Versioned { record, mod_revision }) = current {
            let mut wanted = record.clone();
            change(&mut wanted.scrub);
            if wanted == record {
                return Ok(mod_revision);
            }
            match self.update_group(&wanted, mod_revision).await? {
                CasOutcome::Updated { mod_revision } => return Ok(mod_revision),
                CasOutcome::Conflict { current: found } => current = found,
            }
        }
        Err(MetaError::NotFound { kind: Kind::Group, name: pg.to_string() })
    }

    /// Notes that a device has given up its copy of a group that it was to leave.
    pub async fn confirm_copy_forgotten(&self, group: PgId, device: DeviceId) -> Result<(), MetaError> {
        self.run("noting that a copy is gone", |records| confirm_copy_forgotten(records, group, device)).await?;
        Ok(())
    }

    async fn read_group(&self, key: &Key<'_>, deadline: Instant) -> Result<(Option<GroupRecord>, i64), MetaError> {
        let [found] = self.get_all([key], deadline).await?;
        Ok((found.record()?, found.mod_revision()))
    }

    /// Makes a class's groups unless it has them: reserves `count` ids, asks `place` where they go, writes them and
    /// then, with the last transaction, gives them to the class. An interrupted creation is taken up where it stopped.
    pub async fn create_groups(
        &self,
        class: &str,
        count: u32,
        place: impl Fn(&Model, &ClassRecord, u32) -> Result<Vec<NewGroup>, MetaError> + Sync,
    ) -> Result<Vec<PgId>, MetaError> {
        let (what, place) = ("creating the placement groups", &place);
        let _one_at_a_time = self.inner.creating.lock().await;
        loop {
            let plan = match self.run(what, |records| plan_groups(records, class, count, place)).await?.0 {
                GroupsPlanned::Made(groups) => return Ok(groups),
                GroupsPlanned::ToWrite(plan) => plan,
            };
            let now = unix_seconds();
            let (groups, _) = self.run(what, |records| planned_groups(records, class, &plan, now, place)).await?;
            for part in groups.chunks(GROUPS_PER_TXN) {
                self.run(what, |records| write_groups(records, class, &plan, part)).await?;
            }
            self.run(what, |records| give_groups(records, class, &plan)).await?;
        }
    }
}

fn conflict(current: Option<GroupRecord>, mod_revision: i64) -> CasOutcome<GroupRecord> {
    CasOutcome::Conflict { current: current.map(|record| Versioned { record, mod_revision }) }
}
