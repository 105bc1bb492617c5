//! The ways from this shard to all shards, itself included.

use crate::heartbeat::Beats;
use crate::links::Links;
use azekura_wire::Message;
use std::collections::VecDeque;
use std::time::Duration;

/// Connections, the heartbeats on them, and what needs no connection.
pub(crate) struct Mesh {
    pub(crate) links: Links,
    pub(crate) beats: Beats,
    /// Messages from this shard to itself.
    pub(crate) to_self: VecDeque<Message>,
}

impl Mesh {
    pub(crate) fn new(now: Duration) -> Mesh {
        Mesh { links: Links::default(), beats: Beats::new(now), to_self: VecDeque::new() }
    }
}
