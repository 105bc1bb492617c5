//! What the status says of classes whose copies are not at home.

use azekura_base::DeviceId;
use azekura_model::{ClassHome, Model};

/// For each class with a home: how many of its groups have no copy in sync there.
pub(super) fn notes(model: &Model) -> impl Iterator<Item = String> + '_ {
    model.classes.values().filter(|class| !class.deleted).filter_map(|class| {
        let home = class.home.as_ref()?;
        let groups = || class.groups.iter().filter_map(|id| model.groups.get(id));
        let away = groups().filter(|group| !group.in_sync.iter().any(|device| is_at(model, home, *device))).count();
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

fn is_at(model: &Model, home: &ClassHome, device: DeviceId) -> bool {
    let node = model.devices.get(&device).and_then(|device| model.nodes.get(&device.node));
    node.is_some_and(|node| home.has(&node.site, &node.rack))
}
