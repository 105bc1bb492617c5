#![allow(clippy::unwrap_used)]

use azekura_api::{SnapshotView, VolumeView};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::super::owners::{Owners, Snapshots};
use super::*;

const A: &str = "11111111-2222-3333-4444-555555555555";
const B: &str = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee";
const NOW: u64 = 1_700_000_000;
const OLD: &str = "2023-01-01T00:00:00Z";

fn look() -> Look {
    let (volume_prefix, snapshot_prefix) = ("pvc".to_owned(), "snapshot".to_owned());
    Look { volume_prefix, snapshot_prefix, project: None, age_seconds: 86_400, now: NOW }
}

/// A volume; nodes that it is published to, with whether clients use it there.
fn volume(name: &str, created: &str, nodes: &[(&str, bool)]) -> VolumeView {
    let attachment = |(node, in_use): &(&str, bool)| {
        json!({ "node": 1, "node_name": node, "generation": 1, "shared": false, "pinned": true, "in_use": in_use,
                "since": created })
    };
    serde_json::from_value(json!({
        "name": name, "id": 1, "uuid": "", "size_bytes": 4096, "class": "c", "copies": 2, "access": "exclusive",
        "generation": 1, "attachments": nodes.iter().map(attachment).collect::<Vec<_>>(), "fence_due": false,
        "ack_rule": "all", "created": created,
    }))
    .unwrap()
}

fn snapshot(volume: &str, name: &str, origin: &str) -> SnapshotView {
    serde_json::from_value(json!({
        "volume": volume, "name": name, "layer": 1, "size_bytes": 4096, "created": OLD, "seconds": 0, "nanos": 0,
        "origin": origin, "cut": "",
    }))
    .unwrap()
}

fn persistent(name: &str, handle: &str, driver: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "csi": { "driver": driver, "volumeHandle": handle } } })
}

/// What Kubernetes knows: PersistentVolumes (name, handle), claims, attachments (volume's name, machine).
fn owners(volumes: &[(&str, &str)], claims: &[&str], attachments: &[(&str, &str)]) -> Owners {
    let mut owners = Owners::default();
    owners.snapshots = Some(Snapshots::default());
    volumes.iter().for_each(|(name, handle)| owners.add_volume("d", &persistent(name, handle, "d")));
    claims.iter().for_each(|uid| owners.add_claim(&json!({ "metadata": { "uid": uid } })));
    let nodes = BTreeMap::from([("m1".to_owned(), "n1".to_owned())]);
    for (volume, node) in attachments {
        let entry = json!({ "spec": { "nodeName": node, "source": { "persistentVolumeName": volume } } });
        owners.add_attachment(&nodes, &entry);
    }
    owners
}

/// What is found, with whether it may go.
fn found(volumes: &[VolumeView], snapshots: &[SnapshotView], owners: &Owners) -> Vec<(Kind, String, bool)> {
    let found = look().find(volumes, snapshots, owners);
    found.orphans.into_iter().map(|orphan| (orphan.kind, orphan.name, orphan.stays.is_none())).collect()
}

#[test]
fn names_that_sidecars_give() {
    assert_eq!(uid_in(&format!("pvc-{A}"), "pvc"), Some(A));
    for odd in
        ["pvc-1", "pvc-", "pvc", "data", &format!("pv-{A}"), &format!("pvc-{A}0"), &format!("pvc-{}", "-".repeat(36))]
    {
        assert_eq!(uid_in(odd, "pvc"), None, "{odd}");
    }
    assert_eq!(uid_in(&format!("pvc-{}", B.to_uppercase()), "pvc"), None);
}

#[test]
fn a_volume_is_left_over_when_nobody_names_it() {
    let name = format!("pvc-{A}");
    let volumes = [volume(&name, OLD, &[]), volume("by-hand", OLD, &[])];
    assert_eq!(found(&volumes, &[], &owners(&[], &[], &[])), [(Kind::Volume, name.clone(), true)]);
    // A PersistentVolume, of whatever name and driver; a claim that waits for it.
    assert_eq!(found(&volumes, &[], &owners(&[("other", &name)], &[], &[])), []);
    assert_eq!(found(&volumes, &[], &owners(&[], &[A], &[])), []);
    let mut foreign = Owners::default();
    foreign.add_volume("d", &persistent("x", &name, "another.driver"));
    assert_eq!(found(&volumes, &[], &foreign), []);
    assert!(!foreign.name_volume(&name));
    assert_eq!(found(&volumes, &[], &owners(&[("x", "pvc-x")], &[B], &[])).len(), 1);
}

