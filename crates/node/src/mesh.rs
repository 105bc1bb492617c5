//! The ways from this shard to all shards, itself included.

use crate::Identity;
use crate::heartbeat::Beats;
use crate::links::Links;
use crate::needs::Needs;
use azekura_wire::Message;
use std::collections::VecDeque;
use std::time::Duration;

/// Connections, what they are for, the heartbeats on them, and what needs no connection.
pub(crate) struct Mesh {
    pub(crate) links: Links,
    pub(crate) needs: Needs,
    pub(crate) beats: Beats,
    /// Messages from this shard to itself.
    pub(crate) to_self: VecDeque<Message>,
}

impl Mesh {
    pub(crate) fn new(identity: Identity, now: Duration) -> Mesh {
        Mesh { links: Links::new(identity), needs: Needs::new(now), beats: Beats::new(now), to_self: VecDeque::new() }
    }
}
