//! How far copies are brought up to date, summed over the cluster, and how fast that goes between two looks.

use std::collections::BTreeMap;

use azekura_base::{DeviceId, PgId};
use azekura_meta::Model;
use serde::{Deserialize, Serialize};

use super::ClusterStats;

/// Copies that are being made or brought up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResyncStatus {
    /// Groups that lack a copy on a living device, or are getting one.
    pub groups: usize,
    /// Of those, the ones whose copy is being sent now; the others wait for their turn.
    pub groups_active: usize,
    /// Chunks that the active ones have to compare.
    pub chunks: u64,
    /// Of those, the ones that are done.
    pub chunks_done: u64,
    /// Payload bytes sent for them.
    pub bytes: u64,
    /// The active ones.
    pub copies: Vec<ResyncView>,
}

/// One copy that is being brought up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResyncView {
    /// The group.
    pub group: PgId,
    /// The device that gets the copy.
    pub device: DeviceId,
    /// Chunks to compare; 0 until they are listed.
    pub chunks: u64,
    /// Of those, the ones that are done.
    pub chunks_done: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}

/// How fast copies are brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ResyncRate {
    /// Payload bytes sent a second.
    pub bytes_per_second: f64,
    /// Chunks done a second.
    pub chunks_per_second: f64,
    /// Estimated time until all copies are in sync, seconds; `None` while nothing moves.
    pub seconds_left: Option<f64>,
}

impl ResyncStatus {
    /// What is under way and what waits; `None` when every copy that can be is in sync.
    #[must_use]
    pub fn of(model: &Model, stats: &ClusterStats) -> Option<ResyncStatus> {
        let lacks = |group: &azekura_meta::model::GroupRecord| {
            let comes = |device: &DeviceId| !group.in_sync.contains(device) && model.is_device_alive(*device);
            group.members.iter().any(comes)
        };
        let mut status =
            ResyncStatus { groups: model.groups.values().filter(|group| lacks(group)).count(), ..Default::default() };
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

    /// The rate between an earlier look and this one, `seconds` apart.
    #[must_use]
    pub fn rate_since(&self, before: Option<&ResyncStatus>, seconds: f64) -> ResyncRate {
        let Some(before) = before else { return ResyncRate::default() };
        let mut former: BTreeMap<(PgId, DeviceId), &ResyncView> =
            before.copies.iter().map(|copy| ((copy.group, copy.device), copy)).collect();
        let (mut bytes, mut chunks) = (0, 0);
        for copy in &self.copies {
            let was = former.remove(&(copy.group, copy.device));
            // One that has been begun anew counts from 0.
            let was = was.filter(|was| was.bytes <= copy.bytes && was.chunks_done <= copy.chunks_done);
            bytes += copy.bytes - was.map_or(0, |was| was.bytes);
            chunks += copy.chunks_done - was.map_or(0, |was| was.chunks_done);
        }
        // What is gone from the list has arrived; how many bytes its last chunks took is not known.
        chunks += former.values().map(|copy| copy.chunks.saturating_sub(copy.chunks_done)).sum::<u64>();
        let (bytes_per_second, chunks_per_second) = (bytes as f64 / seconds, chunks as f64 / seconds);
        let seconds_left = (chunks > 0).then(|| self.chunks_left() / chunks_per_second);
        ResyncRate { bytes_per_second, chunks_per_second, seconds_left }
    }

    /// Chunks still to do; a group that waits is taken to have as many as those under way have on average.
    fn chunks_left(&self) -> f64 {
        let mean = self.chunks as f64 / self.copies.len().max(1) as f64;
        let waiting = self.groups.saturating_sub(self.groups_active) as f64;
        self.chunks.saturating_sub(self.chunks_done) as f64 + waiting * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(groups: usize, copies: &[(u32, u64, u64, u64)]) -> ResyncStatus {
        let copies: Vec<ResyncView> = copies
            .iter()
            .map(|(group, chunks, chunks_done, bytes)| ResyncView {
                group: PgId(*group),
                device: DeviceId(4),
                chunks: *chunks,
                chunks_done: *chunks_done,
                bytes: *bytes,
            })
            .collect();
        ResyncStatus {
            groups,
            groups_active: copies.len(),
            chunks: copies.iter().map(|copy| copy.chunks).sum(),
            chunks_done: copies.iter().map(|copy| copy.chunks_done).sum(),
            bytes: copies.iter().map(|copy| copy.bytes).sum(),
            copies,
        }
    }

    #[test]
    fn rates_between_two_looks() {
        let before = look(4, &[(1, 100, 90, 900), (2, 100, 20, 200)]);
        // Group 1 has arrived, group 3 has begun; one group waits.
        let after = look(3, &[(2, 100, 40, 400), (3, 100, 10, 100)]);
        let rate = after.rate_since(Some(&before), 2.0);
        assert_eq!((rate.bytes_per_second, rate.chunks_per_second), (150.0, 20.0));
        assert_eq!(rate.seconds_left, Some((60.0 + 90.0 + 100.0) / 20.0));
        assert_eq!(after.rate_since(Some(&after), 1.0).seconds_left, None, "nothing moves");
        assert_eq!(after.rate_since(None, 1.0), ResyncRate::default());
        // Begun anew.
        let again = look(1, &[(2, 100, 10, 50)]);
        assert_eq!(again.rate_since(Some(&look(1, &[(2, 100, 40, 400)])), 1.0).bytes_per_second, 50.0);
    }
}