#[test]
fn what_is_young_or_used_stays() {
    let name = format!("pvc-{A}");
    let nobody = owners(&[], &[], &[]);
    let stays = |created: &str, nodes: &[(&str, bool)], snapshots: &[SnapshotView]| {
        let found = look().find(&[volume(&name, created, nodes)], snapshots, &nobody);
        let of_volume = found.orphans.into_iter().find(|orphan| orphan.kind == Kind::Volume);
        of_volume.unwrap().stays.unwrap_or_default()
    };
    assert_eq!(stays(OLD, &[], &[]), "");
    assert_eq!(stays(&azekura_base::rfc3339_seconds(NOW - 86_399), &[], &[]), "it is not yet 1day old");
    assert_eq!(stays(&azekura_base::rfc3339_seconds(NOW - 86_400), &[], &[]), "");
    assert!(stays("yesterday", &[], &[]).contains("can't be read"));
    assert_eq!(stays(OLD, &[("n1", true)], &[]), "it is attached to n1");
    // The attachment goes first, and the volume with it.
    assert_eq!(stays(OLD, &[("n1", false)], &[]), "");
    let kept = [snapshot(&name, "monday", "person"), snapshot(&name, "auto", "schedule")];
    assert_eq!(stays(OLD, &[], &kept), "snapshots would end with it: monday");
    assert_eq!(stays(OLD, &[], &[snapshot(&name, &format!("snapshot-{B}"), "person")]), "");
}

#[test]
fn attachments_that_kubernetes_does_not_know() {
    let name = format!("pvc-{A}");
    let of = |owners: &Owners, nodes: &[(&str, bool)], name: &str| found(&[volume(name, OLD, nodes)], &[], owners);
    let known = [("pv", name.as_str())];
    assert_eq!(of(&owners(&known, &[], &[("pv", "m1")]), &[("n1", true)], &name), []);
    assert_eq!(of(&owners(&known, &[], &[]), &[("n1", false)], &name), [(Kind::Attachment, name.clone(), true)]);
    assert_eq!(of(&owners(&known, &[], &[]), &[("n1", true)], &name), [(Kind::Attachment, name.clone(), false)]);
    let two = of(&owners(&known, &[], &[("pv", "m1")]), &[("n1", false), ("n2", false)], &name);
    assert_eq!(two, [(Kind::Attachment, name.clone(), true)]);
    // A machine of which nobody says what the driver calls it may be any.
    assert_eq!(of(&owners(&known, &[], &[("pv", "m9")]), &[("n1", false)], &name), []);
    // What people have attached by hand, to volumes that are no PersistentVolumes.
    assert_eq!(of(&owners(&[], &[], &[]), &[("n1", false)], "by-hand"), []);
    // The PersistentVolume is gone, and its attachment is not.
    let left = of(&owners(&[], &[], &[(&name, "m1")]), &[("n1", false)], &format!("accounts/{name}"));
    assert_eq!(left, [(Kind::Volume, format!("accounts/{name}"), false)]);
}

