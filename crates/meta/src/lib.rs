//! The cluster's configuration: what nodes, devices, storage classes, placement groups, volumes and layers there are,
//! kept in etcd, or in the embedded server of the same API.
//!
//! - [`server`]: the embedded server.
//! - [`client`]: a small etcd client, one for both.
//! - [`cluster`]: operations on the cluster, as [`MetaClient`].
//!
//! What the records are, and the whole cluster as one value, is `azekura-model`.
//!
//! Nothing here is on the path of client I/O.

pub mod client;
pub mod cluster;
pub mod etcd;
pub mod server;
mod stream;
pub mod time;

pub use cluster::MetaClient;
