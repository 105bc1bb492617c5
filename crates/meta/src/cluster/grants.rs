//! Grants: who may what.

use azekura_model::transitions::grants::{create_grant, revoke_grant};
use azekura_model::transitions::joining::join;
use azekura_model::{GrantId, GrantRecord, MetaError, NodeRecord};

use super::{MetaClient, NodeSpec};
use crate::time::unix_seconds;

impl MetaClient {
    /// Makes a grant with this number, 64 random bits.
    pub async fn create_grant(&self, id: GrantId, grant: &GrantRecord) -> Result<(), MetaError> {
        let now = unix_seconds();
        self.run("making a grant", |records| create_grant(records, id, grant, now)).await?;
        Ok(())
    }

    /// A machine becomes a node with this join token's grant, which is used up. Gives its record.
    pub async fn join(&self, id: GrantId, spec: &NodeSpec) -> Result<NodeRecord, MetaError> {
        let now = unix_seconds();
        Ok(self.run("joining the cluster", |records| join(records, id, spec, now)).await?.0)
    }

    /// Revokes a grant.
    pub async fn revoke_grant(&self, id: GrantId) -> Result<(), MetaError> {
        self.run("revoking a grant", |records| revoke_grant(records, id)).await?;
        Ok(())
    }
}
