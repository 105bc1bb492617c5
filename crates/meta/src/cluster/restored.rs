//! The way on after the configuration was restored from a backup: `azekura cluster restored`
//! (docs/decisions/0019-restored-configuration.md).

use std::collections::BTreeSet;

use azekura_base::DeviceId;
use azekura_model::transitions::restored::{self, Restoration, RestoreMoment, RestoredSummary, plan_restore};
use azekura_model::{DoubtRecord, EtcdError, HoldingsRecord, MetaError, Txn};

use super::{MetaClient, random_uuid};
use crate::time::{now_rfc3339, unix_seconds};

impl MetaClient {
    /// Says that the configuration was restored from a backup: it becomes one that nodes can go on with. To be called
    /// while no node runs. What is interrupted is to be called again, with the same copies.
    pub async fn declare_restored(&self, restoration: &Restoration) -> Result<RestoredSummary, MetaError> {
        let seconds = unix_seconds();
        let random = getrandom::u64().unwrap_or(seconds);
        let moment = RestoreMoment { seconds, now: now_rfc3339(), life: random_uuid(), random };
        let restore = plan_restore(&self.model(), restoration, &moment)?;
        let guard = self.write(restore.first().clone()).await?;
        for txn in restore.rest(guard) {
            self.write(txn).await?;
        }
        Ok(restore.summary)
    }

    /// Writes; gives the revision.
    async fn write(&self, txn: Txn) -> Result<i64, MetaError> {
        let answer = self.inner.etcd.txn(txn.into()).await?;
        if !answer.succeeded {
            let reason = "somebody else changes the configuration at the same time".to_owned();
            return Err(EtcdError::Uncertain { endpoint: self.endpoints(), reason }.into());
        }
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Says that nobody is to wait for these devices before groups open.
    pub async fn open_without(&self, devices: &BTreeSet<DeviceId>) -> Result<(), MetaError> {
        let what = "changing the cluster's record";
        self.run(what, |records| restored::open_without(records, devices)).await.map(|_| ())
    }

    /// Tells all nodes that the configuration went back; `node` is the identity of the data folder that shows it.
    pub async fn doubt(&self, node: &str, doubt: &DoubtRecord) -> Result<(), MetaError> {
        self.inner.etcd.txn(restored::doubt(node, doubt).into()).await?;
        Ok(())
    }

    /// Says what a device holds.
    pub async fn tell_holdings(&self, holdings: &HoldingsRecord) -> Result<(), MetaError> {
        self.inner.etcd.txn(restored::tell_holdings(holdings).into()).await?;
        Ok(())
    }
}
