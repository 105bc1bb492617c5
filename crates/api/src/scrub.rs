//! Scrubs: the copies of a group are compared, and bad blocks are written anew.

use azekura_base::{DeviceId, LayerId, PgId};
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/scrub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "ScrubBody")]
pub struct ScrubRequest {
    /// What is to be scrubbed.
    #[serde(flatten)]
    pub target: ScrubTarget,
    /// Compare the copies' maps only, and read no block.
    #[serde(default)]
    pub light: bool,
}

/// What is to be scrubbed, and how.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ScrubBody {
    /// The volume of this name: the groups that hold it. Either this or `device`.
    volume: Option<String>,
    /// The device of this number: the groups that have a copy there. Either this or `volume`.
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    device: Option<DeviceId>,
    /// Compare the copies' maps only, and read no block.
    #[serde(default)]
    light: bool,
}

impl TryFrom<ScrubBody> for ScrubRequest {
    type Error = &'static str;

    fn try_from(body: ScrubBody) -> Result<ScrubRequest, &'static str> {
        let target = match (body.volume, body.device) {
            (Some(volume), None) => ScrubTarget::Volume(volume),
            (None, Some(device)) => ScrubTarget::Device(device),
            _ => return Err("name what is to be scrubbed: either 'volume' (a name) or 'device' (a number)"),
        };
        Ok(ScrubRequest { target, light: body.light })
    }
}

/// What is to be scrubbed: one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScrubTarget {
    /// The volume of this name: the groups that hold it.
    Volume(String),
    /// The device of this number: the groups that have a copy there.
    Device(#[cfg_attr(test, schemars(with = "u32"))] DeviceId),
}

/// Which groups will be scrubbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScrubStarted {
    /// The groups. Their primaries begin within seconds.
    #[cfg_attr(test, schemars(with = "Vec<u32>"))]
    pub groups: Vec<PgId>,
    /// When this was asked for, seconds since 1970: a group whose scrub of the kind is `done` at this time or later has
    /// had one that began after that.
    pub wanted: u64,
}

/// When several groups were last scrubbed: all of them at these times or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastScrubs {
    /// Every block of every copy was read, seconds since 1970.
    pub deep: u64,
    /// The copies' maps were compared, seconds since 1970.
    pub light: u64,
    /// Blocks that were damaged or differed between copies, also those that were written anew, and chunks that could
    /// not be read: at the last scrub of each group, and what readers have met since its last deep one.
    pub findings: u64,
}

/// When a group was scrubbed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GroupScrubs {
    /// Scrubs that read every block of every copy.
    pub deep: ScrubTimes,
    /// Scrubs that compare the copies' maps. A deep one counts as one of these, too.
    pub light: ScrubTimes,
    /// Bad blocks that readers have met since the last deep scrub.
    #[serde(skip_serializing_if = "crate::is_zero")]
    pub met: u64,
    /// The newest bad blocks, found by scrubs and by readers; 16 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FoundBlock>,
}

/// Scrubs of one kind. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ScrubTimes {
    /// When somebody last asked for one.
    pub wanted: u64,
    /// When one last ended; 0: never. Before `wanted` as long as none has ended that began after that.
    pub done: u64,
    /// Blocks that were damaged or differed between copies, also those that were mended, and chunks that could not be
    /// read, at that time.
    pub findings: u64,
}

/// What was wrong with a block of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BlockFlaw {
    /// It could not be read: it failed its checksum, or is known to be lost.
    Damaged,
    /// It could be read, and was not what the primary's copy has.
    Differs,
}

/// A bad block that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FoundBlock {
    /// The volume, or `VOLUME@SNAPSHOT`; nothing when neither has a layer of its own that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The layer.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub layer: LayerId,
    /// Where it is, bytes from the start of the volume.
    pub offset_bytes: u64,
    /// The copy that it was bad on.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub device: DeviceId,
    /// What was wrong with it.
    pub flaw: BlockFlaw,
    /// It was written anew from another copy.
    pub mended: bool,
    /// When it was found, seconds since 1970.
    pub at: u64,
}

impl std::fmt::Display for FoundBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.volume {
            Some(volume) => write!(f, "volume {volume}")?,
            None => write!(f, "layer {}", self.layer)?,
        }
        let flaw = match self.flaw {
            BlockFlaw::Damaged => "damaged",
            BlockFlaw::Differs => "not what the primary has",
        };
        let outcome = if self.mended { "written anew" } else { "no good copy was found" };
        write!(f, ", byte {}: {flaw} on device {}, {outcome}", self.offset_bytes, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_target() {
        let parse = |text| serde_json::from_str::<ScrubRequest>(text);
        let volume = ScrubTarget::Volume("v".into());
        assert_eq!(parse(r#"{"volume":"v"}"#).unwrap(), ScrubRequest { target: volume.clone(), light: false });
        let light = ScrubRequest { target: volume, light: true };
        assert_eq!(parse(r#"{"volume":"v","light":true}"#).unwrap(), light);
        assert_eq!(serde_json::to_string(&light).unwrap(), r#"{"volume":"v","light":true}"#);
        let device = ScrubRequest { target: ScrubTarget::Device(DeviceId(3)), light: false };
        assert_eq!(parse(r#"{"device":3}"#).unwrap(), device);
        let error = parse(r#"{"light":true}"#).unwrap_err().to_string();
        assert!(error.contains("either 'volume' (a name) or 'device' (a number)"), "{error}");
        assert!(parse(r#"{"volume":"v","device":3}"#).is_err() && parse(r#"{"volum":"v"}"#).is_err());
    }
}
