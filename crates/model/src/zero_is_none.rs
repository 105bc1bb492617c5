//! A number that may be missing, as records have it: 0 says that there is none. Processes are counted from 1.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    number.unwrap_or(0).serialize(serializer)
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = u64::deserialize(deserializer)?;
    Ok(Some(number).filter(|number| *number != 0))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Reign {
        #[serde(with = "super")]
        incarnation: Option<u64>,
    }

    #[test]
    fn none_is_written_as_zero() {
        for (incarnation, text) in [(None, "{\"incarnation\":0}"), (Some(7), "{\"incarnation\":7}")] {
            let record = Reign { incarnation };
            assert_eq!(serde_json::to_string(&record).ok().as_deref(), Some(text));
            assert_eq!(serde_json::from_str::<Reign>(text).ok(), Some(record));
        }
    }
}
