//! Which cluster this is.

use std::collections::BTreeSet;

use azekura_model::transitions::identity::ensure_cluster;
use azekura_model::{ClusterRecord, Key, MetaError, SettingsRecord, Unknown};
use tokio::time::Instant;

use super::{MetaClient, OPERATION_TIMEOUT, random_uuid};
use crate::time::now_rfc3339;

impl MetaClient {
    /// The cluster that the configuration server holds; `None`: it is empty.
    pub async fn cluster_identity(&self) -> Result<Option<ClusterRecord>, MetaError> {
        let [found] = self.get_all([&Key::Cluster], Instant::now() + OPERATION_TIMEOUT).await?;
        found.record()
    }

    /// The cluster, made with this name and these settings if there is none. `expected` is the id in the caller's
    /// data folder: another cluster, or none, is then an error, so that a node never writes into a stranger's cluster.
    pub async fn ensure_cluster(
        &self,
        name: &str,
        settings: SettingsRecord,
        expected: Option<&str>,
    ) -> Result<ClusterRecord, MetaError> {
        let fresh = ClusterRecord {
            id: random_uuid(),
            name: name.to_owned(),
            created: now_rfc3339(),
            life: random_uuid(),
            former_lives: Vec::new(),
            restored: None,
            requires: BTreeSet::new(),
            unknown: Unknown::default(),
        };
        let made = self.run("making the cluster", |records| ensure_cluster(records, &fresh, &settings, expected));
        Ok(made.await?.0)
    }
}
