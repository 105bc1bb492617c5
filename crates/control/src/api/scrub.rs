//! Scrubs: when the copies were last compared, and `POST /v1/scrub`, which asks for it now.

use axum::Json;
use axum::extract::State;
use azekura_base::{DeviceId, PgId};
use azekura_meta::model::{GroupRecord, ScrubTimes};
use azekura_meta::time::unix_seconds;
use azekura_meta::{Kind, MetaError, Model};
use serde::{Deserialize, Serialize};

use super::Api;
use super::error::{Answer, Body};

/// Body of `POST /v1/scrub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ScrubBody")]
pub struct ScrubRequest {
    /// What is to be scrubbed.
    #[serde(flatten)]
    pub target: ScrubTarget,
    /// Compare the copies' maps only, and read no block.
    #[serde(default)]
    pub light: bool,
}

/// A request as it comes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScrubBody {
    volume: Option<String>,
    device: Option<DeviceId>,
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
#[serde(rename_all = "snake_case")]
pub enum ScrubTarget {
    /// The volume of this name: the groups that hold it.
    Volume(String),
    /// The device of this number: the groups that have a copy there.
    Device(DeviceId),
}

/// Which groups will be scrubbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubStarted {
    /// The groups. Their primaries begin within seconds.
    pub groups: Vec<PgId>,
    /// When this was asked for, seconds since 1970: a scrub of the kind that ended at this time or later is the one.
    pub wanted: u64,
}

/// When several groups were last scrubbed: all of them at these times or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrubs {
    /// Every block of every copy was read, seconds since 1970.
    pub deep: u64,
    /// The copies' maps were compared, seconds since 1970.
    pub light: u64,
    /// Blocks that were damaged or differed between copies, also those that were written anew, and chunks that could not be
    /// read: at the last scrub of each group, and what readers have met since its last deep one.
    pub findings: u64,
}

impl LastScrubs {
    /// The oldest of these groups' scrubs; `None` without groups.
    pub(super) fn of<'a>(groups: impl Iterator<Item = &'a GroupRecord>) -> Option<LastScrubs> {
        groups.map(|group| &group.scrub).fold(None, |all, scrub| {
            let last = if scrub.deep.done >= scrub.light.done { scrub.deep } else { scrub.light };
            let LastScrubs { deep, light, findings } =
                all.unwrap_or(LastScrubs { deep: u64::MAX, light: u64::MAX, findings: 0 });
            Some(LastScrubs {
                deep: deep.min(scrub.deep.done),
                light: light.min(scrub.light.done),
                findings: findings + last.findings + scrub.met,
            })
        })
    }
}

/// `POST /v1/scrub`.
pub(super) async fn start(State(api): State<Api>, Body(request): Body<ScrubRequest>) -> Answer<ScrubStarted> {
    let model = api.meta.model_of_volumes().await?;
    let groups = groups_of(&model, &request.target)?;
    let light = request.light;
    let times = |group: &GroupRecord| -> ScrubTimes { if light { group.scrub.light } else { group.scrub.deep } };
    // Later than any scrub that has ended already.
    let latest = groups.iter().filter_map(|pg| model.groups.get(pg)).map(|group| times(group).done).max();
    let wanted = unix_seconds().max(latest.unwrap_or(0) + 1);
    for pg in &groups {
        let ask = |times: &mut ScrubTimes| times.wanted = times.wanted.max(wanted);
        api.meta.update_scrub(*pg, |scrub| ask(if light { &mut scrub.light } else { &mut scrub.deep })).await?;
    }
    Ok(Json(ScrubStarted { groups, wanted }))
}

fn groups_of(model: &Model, target: &ScrubTarget) -> Result<Vec<PgId>, MetaError> {
    match target {
        ScrubTarget::Volume(name) => {
            let volume = model.volumes.values().find(|volume| volume.name == *name);
            let class = volume.and_then(|volume| model.classes.get(&volume.class));
            let class = class.ok_or_else(|| MetaError::NotFound { kind: Kind::Volume, name: name.clone() })?;
            Ok(class.groups.clone())
        }
        ScrubTarget::Device(id) if model.devices.contains_key(id) => {
            let holds = |group: &&GroupRecord| group.members.contains(id);
            Ok(model.groups.values().map(|group| &group.record).filter(holds).map(|group| group.id).collect())
        }
        ScrubTarget::Device(id) => Err(MetaError::NotFound { kind: Kind::Device, name: id.to_string() }),
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

    #[test]
    fn the_oldest_scrub_counts() {
        let group = |deep: (u64, u64), light: (u64, u64)| {
            let times = |(done, findings)| serde_json::json!({ "done": done, "findings": findings });
            let record = serde_json::json!({ "id": 1, "class": "c", "epoch": 1, "primary": 1, "in_sync": [1],
                "members": [1], "scrub": { "deep": times(deep), "light": times(light) } });
            serde_json::from_value::<GroupRecord>(record).unwrap()
        };
        assert_eq!(LastScrubs::of(std::iter::empty()), None);
        let groups = [group((100, 7), (120, 0)), group((90, 2), (90, 2)), group((110, 0), (115, 1))];
        assert_eq!(LastScrubs::of(groups.iter()), Some(LastScrubs { deep: 90, light: 90, findings: 3 }));
    }
}
