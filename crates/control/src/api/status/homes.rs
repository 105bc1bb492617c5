//! What the status says of classes whose copies are not at home.

use azekura_base::DeviceId;
use azekura_model::{ClassRecord, GroupRecord, Model, named};
use azekura_plans::followers;

/// For each class with a home: how many of its groups have no copy in sync there. What volumes have of their own is on
/// its way again and again; the volumes tell of it.
pub(super) fn notes(model: &Model) -> impl Iterator<Item = String> + '_ {
    model.classes_shown().filter(|class| !class.deleted).filter_map(|class| {
        let home = class.home.as_ref()?;
        let groups = || class.groups.iter().filter_map(|id| model.groups.get(id));
        let away = groups().filter(|group| !has_copy_at_home(model, class, group)).count();
        (away > 0).then(|| {
            format!(
                "{away} of {} placement groups of storage class '{}' have no copy in {home}: they are read and written \
                 elsewhere until devices there have them again",
                groups().count(),
                class.name
            )
        })
    })
}

/// The volumes that are not where they are attached, for want of room.
pub(super) fn crowded_out(model: &Model) -> Option<String> {
    let volumes = followers::crowded_out(model);
    let (_, place) = volumes.first()?;
    let others = if volumes.iter().any(|(_, other)| other != place) { " or where they are used" } else { "" };
    Some(format!(
        "there is no room at {place}{others} for {}, which would be at home where they are attached: they are read and \
         written over the network; add devices there, or attach some elsewhere",
        named(volumes.iter().map(|(volume, _)| volume.as_str()))
    ))
}

/// Whether a group of the class, which has a home, has a copy in sync there.
pub(in crate::api) fn has_copy_at_home(model: &Model, class: &ClassRecord, group: &GroupRecord) -> bool {
    let is_there = |device: &DeviceId| {
        let node = model.devices.get(device).and_then(|device| model.nodes.get(&device.node));
        class.home.as_ref().is_some_and(|home| node.is_some_and(|node| node.is_at(home)))
    };
    group.in_sync.iter().any(is_there)
}
