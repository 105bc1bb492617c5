//! Scrubs: when the copies were last compared, and asking for it now.

use azekura_api::endpoint::ScrubStart;
use azekura_api::{LastScrubs, ScrubStarted, ScrubTarget};
use azekura_base::PgId;
use azekura_meta::time::unix_seconds;
use azekura_model::{GroupRecord, Kind, MetaError, Model, ScrubRecord, ScrubTimes};

use super::call::{Answer, Call};

/// The oldest of these groups' scrubs; `None` without groups.
pub(super) fn last<'a>(groups: impl Iterator<Item = &'a GroupRecord>) -> Option<LastScrubs> {
    let of_group = |scrub: &ScrubRecord| {
        let ((deep, light), met) = (scrub.really(), scrub.met);
        let last = if deep.done >= light.done { deep } else { light };
        LastScrubs { deep: deep.done, light: light.done, findings: last.findings + met }
    };
    groups.map(|group| of_group(&group.scrub)).reduce(|all, one| LastScrubs {
        deep: all.deep.min(one.deep),
        light: all.light.min(one.light),
        findings: all.findings + one.findings,
    })
}

pub(super) async fn start(Call { api, body: request, .. }: Call<ScrubStart>) -> Answer<ScrubStart> {
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
    Ok(ScrubStarted { groups, wanted }.into())
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
    fn the_oldest_scrub_counts() {
        let group = |deep: (u64, u64), light: (u64, u64)| {
            let times = |(done, findings)| serde_json::json!({ "done": done, "findings": findings });
            let record = serde_json::json!({ "id": 1, "class": "c", "epoch": 1, "primary": 1, "in_sync": [1],
                "members": [1], "scrub": { "deep": times(deep), "light": times(light) } });
            serde_json::from_value::<GroupRecord>(record).unwrap()
        };
        assert_eq!(last(std::iter::empty()), None);
        let groups = [group((100, 7), (120, 0)), group((90, 2), (90, 2)), group((110, 0), (115, 1))];
        assert_eq!(last(groups.iter()), Some(LastScrubs { deep: 90, light: 90, findings: 3 }));
        let mut new = group((200, 0), (200, 0));
        new.scrub.made = 200;
        let all = [groups[0].clone(), new];
        assert_eq!(last(all.iter()), Some(LastScrubs { deep: 0, light: 0, findings: 0 }), "one never was");
    }
}
