//! Clients' nexuses, for all shards of the process: carries words between them and [`Nexuses`].

use crate::driver::commands::Command;
use crate::driver::messages::Handles;
use azekura_base::Shard;
use azekura_frontend::{Member, News, Nexuses};

/// The nexuses of this process.
pub struct NexusKeeper {
    shards: Handles,
    nexuses: Nexuses,
}

impl NexusKeeper {
    /// There are none.
    pub fn new(shards: Handles) -> NexusKeeper {
        NexusKeeper { shards, nexuses: Nexuses::default() }
    }

    /// A shard says something of one of its connections.
    pub fn heard(&mut self, shard: Shard, number: u64, news: News) {
        self.nexuses.heard(Member { shard, number }, news);
        while let Some(word) = self.nexuses.next_word() {
            self.shards.send(word.member().shard, Command::Nexus(word));
        }
    }
}
