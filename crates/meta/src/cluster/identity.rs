//! Which cluster this is.

use azekura_model::{ClusterRecord, Key, MetaError, Unknown};
use tokio::time::Instant;

use super::{Attempt, MetaClient, OPERATION_TIMEOUT, Try, encode, random_uuid};
use crate::client::Txn;
use crate::time::now_rfc3339;

impl MetaClient {
    /// The cluster that the configuration server holds; `None`: it is empty.
    pub async fn cluster_identity(&self) -> Result<Option<ClusterRecord>, MetaError> {
        let [found] = self.get_all([&Key::Cluster], Instant::now() + OPERATION_TIMEOUT).await?;
        found.record()
    }

    /// The cluster, made with this name if there is none. `expected` is the id in the caller's data folder: another
    /// cluster, or none, is then an error, so that a node never writes into a stranger's cluster.
    pub async fn ensure_cluster(&self, name: &str, expected: Option<&str>) -> Result<ClusterRecord, MetaError> {
        let fresh = ClusterRecord {
            id: random_uuid(),
            name: name.to_owned(),
            created: now_rfc3339(),
            life: random_uuid(),
            former_lives: Vec::new(),
            restored: None,
            unknown: Unknown::default(),
        };
        let fresh = &fresh;
        self.settle("making the cluster", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Cluster], deadline).await?;
            let cluster: Option<ClusterRecord> = found.record()?;
            match (cluster, expected) {
                (Some(cluster), Some(expected)) if cluster.id != expected => {
                    Err(MetaError::WrongCluster { expected: expected.to_owned(), found: cluster.id })
                }
                (Some(cluster), _) if cluster.number().is_none() => {
                    Err(MetaError::Broken { key: found.key, reason: "the id is not 32 hexadecimal digits".to_owned() })
                }
                (Some(cluster), _) if cluster.life.is_empty() => {
                    // It was made before configurations had lives.
                    let cluster = ClusterRecord { life: fresh.life.clone(), ..cluster };
                    let txn = Txn::new().when_unchanged(&found.key, found.mod_revision());
                    self.commit(txn.put(&found.key, encode(&cluster)), cluster).await
                }
                (Some(cluster), _) => Ok(Attempt::Done(cluster)),
                (None, Some(expected)) => Err(MetaError::ClusterMissing { expected: expected.to_owned() }),
                (None, None) => {
                    let txn = Txn::new().when_absent(&found.key).put(&found.key, encode(fresh));
                    self.commit(txn, fresh.clone()).await
                }
            }
        })
        .await
    }
}
