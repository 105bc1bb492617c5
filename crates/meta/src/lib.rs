//! The cluster's configuration: what nodes, devices, storage classes, placement groups, volumes and layers there are.
pub mod etcd;
pub mod server;
