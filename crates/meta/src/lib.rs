//! The cluster's configuration: what nodes, devices, storage classes, placement groups, volumes and layers there are,
//! kept in etcd, or in the embedded server of the same API.
//!
//! - [`server`]: the embedded server.
//! - [`client`]: a small etcd client, one for both.
//! - [`model`]: the records, and the whole cluster as one value.
//! - [`history`]: whether the configuration went back.
//! - [`cluster`]: operations on the cluster, as [`MetaClient`].
//!
//! Nothing here is on the path of client I/O.

pub mod client;
pub mod cluster;
mod error;
pub mod etcd;
pub mod history;
pub mod model;
pub mod server;
mod stream;
pub mod time;

pub use cluster::MetaClient;
pub use error::{Kind, MetaError};
pub use model::Model;
