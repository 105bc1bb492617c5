//! How far copies are brought up to date, summed over the cluster.

use azekura_api::{ClusterStats, ResyncStatus, ResyncView};
use azekura_base::{DeviceId, PgId};
use azekura_model::{GroupRecord, Model};

/// Whether a copy of the group lacks something and can get it.
pub(super) fn lacks_copy(model: &Model, group: &GroupRecord) -> bool {
    group.members.iter().any(|device| !group.in_sync.contains(device) && model.is_device_alive(*device))
}

/// What is under way and what waits; `None` when every copy that can be is in sync.
pub(super) fn status(model: &Model, stats: &ClusterStats) -> Option<ResyncStatus> {
    let lacking = model.groups.values().filter(|group| lacks_copy(model, group)).count();
    let mut status = ResyncStatus { groups: lacking, ..Default::default() };
    let groups = stats.nodes.iter().filter_map(|node| node.snapshot.as_ref()).flat_map(|node| &node.groups);
    for group in groups.filter(|group| !group.resyncs.is_empty()) {
        status.groups_active += 1;
        status.copies.extend(group.resyncs.iter().map(|copy| ResyncView {
            group: PgId(group.id),
            device: DeviceId(copy.device),
            chunks: copy.chunks,
            chunks_done: copy.chunks_done,
            bytes: copy.bytes,
        }));
    }
    // A copy may have arrived since its primary was asked.
    status.groups = status.groups.max(status.groups_active);
    let sum = |value: fn(&ResyncView) -> u64| status.copies.iter().map(value).sum();
    (status.chunks, status.chunks_done, status.bytes) =
        (sum(|copy| copy.chunks), sum(|copy| copy.chunks_done), sum(|copy| copy.bytes));
    (status.groups > 0).then_some(status)
}
