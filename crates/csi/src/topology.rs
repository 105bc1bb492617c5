//! Where machines are, in the words of CSI, and which class keeps a copy near them
//! (docs/decisions/0056-class-homes.md).
//!
//! A volume can be used from every machine, so none is bound to a topology: what is asked for chooses among the classes
//! that a StorageClass names.

use azekura_api::{ClassHome, ClassView, NodeView};

use crate::proto::{Topology, TopologyRequirement};

/// What begins the names of the labels that Kubernetes gives its nodes.
const PREFIX: &str = "topology.azekura.io";
const SITE: &str = "site";
const RACK: &str = "rack";
const HOST: &str = "host";

/// Where a machine is.
pub(crate) fn of_node(node: NodeView) -> Topology {
    let named = [(SITE, node.site), (RACK, node.rack), (HOST, node.name)];
    let segments = named.into_iter().filter(|(_, value)| !value.is_empty());
    Topology { segments: segments.map(|(kind, value)| (format!("{PREFIX}/{kind}"), value)).collect() }
}

/// Where a volume is wanted, the best place first; nothing, if it may be anywhere.
pub(crate) fn wanted(request: Option<&TopologyRequirement>) -> Vec<&Topology> {
    let Some(TopologyRequirement { requisite, preferred }) = request else { return Vec::new() };
    preferred.iter().chain(requisite.iter().filter(|place| !preferred.contains(place))).collect()
}

/// The classes that keep a copy near these places, the nearest first; those without a home are near to all. Without
/// places it is all of them, in their order.
pub(crate) fn near<'a>(classes: &[&'a ClassView], places: &[&Topology]) -> Vec<&'a ClassView> {
    if places.is_empty() {
        return classes.to_vec();
    }
    let mut found: Vec<&ClassView> = Vec::new();
    for place in places {
        for class in classes.iter().filter(|class| class.home.as_ref().is_none_or(|home| is_at(home, place))) {
            if !found.iter().any(|known| known.name == class.name) {
                found.push(class);
            }
        }
    }
    found
}

fn is_at(home: &ClassHome, place: &Topology) -> bool {
    let is = |kind: &str, value: &str| place.segments.get(&format!("{PREFIX}/{kind}")).map_or("", |own| own) == value;
    is(SITE, &home.site) && home.rack.as_ref().is_none_or(|rack| is(RACK, rack))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, home: Option<&str>) -> ClassView {
        let home = home.map(|home| home.parse::<ClassHome>().unwrap());
        serde_json::from_value(json!({
            "name": name, "copies": 2, "failure_domain": "host", "ack_rule": "all", "copies_min": 1,
            "overcommit_ratio": 4.0, "io_timeout_seconds": 30, "home": home, "groups": 0, "volumes": 0, "created": "",
        }))
        .unwrap()
    }

    fn place(site: &str, rack: &str) -> Topology {
        let named = [("site", site), ("rack", rack), ("host", "n1")].into_iter().filter(|(_, value)| !value.is_empty());
        Topology { segments: named.map(|(kind, value)| (format!("{PREFIX}/{kind}"), value.to_owned())).collect() }
    }

    #[test]
    fn the_nearest_class_comes_first() {
        let classes = [class("a", Some("a")), class("b", Some("b")), class("b1", Some("b/1")), class("any", None)];
        let classes: Vec<&ClassView> = classes.iter().collect();
        let near = |places: &[Topology]| {
            let places: Vec<&Topology> = places.iter().collect();
            near(&classes, &places).into_iter().map(|class| class.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(near(&[]), ["a", "b", "b1", "any"]);
        assert_eq!(near(&[place("a", "")]), ["a", "any"]);
        assert_eq!(near(&[place("b", "1")]), ["b", "b1", "any"]);
        assert_eq!(near(&[place("b", "2"), place("a", "1")]), ["b", "any", "a"]);
        assert_eq!(near(&[place("c", "")]), ["any"]);
    }

    #[test]
    fn what_is_preferred_comes_before_what_is_possible() {
        let (a, b) = (place("a", ""), place("b", ""));
        let request = TopologyRequirement { requisite: vec![a.clone(), b.clone()], preferred: vec![b.clone()] };
        assert_eq!(wanted(Some(&request)), [&b, &a]);
        assert_eq!(wanted(None), Vec::<&Topology>::new());
    }
}
