//! Volumes whose home follows them (docs/decisions/0062-home-attached.md): their own groups get their home where they
//! are attached, keep up with their class, and go after the last volume.
//!
//! Where copies are is the business of [`crate::homes`] alone: here a home is only named. So that a volume that moves
//! to and fro does not take its data along each time, its home follows it when it has been used elsewhere for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_base::{NodeId, seconds_of_rfc3339};
use azekura_model::transitions::own_groups::delete_own;
use azekura_model::transitions::volumes::Room;
use azekura_model::{
    ClassHome, ClassRecord, Key, Model, NodeRecord, Outcome, Records, Txn, Versioned, VolumeRecord, class_shown, is_own,
};

use crate::leader::Moment;

/// Groups that belong to no volume are left alone for so long after they were made: their volume is about to come.
const UNUSED_FOR: Duration = Duration::from_secs(120);

/// What is to be done with a volume's own groups.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnPlan {
    /// They get this record in the place of the one that was last changed at this revision: another home, or what was
    /// changed of their class.
    Change(Box<ClassRecord>, i64),
    /// No volume and no layer needs them: the next step of their deletion.
    Delete(String),
}

impl OwnPlan {
    /// The plan as a transition. Gives whether it has changed something.
    ///
    /// # Errors
    /// When a record can't be read, or the groups are needed again.
    pub fn transition(&self, records: &Records<'_>) -> Outcome<bool> {
        match self {
            OwnPlan::Change(class, mod_revision) => {
                let key = Key::Class(&class.name).to_string();
                records.unless_overtaken(Txn::new().when_unchanged(&key, *mod_revision).put(&key, class))
            }
            OwnPlan::Delete(name) => delete_own(records, name),
        }
    }
}

/// Since when volumes are used at another place than their home, as this leader has seen it. A new leader counts anew:
/// homes move later then, never sooner.
#[derive(Debug, Default)]
pub struct Followers {
    since: BTreeMap<String, (ClassHome, Duration)>,
    next: Option<Duration>,
}

impl Followers {
    /// What is to be done now.
    pub fn step(&mut self, model: &Model, now: Moment) -> Vec<OwnPlan> {
        self.next = None;
        let own = model.classes.values().filter(|class| is_own(&class.name));
        let mut users = Users::default();
        let mut plans = Vec::new();
        for class in own {
            // Whoever has no such volumes has no work with them.
            let users = users.look(model);
            match users.get(class.name.as_str()) {
                _ if class.deleted => plans.push(OwnPlan::Delete(class.name.clone())),
                None => plans.extend(self.unused(model, class, now)),
                Some(family) => plans.extend(self.change(model, class, family, now.elapsed)),
            }
        }
        self.since.retain(|name, _| model.classes.contains_key(name));
        plans
    }

    /// When something will be due although nothing has changed, by the last step.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.next
    }

    fn due(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn unused(&mut self, model: &Model, class: &ClassRecord, now: Moment) -> Option<OwnPlan> {
        if model.layers_of_class(&class.name) > 0 {
            return None;
        }
        let made = Duration::from_secs(seconds_of_rfc3339(&class.created).unwrap_or(0));
        let age = Duration::from_secs(now.unix_seconds).saturating_sub(made);
        if age >= UNUSED_FOR {
            return Some(OwnPlan::Delete(class.name.clone()));
        }
        self.due(now.elapsed + UNUSED_FOR - age);
        None
    }

    fn change(
        &mut self,
        model: &Model,
        class: &Versioned<ClassRecord>,
        family: &Family,
        now: Duration,
    ) -> Option<OwnPlan> {
        let mut wanted = class.record.clone();
        if let Some(parent) = model.classes.get(class_shown(&class.name)) {
            wanted.overcommit_ratio = parent.overcommit_ratio;
            wanted.io_timeout_seconds = parent.io_timeout_seconds;
        }
        if let Some(home) = self.home(model, class, family, now) {
            wanted.home = Some(home);
        }
        (wanted != class.record).then(|| OwnPlan::Change(Box::new(wanted), class.mod_revision))
    }

    /// The home that these groups are to have now in the place of theirs.
    fn home(&mut self, model: &Model, class: &ClassRecord, family: &Family, now: Duration) -> Option<ClassHome> {
        let place = place_of(model, family).filter(|place| class.home.as_ref() != Some(place));
        let Some(place) = place else {
            self.since.remove(&class.name);
            return None;
        };
        let patience = match &class.home {
            // A volume that was never attached has nothing to take along.
            None => Duration::ZERO,
            Some(_) => Duration::from_secs(model.settings().follow_after_seconds?),
        };
        let (seen, since) = self.since.entry(class.name.clone()).or_insert_with(|| (place.clone(), now));
        if *seen != place {
            (*seen, *since) = (place.clone(), now);
        }
        let due = since.saturating_add(patience);
        if due > now {
            self.due(due);
            return None;
        }
        has_room(model, class, family, &place).then_some(place)
    }
}

