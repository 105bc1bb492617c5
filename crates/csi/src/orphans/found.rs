//! What nobody owns. Pure: from what the cluster has and what Kubernetes knows.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azekura_api::{SnapshotOrigin, SnapshotView, VolumeView};
use azekura_base::project_of;
use serde::Serialize;

use super::owners::Owners;
use crate::names;

/// What stands before the identity of a VolumeGroupSnapshot in the names that the snapshotter gives.
const GROUPED: &str = "groupsnapshot";

/// How names look that were given by sidecars, and what is looked at.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// What stands before the identity of a claim in names of volumes: `pvc` (external-provisioner,
    /// `--volume-name-prefix`).
    pub(super) volume_prefix: String,
    /// The same of snapshots: `snapshot` (external-snapshotter, `--snapshot-name-prefix`).
    pub(super) snapshot_prefix: String,
    /// Only the volumes of this project.
    pub(super) project: Option<String>,
    /// What is younger may be about to get its owner.
    pub(super) age_seconds: u64,
    /// Seconds since 1970.
    pub(super) now: u64,
}

/// A kind of thing that may be left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Attachment,
    Snapshot,
    Volume,
}

/// Something that nobody owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Orphan {
    pub(super) kind: Kind,
    /// The volume, or `VOLUME@SNAPSHOT`.
    pub(super) name: String,
    /// The node, of an attachment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// The size of a volume or snapshot, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size_bytes: Option<u64>,
    /// Since when it is there, RFC 3339.
    pub(super) since: String,
    /// How long that is, seconds; nothing where the time can't be read.
    pub(super) age_seconds: Option<u64>,
    /// Why it is not to be deleted, or not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stays: Option<String>,
}

/// All that was found, and what nothing can be said of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Found {
    pub(super) orphans: Vec<Orphan>,
    pub(super) notes: Vec<String>,
}

/// The identity in a name that a sidecar gives: `PREFIX-` and a UUID (RFC 9562, 4).
fn uid_in<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let uid = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    (uid.len() == 36 && uid.bytes().enumerate().all(fits)).then_some(uid)
}

/// A volume's name in its project.
fn name_of(volume: &str) -> &str {
    volume.split_once('/').map_or(volume, |(_, name)| name)
}

impl Look {
    fn looks_at(&self, volume: &str) -> bool {
        self.project.as_deref().is_none_or(|project| project_of(volume) == project)
    }

