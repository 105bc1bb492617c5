//! The cluster's settings.

use axum::Json;
use axum::extract::State;
use azekura_meta::cluster::SettingsChange;
use azekura_meta::model::SettingsRecord;
use serde::{Deserialize, Deserializer, Serialize};

use super::Api;
use super::error::{Answer, Body};

/// The cluster's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsView {
    /// The copies of a node that has been absent for so long get new homes, seconds; `null`: never.
    pub rehome_after_seconds: Option<u64>,
    /// Most groups that move at once to empty a device or to fill a new one.
    pub moves_at_once: u32,
    /// Share of a device's capacity from which on people are warned, percent.
    pub nearly_full_percent: u8,
    /// Share of a device's capacity from which on it takes no more data from clients, percent.
    pub full_percent: u8,
}

impl From<SettingsRecord> for SettingsView {
    fn from(record: SettingsRecord) -> SettingsView {
        SettingsView {
            rehome_after_seconds: record.rehome_after_seconds,
            moves_at_once: record.moves_at_once,
            nearly_full_percent: record.nearly_full_percent,
            full_percent: record.full_percent,
        }
    }
}

/// Body of `POST /v1/settings`: what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSettings {
    /// See [`SettingsView`]; `null`: never.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub rehome_after_seconds: Option<Option<u64>>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_at_once: Option<u32>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearly_full_percent: Option<u8>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_percent: Option<u8>,
}

/// A field that is there, whether or not it is `null`.
pub(super) fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(deserializer).map(Some)
}

/// `GET /v1/settings`.
pub(super) async fn show(State(api): State<Api>) -> Answer<SettingsView> {
    Ok(Json(api.meta.model().settings().into()))
}

/// `POST /v1/settings`.
pub(super) async fn change(State(api): State<Api>, Body(body): Body<ChangeSettings>) -> Answer<SettingsView> {
    let ChangeSettings { rehome_after_seconds, moves_at_once, nearly_full_percent, full_percent } = body;
    let change = SettingsChange { rehome_after_seconds, moves_at_once, nearly_full_percent, full_percent };
    let settings = api.meta.change_settings(change).await?;
    Ok(Json(settings.into()))
}