#[test]
fn snapshots_that_kubernetes_does_not_know() {
    let (single, group) = (format!("snapshot-{A}"), format!("group-groupsnapshot-{B}"));
    let all = [snapshot("v", &single, "person"), snapshot("v", &group, "person"), snapshot("v", "monday", "person")];
    let with = |contents: &[Value], groups: Option<&[Value]>| {
        let mut owners = owners(&[], &[], &[]);
        let mut known = Snapshots::default();
        contents.iter().for_each(|content| known.add(content, "snapcontent-"));
        owners.snapshots = Some(known);
        owners.groups = groups.map(|groups| {
            let mut known = Snapshots::default();
            groups.iter().for_each(|content| known.add(content, "groupsnapcontent-"));
            known
        });
        look().find(&[], &all, &owners)
    };
    let names = |found: &Found| found.orphans.iter().map(|orphan| orphan.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&with(&[], Some(&[]))), [format!("v@{group}"), format!("v@{single}")]);
    // By what the driver calls it, by the object that it was made for, by the name of what stands for it.
    for content in [
        json!({ "status": { "snapshotHandle": format!("v@{single}") } }),
        json!({ "spec": { "source": { "snapshotHandle": format!("v@{single}") } } }),
        json!({ "spec": { "volumeSnapshotRef": { "uid": A } } }),
        json!({ "metadata": { "name": format!("snapcontent-{A}") } }),
    ] {
        assert_eq!(names(&with(std::slice::from_ref(&content), Some(&[]))), [format!("v@{group}")], "{content}");
    }
    let handle = json!({ "status": { "volumeGroupSnapshotHandle": group } });
    assert_eq!(names(&with(&[], Some(&[handle]))), [format!("v@{single}")]);
    let member = json!({ "status": { "snapshotHandle": format!("v@{group}") } });
    assert_eq!(names(&with(&[member], Some(&[]))), [format!("v@{single}")]);
    // Without groups in Kubernetes nothing is said of them.
    let unknown = with(&[], None);
    assert_eq!((names(&unknown), unknown.notes.len()), (vec![format!("v@{single}")], 1));
    let found = look().find(&[], &all, &Owners::default());
    assert_eq!((found.orphans.len(), found.notes.len()), (0, 2), "{found:?}");
}

#[test]
fn a_project_alone() {
    let volumes = [volume(&format!("pvc-{A}"), OLD, &[]), volume(&format!("accounts/pvc-{B}"), OLD, &[])];
    let of = |project: &str| {
        let look = Look { project: Some(project.to_owned()), ..look() };
        look.find(&volumes, &[], &owners(&[], &[], &[])).orphans.into_iter().map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(of("accounts"), [format!("accounts/pvc-{B}")]);
    assert_eq!(of("default"), [format!("pvc-{A}")]);
    assert_eq!(of("none"), [""; 0]);
}

proptest! {
    /// Whatever Kubernetes answers, it does no harm; and more owners never make more orphans.
    #[test]
    fn more_owners_never_make_more_orphans(
        texts in prop::collection::vec("[a-z0-9-]{0,40}", 8),
        one in 0..3_usize, more in 0..3_usize,
    ) {
        let name = format!("pvc-{A}");
        let volumes = [volume(&name, OLD, &[("n1", false), ("n2", false)])];
        let snapshots = [snapshot(&name, &format!("snapshot-{B}"), "person")];
        let any = |kind: usize, owners: &mut Owners| {
            let object = json!({
                "metadata": { "name": texts[0], "uid": if kind == 0 { A } else { &texts[1] } },
                "spec": { "csi": { "driver": "d", "volumeHandle": if kind == 1 { &name } else { &texts[2] } },
                          "nodeName": texts[3], "source": { "persistentVolumeName": texts[4], "snapshotHandle": texts[5] },
                          "volumeSnapshotRef": { "uid": if kind == 2 { B } else { &texts[6] } } },
                "status": texts[7],
            });
            owners.add_volume("d", &object);
            owners.add_claim(&object);
            owners.add_attachment(&BTreeMap::new(), &object);
            if let Some(known) = &mut owners.snapshots {
                known.add(&object, "snapcontent-");
            }
        };
        let mut owners = owners(&[], &[], &[]);
        any(one, &mut owners);
        let before = look().find(&volumes, &snapshots, &owners).orphans;
        any(more, &mut owners);
        let after = look().find(&volumes, &snapshots, &owners).orphans;
        let keys = |orphans: &[Orphan]| orphans.iter().map(|it| (it.kind, it.name.clone(), it.node.clone())).collect::<BTreeSet<_>>();
        // An attachment of a volume becomes known by its PersistentVolume; this one's is known by its name already.
        prop_assert!(keys(&after).is_subset(&keys(&before)), "{before:?} {after:?}");
    }
}
