//! The cluster's settings.

pub use azekura_base::{ApiAccess, Transport};
use serde::{Deserialize, Serialize};

/// The cluster's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingsView {
    /// The copies of a node that has been absent for so long get new homes, seconds; `null`: never.
    pub rehome_after_seconds: Option<u64>,
    /// A volume whose class is at home where it is attached moves its home after it has been used elsewhere for so
    /// long, seconds; `null`: never.
    #[serde(default)]
    pub follow_after_seconds: Option<u64>,
    /// Most groups that move at once to empty a device or to fill a new one.
    pub moves_at_once: u32,
    /// Share of a device's capacity from which on people are warned, percent.
    pub nearly_full_percent: u8,
    /// Share of a device's capacity from which on it takes no more data from clients, percent.
    pub full_percent: u8,
    /// How nodes talk with each other.
    #[serde(default)]
    pub transport: Transport,
    /// Whether this API asks for grants.
    #[serde(default)]
    pub api_access: ApiAccess,
}

/// Body of `POST /v1/settings`: what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeSettings {
    /// See [`SettingsView`]; `null`: never.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub rehome_after_seconds: Option<Option<u64>>,
    /// See [`SettingsView`]; `null`: never.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub follow_after_seconds: Option<Option<u64>>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_at_once: Option<u32>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearly_full_percent: Option<u8>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_percent: Option<u8>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// See [`SettingsView`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_access: Option<ApiAccess>,
}
