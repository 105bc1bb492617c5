//! What a node's data plane tells of layers: what two of them show differently, and what the end of one would give
//! back. Nodes ask each other; this part of the API changes without notice.

use azekura_base::{ChunkIndex, LayerId, PgId};
pub use azekura_base::{Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Query of `GET /v1/node/compare`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CompareQuery {
    /// The configuration says what it says of the layers from this revision on.
    pub revision: u64,
    /// The layer before; without one, everything that the layer after shows is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub from: Option<LayerId>,
    /// The layer after.
    #[cfg_attr(test, schemars(with = "u64"))]
    pub to: LayerId,
    /// The first chunk.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub first: ChunkIndex,
    /// The one behind the last chunk.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub end: ChunkIndex,
    /// Chunks of a group that are compared for one answer, at most.
    pub limit: u32,
    /// The groups: numbers, separated by commas.
    #[serde(serialize_with = "write_groups", deserialize_with = "read_groups")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub groups: Vec<PgId>,
}

fn read_groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PgId>, D::Error> {
    let all = String::deserialize(deserializer)?;
    let number = |word: &str| word.parse().map(PgId).map_err(|_| D::Error::custom(format!("{word:?} is no group")));
    all.split(',').map(number).collect()
}

fn write_groups<S: Serializer>(groups: &[PgId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// What a node has said of one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupDifferences {
    /// The group.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub pg: PgId,
    /// What differs in its chunks, or why that is not told.
    pub told: Result<Differences, NotTold>,
}
