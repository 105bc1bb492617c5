//! The record of the cluster: which one it is, and what a version has to understand to be a node of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{RestoredRecord, UNDERSTOOD, Unknown};

/// The cluster's identity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct ClusterRecord {
    /// 128 random bits as 32 hexadecimal digits; devices and messages carry it.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// The life of this configuration: 128 random bits, new whenever somebody says that the configuration was restored
    /// from a backup. A node that has seen another life does not believe the configuration, unless that one is a former
    /// life.
    pub life: String,
    /// The lives before, the oldest first.
    pub former_lives: Vec<String>,
    /// The configuration was restored, and not all groups are open again since.
    pub restored: Option<RestoredRecord>,
    /// What versions have to understand that are to be nodes: others would take what is kept for something else
    /// (docs/decisions/0057-going-back.md). Words as in [`crate::NodeRecord::understands`].
    pub requires: BTreeSet<String>,
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// How it is kept. Versions before `requires` would pass that over: so that none of them starts, `restored` is then a
/// sentence, which they can't read and show, and what was restored stands in `restoration`.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    id: String,
    name: String,
    created: String,
    #[serde(default)]
    life: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former_lives: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restored: Option<Restored>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restoration: Option<RestoredRecord>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    requires: BTreeSet<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Restored {
    Told(String),
    Record(RestoredRecord),
}

impl From<Kept> for ClusterRecord {
    fn from(kept: Kept) -> ClusterRecord {
        let Kept { id, name, created, life, former_lives, restored, restoration, requires, unknown } = kept;
        let restored = match restored {
            Some(Restored::Record(record)) => Some(record),
            Some(Restored::Told(_)) | None => restoration,
        };
        ClusterRecord { id, name, created, life, former_lives, restored, requires, unknown }
    }
}

impl From<ClusterRecord> for Kept {
    fn from(record: ClusterRecord) -> Kept {
        let ClusterRecord { id, name, created, life, former_lives, restored, requires, unknown } = record;
        let (restored, restoration) = if requires.is_empty() {
            (restored.map(Restored::Record), None)
        } else {
            let words: Vec<&str> = requires.iter().map(String::as_str).collect();
            let told = format!(
                "this cluster needs a later version of azekura, which understands {}: start that one, and leave this record as it is",
                words.join(", ")
            );
            (Some(Restored::Told(told)), restored)
        };
        Kept { id, name, created, life, former_lives, restored, restoration, requires, unknown }
    }
}

impl ClusterRecord {
    /// The id as a number; `None` when somebody broke the record.
    #[must_use]
    pub fn number(&self) -> Option<u128> {
        (self.id.len() == 32).then(|| u128::from_str_radix(&self.id, 16).ok()).flatten()
    }

    /// What it requires and this version does not understand.
    #[must_use]
    pub fn not_understood(&self) -> Vec<&str> {
        let understood = |word: &&str| UNDERSTOOD.contains(word);
        self.requires.iter().map(String::as_str).filter(|word| !understood(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KEY_GENERATIONS;
    use serde_json::{Value, json};

    fn plain() -> Value {
        json!({ "id": "a".repeat(32), "name": "x", "created": "t", "life": "b", "of_later": 1 })
    }

    fn read(record: Value) -> ClusterRecord {
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_record_that_requires_nothing_is_kept_as_it_always_was() {
        let restored = json!({ "at": "t", "under_way": true, "without": [3] });
        for restored in [None, Some(restored)] {
            let mut record = plain();
            record["former_lives"] = json!(["a"]);
            if let Some(restored) = restored {
                record["restored"] = restored;
            }
            assert_eq!(serde_json::to_value(read(record.clone())).unwrap(), record);
        }
    }

    /// As far as versions before `requires` know it: what is there of the record has these types.
    #[derive(Debug, Deserialize)]
    struct OfBefore {
        #[serde(default, rename = "restored")]
        _restored: Option<RestoredRecord>,
    }

    #[test]
    fn versions_before_can_not_read_a_record_that_requires_something_and_say_why() {
        let restored = RestoredRecord { at: "t".into(), ..RestoredRecord::default() };
        for restored in [None, Some(restored)] {
            let requires = BTreeSet::from([KEY_GENERATIONS.to_owned()]);
            let record = ClusterRecord { requires, restored, ..read(plain()) };
            let kept = serde_json::to_string(&record).unwrap();
            assert_eq!(read(serde_json::from_str(&kept).unwrap()), record);
            let refused = serde_json::from_str::<OfBefore>(&kept).unwrap_err().to_string();
            assert!(refused.contains("needs a later version") && refused.contains(KEY_GENERATIONS), "{refused}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let mut record = plain();
        record["requires"] = json!(["key-generations", "wings", "encryption"]);
        assert_eq!(read(record).not_understood(), ["wings"]);
        assert!(read(plain()).not_understood().is_empty());
    }
}
