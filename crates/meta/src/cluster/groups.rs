//! Placement groups: made once for a class, changed only by compare-and-swap.

use azekura_base::{DeviceId, PgId};
use azekura_model::transitions::groups::{NewGroup, confirm_copy_forgotten, replace_group};
use azekura_model::{
    ClassRecord, EtcdError, GroupPlan, GroupRecord, Key, Kind, MetaError, Model, ScrubRecord, Versioned,
};
use std::sync::Arc;
use tokio::time::Instant;

use super::{Attempt, MetaClient, Try, encode};
use crate::client::Txn;
use crate::time::unix_seconds;

/// Groups of one class.
pub const GROUPS_PER_CLASS_MAX: u32 = 8_192;
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
        self.settle("updating the placement group", |Try { deadline, uncertain }| async move {
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
            let answer = self.inner.etcd.txn(replace_group(wanted, expected_mod_revision).into()).await?;
            if answer.succeeded {
                let mod_revision = answer.header.map_or(0, |header| header.revision);
                return Ok(Attempt::Done(CasOutcome::Updated { mod_revision }));
            }
            let (current, mod_revision) = self.read_group(key, deadline).await?;
            Ok(Attempt::Done(conflict(current, mod_revision)))
        })
        .await
    }

    /// Changes when a group was scrubbed, or should be. What else its record says stays as it is.
    pub async fn update_scrub(&self, pg: PgId, change: impl Fn(&mut ScrubRecord)) -> Result<(), MetaError> {
        let known = |group: &Arc<Versioned<GroupRecord>>| Versioned {
            record: group.record.clone(),
            mod_revision: group.mod_revision,
        };
        let mut current = self.model().groups.get(&pg).map(known);
        while let Some(Versioned { record, mod_revision }) = current {
            let mut wanted = record.clone();
            change(&mut wanted.scrub);
            if wanted == record {
                return Ok(());
            }
            match self.update_group(&wanted, mod_revision).await? {
                CasOutcome::Updated { .. } => return Ok(()),
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
        let count = count.clamp(1, GROUPS_PER_CLASS_MAX);
        let (class_key, counter_key) = (&Key::Class(class), &Key::Counter("groups"));
        let place = &place;
        let _one_at_a_time = self.inner.creating.lock().await;
        self.settle("creating the placement groups", |Try { deadline, .. }| async move {
            let [found, counter] = self.get_all([class_key, counter_key], deadline).await?;
            let not_found = || MetaError::NotFound { kind: Kind::Class, name: class.to_owned() };
            let record: Option<ClassRecord> = found.record()?;
            let mut record = record.filter(|class| !class.deleted).ok_or_else(not_found)?;
            if !record.groups.is_empty() {
                return Ok(Attempt::Done(record.groups));
            }
            let Some(plan) = record.plan.clone() else {
                // Placement first: a cluster that is too small must not leave a plan behind.
                place(&self.model(), &record, count)?;
                let first = counter.next_id()?;
                let end = first + u64::from(count);
                let id = |id: u64| {
                    u32::try_from(id).map_err(|_| MetaError::Broken {
                        key: counter.key.clone(),
                        reason: format!("{id} is no valid id"),
                    })
                };
                id(end)?;
                record.plan = Some(GroupPlan { first: PgId(id(first)?), count });
                let txn = Txn::new()
                    .when_unchanged(&found.key, found.mod_revision())
                    .when_unchanged(&counter.key, counter.mod_revision())
                    .put(&found.key, encode(&record))
                    .put(&counter.key, encode(&end));
                self.commit(txn, ()).await?;
                // Look again, with the plan.
                return Ok(Attempt::Conflict);
            };
            if plan.count == 0 || plan.count > GROUPS_PER_CLASS_MAX || plan.first.0.checked_add(plan.count).is_none() {
                return Err(MetaError::Broken {
                    key: found.key,
                    reason: "its plan of groups makes no sense".to_owned(),
                });
            }
            let ids: Vec<PgId> = (plan.first.0..plan.first.0 + plan.count).map(PgId).collect();
            let placed = place(&self.model(), &record, plan.count)?;
            let groups: Vec<GroupRecord> =
                ids.iter().zip(placed).map(|(id, new)| new.into_record(*id, class, unix_seconds())).collect();
            for part in groups.chunks(GROUPS_PER_TXN) {
                self.write_absent_groups(part, deadline).await?;
            }
            record.plan = None;
            record.groups = ids.clone();
            let txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).put(&found.key, encode(&record));
            self.commit(txn, ids).await
        })
        .await
    }

    /// Writes those groups that are not there yet.
    async fn write_absent_groups(&self, groups: &[GroupRecord], deadline: Instant) -> Result<(), MetaError> {
        let keys: Vec<String> = groups.iter().map(|group| Key::Group(group.id).to_string()).collect();
        let (found, _) = self.inner.etcd.get_all(&keys, deadline).await?;
        let mut txn = Txn::new();
        for ((group, key), found) in groups.iter().zip(&keys).zip(found) {
            if found.is_none() {
                txn = txn.when_absent(key).put(key, encode(group));
            }
        }
        // A failed condition means that another client took up the same plan: its groups are as good, and the class's
        // own transaction decides who finishes. What it has not written yet must be there before that.
        if !self.inner.etcd.txn(txn).await?.succeeded {
            return Err(EtcdError::Uncertain {
                endpoint: self.endpoints(),
                reason: "another client writes the same groups".to_owned(),
            }
            .into());
        }
        Ok(())
    }
}

fn conflict(current: Option<GroupRecord>, mod_revision: i64) -> CasOutcome<GroupRecord> {
    CasOutcome::Conflict { current: current.map(|record| Versioned { record, mod_revision }) }
}
