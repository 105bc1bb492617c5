//! Clients' nexuses, for all shards of the process: carries words between them and [`Nexuses`].

use crate::driver::commands::Command;
use crate::driver::messages::Handles;
use azekura_base::Shard;
use azekura_frontend::{Member, Nexus, Nexuses, Word};

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

    /// A connection of a shard wants a nexus.
    pub fn wanted(&mut self, shard: Shard, number: u64, nexus: &Nexus) {
        self.nexuses.wanted(Member { shard, number }, nexus);
        self.tell();
    }

    /// Nothing is left of a connection.
    pub fn over(&mut self, shard: Shard, number: u64) {
        self.nexuses.over(Member { shard, number });
        self.tell();
    }

    fn tell(&mut self) {
        while let Some(word) = self.nexuses.next_word() {
            let (Word::Begin(member) | Word::End(member)) = word;
            self.shards.send(member.shard, Command::Nexus(word));
        }
    }
}
