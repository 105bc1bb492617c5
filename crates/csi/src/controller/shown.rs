//! Volumes and snapshots in the words of CSI.

use azekura_api::{SnapshotView, VolumeView};

use crate::names;
use crate::proto::volume_content_source::{SnapshotSource, Type as Content, VolumeSource};
use crate::proto::{Snapshot, Volume, VolumeContentSource};
use crate::sizes::signed;

use super::wish::Source;

/// A volume. It can be reached from every node, so that no topology is named.
pub(super) fn volume(view: &VolumeView, source: Option<&Source>) -> Volume {
    let content = source.map(|source| match source {
        Source::Snapshot { volume, snapshot } => {
            Content::Snapshot(SnapshotSource { snapshot_id: names::id_of(volume, snapshot) })
        }
        Source::Volume(volume) => Content::Volume(VolumeSource { volume_id: volume.clone() }),
    });
    Volume {
        capacity_bytes: signed(view.size_bytes),
        volume_id: view.name.clone(),
        content_source: content.map(|content| VolumeContentSource { r#type: Some(content) }),
        ..Volume::default()
    }
}

/// The nodes that a volume is published to. What a client has attached by itself ends by itself, and is not named.
pub(super) fn published_to(view: &VolumeView) -> Vec<String> {
    view.attachments.iter().filter(|entry| entry.pinned).map(|entry| entry.node_name.clone()).collect()
}

/// A snapshot. It can be used from the moment on that it is there.
pub(super) fn snapshot(view: &SnapshotView) -> Snapshot {
    Snapshot {
        size_bytes: signed(view.size_bytes),
        snapshot_id: names::id_of(&view.volume, &view.name),
        source_volume_id: view.volume.clone(),
        creation_time: Some(time(view)),
        ready_to_use: true,
        group_snapshot_id: names::group_of(&view.name).unwrap_or_default().to_owned(),
        ..Snapshot::default()
    }
}

/// When a snapshot was made.
pub(super) fn time(view: &SnapshotView) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: signed(view.seconds), nanos: i32::try_from(view.nanos).unwrap_or(0) }
}
