//! Who owns what, as Kubernetes knows it. In doubt somebody owns it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::kubernetes::text;

/// Snapshots of one kind, single or in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshots {
    /// What the driver calls them.
    handles: BTreeSet<String>,
    /// Identities of the objects that people have made, of which the driver's names are made.
    uids: BTreeSet<String>,
}

impl Snapshots {
    /// Adds a VolumeSnapshotContent or VolumeGroupSnapshotContent. `prefix`: what stands before an object's identity in
    /// the names of those that the snapshot controller makes.
    pub(super) fn add(&mut self, content: &Value, prefix: &str) {
        let handles = [
            "/status/snapshotHandle",
            "/spec/source/snapshotHandle",
            "/status/volumeGroupSnapshotHandle",
            "/spec/source/groupSnapshotHandles/volumeGroupSnapshotHandle",
        ];
        self.handles.extend(handles.iter().filter_map(|pointer| text(content, pointer)));
        let named = text(content, "/metadata/name").and_then(|name| name.strip_prefix(prefix).map(str::to_owned));
        let of_object = ["/spec/volumeSnapshotRef/uid", "/spec/volumeGroupSnapshotRef/uid"];
        self.uids.extend(named.into_iter().chain(of_object.iter().filter_map(|pointer| text(content, pointer))));
    }

    pub(super) fn owns(&self, handle: &str, uid: &str) -> bool {
        self.handles.contains(handle) || self.uids.contains(uid)
    }
}

/// All that Kubernetes knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owners {
    /// Volumes of PersistentVolumes, of any driver: one may run by another name.
    handles: BTreeSet<String>,
    /// Those of this driver.
    pub(super) ours: BTreeSet<String>,
    /// What PersistentVolumes are called, and their volumes.
    volumes: BTreeMap<String, String>,
    /// Identities of claims, of which names of volumes are made.
    claims: BTreeSet<String>,
    /// Volumes, and the nodes that they are attached to; without one: nobody knows which.
    attachments: BTreeSet<(String, Option<String>)>,
    /// Nothing where Kubernetes does not have such: then nothing is known of them.
    pub(super) snapshots: Option<Snapshots>,
    pub(super) groups: Option<Snapshots>,
}

impl Owners {
    pub(super) fn add_volume(&mut self, driver: &str, volume: &Value) {
        let Some(handle) = text(volume, "/spec/csi/volumeHandle") else { return };
        if text(volume, "/spec/csi/driver").as_deref() == Some(driver) {
            self.ours.insert(handle.clone());
        }
        if let Some(name) = text(volume, "/metadata/name") {
            self.volumes.insert(name, handle.clone());
        }
        self.claims.extend(text(volume, "/spec/claimRef/uid"));
        self.handles.insert(handle);
    }

    pub(super) fn add_claim(&mut self, claim: &Value) {
        self.claims.extend(text(claim, "/metadata/uid"));
    }

    /// `nodes`: what machines are called by the driver, by their names in Kubernetes. Comes after the volumes.
    pub(super) fn add_attachment(&mut self, nodes: &BTreeMap<String, String>, entry: &Value) {
        let node = text(entry, "/spec/nodeName").and_then(|name| nodes.get(&name).cloned());
        let inline = text(entry, "/spec/source/inlineVolumeSpec/csi/volumeHandle");
        let named = text(entry, "/spec/source/persistentVolumeName");
        // A PersistentVolume that is gone already: its name is that of the volume, unless somebody has made it by hand.
        let of_name = named.map(|name| self.volumes.get(&name).cloned().unwrap_or(name));
        self.attachments.extend(inline.or(of_name).map(|volume| (volume, node)));
    }

    /// Whether a volume is somebody's. `uid`: that of the claim that it was made for.
    pub(super) fn own_volume(&self, name: &str, uid: &str) -> bool {
        self.handles.contains(name) || self.claims.contains(uid)
    }

    /// Whether the volume is in a PersistentVolume of this driver.
    pub(super) fn name_volume(&self, name: &str) -> bool {
        self.ours.contains(name)
    }

    /// Whether a volume is to be attached to a node.
    pub(super) fn own_attachment(&self, volume: &str, node: &str) -> bool {
        let last = volume.rsplit('/').next().unwrap_or(volume);
        [volume, last].iter().any(|name| {
            [Some(node.to_owned()), None].into_iter().any(|at| self.attachments.contains(&((*name).to_owned(), at)))
        })
    }
}
