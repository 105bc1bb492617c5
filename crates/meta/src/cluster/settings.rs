//! The cluster's settings.

use azekura_model::{Key, MetaError, SettingsRecord};

use super::{Attempt, MetaClient, Try, encode};
use crate::client::Txn;

/// Most groups that may move at once.
pub const MOVES_AT_ONCE_MAX: u32 = 1_024;

/// Shortest time after which the copies of an absent node may get new homes, seconds: longer than a restart takes.
pub const REHOME_AFTER_SECONDS_MIN: u64 = 10;

/// Settings to change; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// See [`SettingsRecord::rehome_after_seconds`]; `Some(None)`: never.
    pub rehome_after_seconds: Option<Option<u64>>,
    /// See [`SettingsRecord::moves_at_once`]; 1 to [`MOVES_AT_ONCE_MAX`].
    pub moves_at_once: Option<u32>,
    /// See [`SettingsRecord::nearly_full_percent`]; 1 to [`SettingsRecord::full_percent`].
    pub nearly_full_percent: Option<u8>,
    /// See [`SettingsRecord::full_percent`]; up to 100.
    pub full_percent: Option<u8>,
}

impl MetaClient {
    /// Changes settings; returns all of them as they are then.
    pub async fn change_settings(&self, change: SettingsChange) -> Result<SettingsRecord, MetaError> {
        if change.moves_at_once.is_some_and(|moves| !(1..=MOVES_AT_ONCE_MAX).contains(&moves)) {
            let reason = format!("1 to {MOVES_AT_ONCE_MAX} groups can move at once");
            return Err(MetaError::InvalidSetting { name: "moves-at-once".to_owned(), reason });
        }
        if let Some(seconds) =
            change.rehome_after_seconds.flatten().filter(|seconds| *seconds < REHOME_AFTER_SECONDS_MIN)
        {
            let reason = format!(
                "{seconds} s is less than {REHOME_AFTER_SECONDS_MIN} s: a node that is only started again would lose its copies"
            );
            return Err(MetaError::InvalidSetting { name: "rehome-after".to_owned(), reason });
        }
        self.settle("changing the settings", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Settings], deadline).await?;
            let before: Option<SettingsRecord> = found.record()?;
            let mut settings = before.clone().unwrap_or_default();
            if let Some(seconds) = change.rehome_after_seconds {
                settings.rehome_after_seconds = seconds;
            }
            if let Some(moves) = change.moves_at_once {
                settings.moves_at_once = moves;
            }
            settings.nearly_full_percent = change.nearly_full_percent.unwrap_or(settings.nearly_full_percent);
            settings.full_percent = change.full_percent.unwrap_or(settings.full_percent);
            let (nearly, full) = (settings.nearly_full_percent, settings.full_percent);
            if !(1..=full).contains(&nearly) || full > 100 {
                let name = if change.full_percent.is_some() { "full" } else { "nearly-full" }.to_owned();
                let reason = format!("1 <= nearly-full <= full <= 100 does not hold for {nearly} and {full}");
                return Err(MetaError::InvalidSetting { name, reason });
            }
            if before.as_ref() == Some(&settings) {
                return Ok(Attempt::Done(settings));
            }
            let txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).put(&found.key, encode(&settings));
            self.commit(txn, settings).await
        })
        .await
    }
}
