//! Storage classes: the policy of their volumes.

use azekura_base::LogicalBlock;
use serde::{Deserialize, Serialize};

/// What may fail at once: two copies of a group never share one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureDomain {
    /// A device.
    Device,
    /// A machine.
    Host,
    /// A rack.
    Rack,
    /// A site.
    Site,
}

impl std::fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FailureDomain::Device => "device",
            FailureDomain::Host => "host",
            FailureDomain::Rack => "rack",
            FailureDomain::Site => "site",
        })
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AckRule {
    /// Every in-sync copy is durable.
    All,
    /// More than half of the copies are durable.
    Majority,
    /// A majority at home and one copy in every other site are durable.
    EachSite,
}

impl std::fmt::Display for AckRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AckRule::All => "all",
            AckRule::Majority => "majority",
            AckRule::EachSite => "each-site",
        })
    }
}

/// Where a class keeps one copy of every block: a site, or a rack of it. As text `SITE`, `SITE/RACK` or `/RACK`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClassHome {
    /// The site, as its nodes name it; empty: where they name none.
    pub site: String,
    /// The rack; anywhere in the site, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

impl std::fmt::Display for ClassHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.site)?;
        self.rack.as_ref().map_or(Ok(()), |rack| write!(f, "/{rack}"))
    }
}

impl std::str::FromStr for ClassHome {
    type Err = String;

    fn from_str(text: &str) -> Result<ClassHome, String> {
        let (site, rack) = text.split_once('/').map_or((text, None), |(site, rack)| (site, Some(rack.to_owned())));
        if rack.as_ref().map_or(site, |rack| rack).is_empty() {
            return Err(format!("'{text}' is neither a site nor a rack: SITE, SITE/RACK, or /RACK without sites"));
        }
        Ok(ClassHome { site: site.to_owned(), rack })
    }
}

/// A storage class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies a group is read-only.
    pub copies_min: u32,
    /// Volumes may promise this multiple of what can be stored on the devices.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for
    /// ever.
    pub io_timeout_seconds: Option<u64>,
    /// Its new volumes are encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// What clients count the blocks of its new volumes in, bytes, unless the volume says.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "u32"))]
    pub logical_block_bytes: LogicalBlock,
    /// Where one copy of every block is; none: wherever there is room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<ClassHome>,
    /// One copy of every block of a volume is where the volume is attached: each has placement groups of its own.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub home_attached: bool,
    /// Its placement groups, with those that its volumes have of their own; 0 before its first volume.
    pub groups: usize,
    /// Its volumes.
    pub volumes: usize,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// Why no volume can be made in it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Body of `POST /v1/classes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateClass {
    /// Its name.
    pub name: String,
    /// Copies of every block.
    pub copies: u32,
    /// What two copies never share; a host, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<FailureDomain>,
    /// When a write is acknowledged; when all in-sync copies are durable, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_rule: Option<AckRule>,
    /// With fewer in-sync copies a group is read-only; 1, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_min: Option<u32>,
    /// Volumes may promise this multiple of what can be stored on the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit_ratio: Option<f64>,
    /// Seconds that a request waits for a group which does not serve it, before its client gets an error; null: for
    /// ever; 30, if it is not said.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub io_timeout_seconds: Option<Option<u64>>,
    /// Encrypt its volumes, each with a key of its own.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub encrypt: bool,
    /// What clients count the blocks of its volumes in, bytes, unless the volume says: 512 or 4096; 512, if it is not
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    pub logical_block_bytes: Option<LogicalBlock>,
    /// Keep one copy of every block there, and serve requests from it; wherever there is room, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<ClassHome>,
    /// Keep one copy of every block of a volume where the volume is attached, in place of `home`.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub home_attached: bool,
}

/// Body of `POST /v1/classes/{name}`: what is not named stays. What would move copies can't be changed: make another
/// class for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeClass {
    /// See [`CreateClass`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit_ratio: Option<f64>,
    /// See [`CreateClass`]; `null`: for ever.
    #[serde(default, deserialize_with = "crate::named", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub io_timeout_seconds: Option<Option<u64>>,
}

#[cfg(test)]
mod tests {
    use super::ClassHome;

    #[test]
    fn homes_are_read_as_they_are_written() {
        for text in ["a", "a/1", "/1"] {
            assert_eq!(text.parse::<ClassHome>().unwrap().to_string(), text);
        }
        for bad in ["", "/", "a/"] {
            assert!(bad.parse::<ClassHome>().unwrap_err().contains("SITE/RACK"), "{bad}");
        }
    }
}
