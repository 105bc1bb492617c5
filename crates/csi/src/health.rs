//! What is wrong with a volume, as far as its users may notice.

use std::collections::BTreeMap;

use azekura_api::endpoint::GroupList;
use azekura_api::{GroupHealth, NoQuery, VolumeView};

use crate::Outcome;
use crate::cluster::{Cluster, told};
use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::{VolumeHealth, VolumeHealthErrorType};

/// The health of the worst of each class's placement groups: a volume is spread over all of them.
pub(crate) fn classes(cluster: &Cluster) -> Outcome<BTreeMap<String, GroupHealth>> {
    let groups = cluster.ask::<GroupList>([], &NoQuery {})?;
    let groups = groups.map_err(|error| told("asking for the health of the placement groups", &error))?;
    let mut worst: BTreeMap<String, GroupHealth> = BTreeMap::new();
    for group in groups {
        worst.entry(group.class).and_modify(|known| *known = group.health.max(*known)).or_insert(group.health);
    }
    Ok(worst)
}

/// An entry.
pub(crate) fn entry(status: VolumeHealthErrorType, reason: &str, message: String) -> VolumeHealthEntry {
    VolumeHealthEntry { status: status.into(), reason: reason.to_owned(), message }
}

/// What is wrong with a volume whose class is so.
pub(crate) fn of(volume: &VolumeView, class: Option<GroupHealth>) -> VolumeHealth {
    use VolumeHealthErrorType as Kind;
    let mut health_statuses = Vec::new();
    let class = class.unwrap_or(GroupHealth::Healthy);
    let of_class = match class {
        GroupHealth::Healthy => None,
        GroupHealth::Degraded => Some((Kind::Degraded, "CopiesMissing", "has fewer copies than it should, for now")),
        GroupHealth::ReadOnly => {
            Some((Kind::Degraded, "ReadOnly", "can't be written in parts: too few copies are left"))
        }
        GroupHealth::Unavailable => Some((Kind::Inaccessible, "Unavailable", "can't be read or written in parts")),
    };
    if let Some((kind, reason, what)) = of_class {
        let message = format!("volume '{}' {what}: 'azekura status' tells why", volume.name);
        health_statuses.push(entry(kind, reason, message));
    }
    if let Some(reason) = &volume.key_missing {
        let message = format!("volume '{}' is encrypted, and its key is missing: {reason}", volume.name);
        health_statuses.push(entry(Kind::Inaccessible, "KeyMissing", message));
    }
    VolumeHealth { volume_id: volume.name.clone(), health_statuses }
}