/// The volumes that would be at home where they are used, if there were room, and that place.
#[must_use]
pub fn crowded_out(model: &Model) -> Vec<(String, ClassHome)> {
    let mut users = Users::default();
    let mut found = Vec::new();
    for class in model.classes.values().filter(|class| is_own(&class.name)) {
        let Some(family) = users.look(model).get(class.name.as_str()) else { continue };
        let place = place_of(model, family).filter(|place| class.home.as_ref() != Some(place));
        let Some(place) = place.filter(|place| !has_room(model, class, family, place)) else { continue };
        let volumes = model.volumes.values().filter(|volume| volume.class == class.name);
        found.extend(volumes.map(|volume| (volume.name.clone(), place.clone())));
    }
    found
}

/// The volumes that share own groups.
#[derive(Debug, Default)]
struct Family {
    /// Sum of their sizes.
    bytes: u128,
    /// Where they are written, or were last asked for.
    nodes: BTreeSet<NodeId>,
}

/// All such families, by the name of their groups; gone through when somebody asks.
#[derive(Debug, Default)]
struct Users<'a>(Option<BTreeMap<&'a str, Family>>);

impl<'a> Users<'a> {
    fn look(&mut self, model: &'a Model) -> &BTreeMap<&'a str, Family> {
        self.0.get_or_insert_with(|| {
            let mut families: BTreeMap<&str, Family> = BTreeMap::new();
            for volume in model.volumes.values().filter(|volume| is_own(&volume.class)) {
                let family = families.entry(volume.class.as_str()).or_default();
                family.bytes += u128::from(volume.size_bytes);
                family.nodes.extend(writers(model, volume));
            }
            families
        })
    }
}

/// The nodes through which a volume is written.
fn writers<'a>(model: &'a Model, volume: &VolumeRecord) -> impl Iterator<Item = NodeId> + use<'a> {
    let attachments = model.attachments.get(&volume.id).into_iter().flat_map(|record| &record.attachments);
    attachments.filter(|attachment| !attachment.reads_only).map(|attachment| attachment.node)
}

/// The smallest place with devices that all the nodes are in: a host, its rack or its site.
fn place_of(model: &Model, family: &Family) -> Option<ClassHome> {
    let nodes: Vec<&NodeRecord> =
        family.nodes.iter().filter_map(|node| model.nodes.get(node)).map(|node| &node.record).collect();
    let first = nodes.first()?;
    let rack = (!first.rack.is_empty()).then(|| ClassHome::new(&first.site, Some(&first.rack)));
    let site = (!first.site.is_empty()).then(|| ClassHome::new(&first.site, None));
    let places = [Some(first.as_home()), rack, site];
    places.into_iter().flatten().find(|place| nodes.iter().all(|node| node.is_at(place)) && has_devices(model, place))
}

/// Whether a copy can be given to a device there.
fn has_devices(model: &Model, place: &ClassHome) -> bool {
    let is_there = |node: NodeId| model.nodes.get(&node).is_some_and(|node| node.is_at(place));
    model.devices.values().any(|device| {
        device.capacity_bytes > 0 && device.is_sound() && model.is_device_alive(device.id) && is_there(device.node)
    })
}

/// Whether all volumes that are at home there would fit with these ones when they are full, beside as many further
/// copies of volumes that are at home elsewhere.
fn has_room(model: &Model, class: &ClassRecord, family: &Family, place: &ClassHome) -> bool {
    let room = Room::of(model, place);
    let is_counted = class.home.as_ref().is_some_and(|home| place.contains(home));
    let promised = room.promised_bytes + if is_counted { 0 } else { family.bytes };
    promised * u128::from(class.copies) <= room.capacity_bytes
}

#[cfg(test)]
#[path = "followers_tests.rs"]
mod tests;
