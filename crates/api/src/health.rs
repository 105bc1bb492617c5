//! Whether a node serves, and whether it is ready, for load balancers and probes.

use serde::{Deserialize, Serialize};

/// A node that serves. One that does not answers with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HealthView {
    /// The data plane answers. Always true.
    pub serving: bool,
    /// The configuration answers. I/O goes on without it.
    pub configuration_reachable: bool,
    /// The configuration has not answered for so long, seconds.
    pub configuration_away_seconds: Option<u64>,
    /// `reachable`, or why the configuration does not answer.
    pub configuration: String,
}

/// A node that is ready. One that is not answers with an error that says for what it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReadyView {
    /// All that the node has is in service. Always true.
    pub ready: bool,
}
