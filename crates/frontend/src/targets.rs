//! Targets of several logical units, which protocols have whose hosts know such (docs/decisions/0060-logical-units.md).

use std::collections::{BTreeMap, BTreeSet};

/// Which volumes are units of which targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    by_name: BTreeMap<String, BTreeMap<u16, String>>,
    volumes: BTreeSet<String>,
}

impl Targets {
    /// There is this target: its units' numbers, and the volumes that they are.
    pub fn add(&mut self, name: &str, units: BTreeMap<u16, String>) {
        self.volumes.extend(units.values().cloned());
        self.by_name.insert(name.to_owned(), units);
    }

    /// The units of a target.
    pub(crate) fn units(&self, name: &str) -> Option<&BTreeMap<u16, String>> {
        self.by_name.get(name)
    }

    /// The names of all, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether a volume is a unit of one.
    pub(crate) fn has_volume(&self, volume: &str) -> bool {
        self.volumes.contains(volume)
    }
}
