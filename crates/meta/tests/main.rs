//! The client and the server of the configuration, against etcd and against each other.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod client;
mod damage;
mod differential;
mod etcdctl;
mod secured;
mod snapshots;
mod support;
mod users;
