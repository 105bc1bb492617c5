//! Machines that become nodes.

use std::net::SocketAddr;

use azekura_base::{NodeId, PeerKey};
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/join`, which a machine sends with a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JoinCluster {
    /// The node's name.
    pub name: String,
    /// The identity of its data folder.
    pub uuid: String,
    /// The key that it has made, 64 hexadecimal digits.
    #[cfg_attr(test, schemars(with = "String"))]
    pub key: PeerKey,
    /// Where other nodes will reach it.
    #[cfg_attr(test, schemars(with = "String"))]
    pub data_address: SocketAddr,
    /// Its REST API.
    #[cfg_attr(test, schemars(with = "String"))]
    pub api_address: SocketAddr,
    /// Its site.
    #[serde(default)]
    pub site: String,
    /// Its rack.
    #[serde(default)]
    pub rack: String,
    /// The cluster that it finds in its configuration: must be this one.
    #[serde(default)]
    pub cluster: Option<String>,
}

/// A machine that is a node now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JoinedView {
    /// The cluster.
    pub cluster: String,
    /// The node's number.
    #[cfg_attr(test, schemars(with = "u32"))]
    pub node: NodeId,
}
