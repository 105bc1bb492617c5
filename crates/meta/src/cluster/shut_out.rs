//! Nodes are shut out, and let in again.

use azekura_base::{NodeId, PeerKey};
use azekura_model::transitions::shut_out::{let_in, shut_out};
use azekura_model::{MetaError, NodeRecord};

use super::MetaClient;
use crate::time::now_rfc3339;

impl MetaClient {
    /// Takes all keys of a node: nobody talks with it, and it does not register again. Also gives the revision.
    pub async fn shut_out(&self, node: NodeId, by: &str) -> Result<(NodeRecord, i64), MetaError> {
        let now = now_rfc3339();
        self.run("shutting the node out", |records| shut_out(records, node, &now, by)).await
    }

    /// Lets it in again, with this key, or with those that it had. Also gives the revision.
    pub async fn let_in(&self, node: NodeId, key: Option<PeerKey>) -> Result<(NodeRecord, i64), MetaError> {
        self.run("letting the node in", |records| let_in(records, node, key)).await
    }
}
