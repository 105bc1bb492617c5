//! Cuts that nobody finishes are called off: a volume must not stand still because the node that was making its
//! snapshot has died.

use std::collections::BTreeMap;
use std::time::Duration;

use azekura_model::Model;

/// A cut that has not been finished for so long will not be: whoever makes it gives up before. Measured from when this
/// leader first saw the cut.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// A cut that is late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCut {
    /// Its id.
    pub id: String,
    /// The names of its volumes.
    pub volumes: Vec<String>,
}

/// Cuts under way, and since when this leader has seen them.
#[derive(Debug, Default)]
pub struct Seen {
    cuts: BTreeMap<String, Duration>,
}

impl Seen {
    /// The cuts that are late at `now`, on any clock that stands never still.
    pub fn step(&mut self, model: &Model, now: Duration) -> Vec<LateCut> {
        let mut under_way: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for volume in model.volumes.values() {
            if let Some(cut) = &volume.cut {
                under_way.entry(&cut.id).or_default().push(volume.name.clone());
            }
        }
        self.cuts.retain(|id, _| under_way.contains_key(id.as_str()));
        let mut late = Vec::new();
        for (id, volumes) in under_way {
            let since = *self.cuts.entry(id.to_owned()).or_insert(now);
            if now.saturating_sub(since) >= PATIENCE {
                late.push(LateCut { id: id.to_owned(), volumes });
            }
        }
        late
    }

    /// When the next one will be late.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.cuts.values().map(|since| *since + PATIENCE).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::KeyValue;
    use serde_json::json;

    fn model(cut: Option<&str>) -> Model {
        let cut = cut.map(|id| json!({ "id": id, "node": 1, "next": 2, "seconds": 1 }));
        let volume = json!({ "id": 1, "uuid": "u", "name": "v", "size_bytes": 4096, "class": "c", "head": 1,
            "group_offset": 0, "created": "", "cut": cut });
        let (key, value) = (b"/azekura/v1/volumes/v".to_vec(), volume.to_string().into_bytes());
        let model = Model::from_keys(&[KeyValue { key, value, ..KeyValue::default() }], 1);
        assert!(model.problems.is_empty(), "{:?}", model.problems);
        model
    }

    #[test]
    fn a_cut_is_late_when_this_leader_has_seen_it_for_so_long() {
        let (mut seen, second) = (Seen::default(), Duration::from_secs(1));
        assert_eq!((seen.step(&model(None), 9 * second), seen.next()), (vec![], None));
        assert_eq!((seen.step(&model(Some("a")), 10 * second), seen.next()), (vec![], Some(14 * second)));
        assert_eq!(seen.step(&model(Some("b")), 13 * second), [], "another one");
        assert_eq!(seen.step(&model(Some("b")), 16 * second), []);
        let late = LateCut { id: "b".into(), volumes: vec!["v".into()] };
        assert_eq!(seen.step(&model(Some("b")), 17 * second), [late]);
        assert_eq!((seen.step(&model(None), 18 * second), seen.next()), (vec![], None));
    }
}
