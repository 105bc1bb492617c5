//! Certificate authorities.

use azekura_model::transitions::authorities::create_authority;
use azekura_model::{AuthorityRecord, MetaError};

use super::MetaClient;

impl MetaClient {
    /// Makes an authority; gives the one that now has its number, which another node may have made.
    pub async fn create_authority(&self, authority: &AuthorityRecord) -> Result<AuthorityRecord, MetaError> {
        let made = self.run("making a certificate authority", |records| create_authority(records, authority)).await?;
        Ok(made.0)
    }
}
