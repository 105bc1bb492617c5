//! The cluster's settings.

use azekura_model::transitions::settings::change_settings;
use azekura_model::{MetaError, SettingsRecord};

use super::MetaClient;

pub use azekura_model::transitions::settings::{MOVES_AT_ONCE_MAX, SettingsChange};

impl MetaClient {
    /// Changes settings; returns all of them as they are then.
    pub async fn change_settings(&self, change: SettingsChange) -> Result<SettingsRecord, MetaError> {
        Ok(self.run("changing the settings", |records| change_settings(records, change)).await?.0)
    }
}
