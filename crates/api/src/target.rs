//! Targets of several logical units.

use serde::{Deserialize, Serialize};

/// A logical unit of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnitView {
    /// Its number (LUN).
    pub lun: u16,
    /// The volume that it is.
    pub volume: String,
}

/// A target of several logical units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetView {
    /// Its name, with its project before it where that is not the default one.
    pub name: String,
    /// What hosts call it.
    pub iscsi_name: String,
    /// Its units, by number. A host sees those of them whose volumes it may open.
    pub units: Vec<UnitView>,
    /// The number of the next unit: no number is given twice.
    pub next_lun: u16,
    /// Time of creation, RFC 3339.
    pub created: String,
}

/// Body of `POST /v1/targets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateTarget {
    /// Its name, as those of volumes.
    pub name: String,
    /// The volumes that are its units 0, 1 and so on, of its project.
    #[serde(default)]
    pub volumes: Vec<String>,
}

/// Body of `POST /v1/targets/{name}/units`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AddUnit {
    /// The volume, of the target's project and in no other target.
    pub volume: String,
    /// Its number, from 0 to 255. Without this: the next one. Numbers that are passed over are not given later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
}

/// Query of what takes units from hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RemoveUnits {
    /// Also while the volume is attached: hosts that use it through this target lose it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}
