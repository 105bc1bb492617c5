//! Snapshots that end by themselves.

use std::collections::BTreeSet;

use azekura_base::VolumeId;

use azekura_model::Model;

/// Snapshots whose time is over at `now` (seconds since 1970), and those of deleted volumes: all of them are to be
/// deleted.
pub fn step(model: &Model, now: u64) -> impl Iterator<Item = (VolumeId, &str)> {
    let volumes: BTreeSet<VolumeId> = model.volumes.values().map(|volume| volume.id).collect();
    let snapshots = model.snapshots.values();
    let over = snapshots.filter(move |s| s.expires.is_some_and(|at| at <= now) || !volumes.contains(&s.volume));
    over.map(|snapshot| (snapshot.volume, snapshot.name.as_str()))
}

/// When the next one ends by its time, seconds since 1970; `at_once`: none that has ended is left.
#[must_use]
pub fn next(model: &Model, now: u64, at_once: bool) -> Option<u64> {
    model.snapshots.values().filter_map(|snapshot| snapshot.expires).filter(|at| !at_once || *at > now).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::KeyValue;
    use serde_json::json;

    #[test]
    fn snapshots_end_by_their_time_and_with_their_volume() {
        let volume = json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 9,
            "group_offset": 0, "created": "" });
        let snapshot = |volume: u64, expires: Option<u64>| {
            json!({ "volume": volume, "name": "s", "layer": 1, "size_bytes": 4096, "seconds": 1, "origin": "person",
                "cut": "x", "generation": 5, "expires": expires })
        };
        let named = |key: &str, mut record: serde_json::Value, name: &str| {
            record["name"] = name.into();
            let key = format!("/azekura/v1/{key}").into_bytes();
            KeyValue { key, value: record.to_string().into_bytes(), ..KeyValue::default() }
        };
        let kvs = [
            named("volumes/v", volume, "v"),
            named("snapshots/1/a", snapshot(1, None), "a"),
            named("snapshots/1/b", snapshot(1, Some(100)), "b"),
            named("snapshots/1/c", snapshot(1, Some(200)), "c"),
            named("snapshots/2/d", snapshot(2, None), "d"),
        ];
        let model = Model::from_keys(&kvs, 1);
        assert!(model.problems.is_empty(), "{:?}", model.problems);
        let over = |now| step(&model, now).map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!((over(99), over(100), over(200)), (vec!["d"], vec!["b", "d"], vec!["b", "c", "d"]));
        assert_eq!((next(&model, 150, false), next(&model, 150, true)), (Some(100), Some(200)));
    }
}
