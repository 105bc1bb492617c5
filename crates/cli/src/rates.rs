//! How fast copies are brought up to date, between two looks.

use std::collections::BTreeMap;

use azekura_api::{ResyncStatus, ResyncView};
use azekura_base::{DeviceId, PgId};
use serde::Serialize;

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

/// The rate between an earlier look and another one, `seconds` apart.
pub fn rate(now: &ResyncStatus, before: Option<&ResyncStatus>, seconds: f64) -> ResyncRate {
    let Some(before) = before else { return ResyncRate::default() };
    let mut former: BTreeMap<(PgId, DeviceId), &ResyncView> =
        before.copies.iter().map(|copy| ((copy.group, copy.device), copy)).collect();
    let (mut bytes, mut chunks) = (0, 0);
    for copy in &now.copies {
        let was = former.remove(&(copy.group, copy.device));
        // One that has been begun anew counts from 0.
        let was = was.filter(|was| was.bytes <= copy.bytes && was.chunks_done <= copy.chunks_done);
        bytes += copy.bytes - was.map_or(0, |was| was.bytes);
        chunks += copy.chunks_done - was.map_or(0, |was| was.chunks_done);
    }
    // What is gone from the list has arrived; how many bytes its last chunks took is not known.
    chunks += former.values().map(|copy| copy.chunks.saturating_sub(copy.chunks_done)).sum::<u64>();
    let (bytes_per_second, chunks_per_second) = (bytes as f64 / seconds, chunks as f64 / seconds);
    let seconds_left = (chunks > 0).then(|| chunks_left(now) / chunks_per_second);
    ResyncRate { bytes_per_second, chunks_per_second, seconds_left }
}

/// Chunks still to do; a group that waits is taken to have as many as those under way have on average.
fn chunks_left(now: &ResyncStatus) -> f64 {
    let mean = now.chunks as f64 / now.copies.len().max(1) as f64;
    let waiting = now.groups.saturating_sub(now.groups_active) as f64;
    now.chunks.saturating_sub(now.chunks_done) as f64 + waiting * mean
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
        let rate = rate(&after, Some(&before), 2.0);
        assert_eq!((rate.bytes_per_second, rate.chunks_per_second), (150.0, 20.0));
        assert_eq!(rate.seconds_left, Some((60.0 + 90.0 + 100.0) / 20.0));
        assert_eq!(super::rate(&after, Some(&after), 1.0).seconds_left, None, "nothing moves");
        assert_eq!(super::rate(&after, None, 1.0), ResyncRate::default());
        // Begun anew.
        let again = look(1, &[(2, 100, 10, 50)]);
        assert_eq!(super::rate(&again, Some(&look(1, &[(2, 100, 40, 400)])), 1.0).bytes_per_second, 50.0);
    }
}