    fn claim_of<'a>(&self, volume: &'a str) -> Option<&'a str> {
        uid_in(name_of(volume), &self.volume_prefix)
    }

    fn age(&self, since: &str) -> Option<u64> {
        let time: SystemTime = humantime::parse_rfc3339(since).ok()?;
        Some(self.now.saturating_sub(time.duration_since(UNIX_EPOCH).ok()?.as_secs()))
    }

    fn orphan(&self, kind: Kind, name: String, since: &str, stays: Option<String>) -> Orphan {
        let age_seconds = self.age(since);
        let young = match age_seconds {
            None => Some("when it was made can't be read".to_owned()),
            Some(age) if age < self.age_seconds => {
                let least = humantime::format_duration(Duration::from_secs(self.age_seconds));
                Some(format!("it is not yet {least} old"))
            }
            Some(_) => None,
        };
        let stays = stays.or(young);
        Orphan { kind, name, node: None, size_bytes: None, since: since.to_owned(), age_seconds, stays }
    }

    /// What nobody owns of these volumes and snapshots.
    pub(super) fn find(&self, volumes: &[VolumeView], snapshots: &[SnapshotView], owners: &Owners) -> Found {
        let mut found = Found::default();
        let seen: Vec<&VolumeView> = volumes.iter().filter(|volume| self.looks_at(&volume.name)).collect();
        for volume in &seen {
            found.orphans.extend(self.attachments(volume, owners));
        }
        let snapshots: Vec<&SnapshotView> =
            snapshots.iter().filter(|snapshot| self.looks_at(&snapshot.volume)).collect();
        for snapshot in &snapshots {
            match self.snapshot(snapshot, owners) {
                Told::Owned => {}
                Told::Nobodys(orphan) => found.orphans.push(orphan),
                Told::Unknown(note) if found.notes.contains(&note) => {}
                Told::Unknown(note) => found.notes.push(note),
            }
        }
        let goes = |orphan: &&Orphan| orphan.stays.is_none();
        let ends: BTreeSet<(Kind, String, Option<String>)> = found
            .orphans
            .iter()
            .filter(goes)
            .map(|orphan| (orphan.kind, orphan.name.clone(), orphan.node.clone()))
            .collect();
        for volume in seen {
            found.orphans.extend(self.volume(volume, &snapshots, owners, &ends));
        }
        found.orphans.sort_by(|a, b| (a.kind, &a.name, &a.node).cmp(&(b.kind, &b.name, &b.node)));
        found
    }

    /// Publications that Kubernetes does not know. What clients have attached by themselves ends by itself.
    fn attachments(&self, volume: &VolumeView, owners: &Owners) -> Vec<Orphan> {
        // What people attach by hand is theirs.
        if self.claim_of(&volume.name).is_none() && !owners.name_volume(&volume.name) {
            return Vec::new();
        }
        let pinned = volume.attachments.iter().filter(|entry| entry.pinned);
        let nobodys = pinned.filter(|entry| !owners.own_attachment(&volume.name, &entry.node_name));
        nobodys
            .map(|entry| {
                let used = entry.in_use.then(|| format!("clients use it on {}", entry.node_name));
                let orphan = self.orphan(Kind::Attachment, volume.name.clone(), &entry.since, used);
                Orphan { node: Some(entry.node_name.clone()), ..orphan }
            })
            .collect()
    }

    fn snapshot(&self, snapshot: &SnapshotView, owners: &Owners) -> Told {
        if snapshot.origin != SnapshotOrigin::Person {
            return Told::Owned;
        }
        let id = names::id_of(&snapshot.volume, &snapshot.name);
        let single = uid_in(&snapshot.name, &self.snapshot_prefix);
        let inner = snapshot.name.strip_prefix("group-").and_then(|name| uid_in(name, GROUPED));
        let owned = |known: &super::owners::Snapshots, uid| known.owns(&id, uid);
        let (uid, known, is_owned) = match (single, inner) {
            (Some(uid), _) => (uid, owners.snapshots.as_ref(), false),
            // Its members are snapshots of their own to Kubernetes, too.
            (None, Some(uid)) => {
                let by_member = owners.snapshots.as_ref().is_some_and(|known| owned(known, uid));
                (uid, owners.groups.as_ref(), by_member)
            }
            (None, None) => return Told::Owned,
        };
        let Some(known) = known else {
            let what = if single.is_some() { "snapshots" } else { "groups of snapshots" };
            return Told::Unknown(format!("Kubernetes knows no {what} here, so nothing is said of them"));
        };
        if is_owned || owned(known, uid) || known.owns(&snapshot.name, uid) {
            return Told::Owned;
        }
        // Clones never need their source.
        let orphan = self.orphan(Kind::Snapshot, id, &snapshot.created, None);
        Told::Nobodys(Orphan { size_bytes: Some(snapshot.size_bytes), ..orphan })
    }

    /// A volume without an owner. `ends`: what goes before.
    fn volume(
        &self,
        volume: &VolumeView,
        snapshots: &[&SnapshotView],
        owners: &Owners,
        ends: &BTreeSet<(Kind, String, Option<String>)>,
    ) -> Option<Orphan> {
        let uid = self.claim_of(&volume.name)?;
        if owners.own_volume(&volume.name, uid) {
            return None;
        }
        let attached: Vec<&str> = volume
            .attachments
            .iter()
            .filter(|entry| {
                let key = (Kind::Attachment, volume.name.clone(), Some(entry.node_name.clone()));
                entry.in_use || !ends.contains(&key)
            })
            .map(|entry| entry.node_name.as_str())
            .collect();
        let kept: Vec<&str> = snapshots
            .iter()
            .filter(|snapshot| snapshot.volume == volume.name && snapshot.origin == SnapshotOrigin::Person)
            .filter(|snapshot| !ends.contains(&(Kind::Snapshot, names::id_of(&snapshot.volume, &snapshot.name), None)))
            .map(|snapshot| snapshot.name.as_str())
            .collect();
        let stays = match (&attached[..], &kept[..]) {
            ([], []) => None,
            ([], kept) => Some(format!("snapshots would end with it: {}", kept.join(", "))),
            (attached, _) => Some(format!("it is attached to {}", attached.join(", "))),
        };
        let orphan = self.orphan(Kind::Volume, volume.name.clone(), &volume.created, stays);
        Some(Orphan { size_bytes: Some(volume.size_bytes), ..orphan })
    }
}

/// What is known of a snapshot.
enum Told {
    /// Somebody's, or none that the driver has made.
    Owned,
    Nobodys(Orphan),
    /// Kubernetes can't tell: a note.
    Unknown(String),
}

#[cfg(test)]
#[path = "found_tests.rs"]
mod tests;
