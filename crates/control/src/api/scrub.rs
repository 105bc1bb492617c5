//! `POST /v1/scrub`: reads and compares all copies of what a volume, or a device, holds.

use axum::Json;
use axum::extract::State;
use azekura_base::{DeviceId, PgId};
use azekura_meta::time::unix_seconds;
use azekura_meta::{Kind, MetaError, Model};
use serde::{Deserialize, Serialize};

use super::Api;
use super::error::{Answer, Body};

/// Body of `POST /v1/scrub`: one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubRequest {
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
    /// When this was asked for, seconds since 1970: a scrub that ended at this time or later is the one.
    pub wanted: u64,
}

/// `POST /v1/scrub`.
pub(super) async fn start(State(api): State<Api>, Body(request): Body<ScrubRequest>) -> Answer<ScrubStarted> {
    let model = api.meta.model_of_volumes().await?;
    let groups = groups_of(&model, &request)?;
    // Later than any scrub that has ended already.
    let latest = groups.iter().filter_map(|pg| model.groups.get(pg)).map(|group| group.scrub.done).max();
    let wanted = unix_seconds().max(latest.unwrap_or(0) + 1);
    for pg in &groups {
        api.meta.update_scrub(*pg, |scrub| scrub.wanted = scrub.wanted.max(wanted)).await?;
    }
    Ok(Json(ScrubStarted { groups, wanted }))
}

fn groups_of(model: &Model, request: &ScrubRequest) -> Result<Vec<PgId>, MetaError> {
    match request {
        ScrubRequest::Volume(name) => {
            let volume = model.volumes.values().find(|volume| volume.name == *name);
            let class = volume.and_then(|volume| model.classes.get(&volume.class));
            let class = class.ok_or_else(|| MetaError::NotFound { kind: Kind::Volume, name: name.clone() })?;
            Ok(class.groups.clone())
        }
        ScrubRequest::Device(id) if model.devices.contains_key(id) => {
            let holds = |group: &&azekura_meta::model::GroupRecord| group.members.contains(id);
            Ok(model.groups.values().map(|group| &group.record).filter(holds).map(|group| group.id).collect())
        }
        ScrubRequest::Device(id) => Err(MetaError::NotFound { kind: Kind::Device, name: id.to_string() }),
    }
}
