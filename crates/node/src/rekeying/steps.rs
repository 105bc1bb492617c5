//! The steps of passes through volumes that get another key.

use super::{ATTACHMENT, BLOCKS_MAX};
use crate::node::Node;
use azekura_base::{RekeyProgress, RekeyWish, VolumeId};
use std::collections::BTreeMap;

impl Node {
    /// All blocks of these volumes are to get the key that is written with, and of no others: the configuration of this
    /// revision says so. [`Node::rekeying`] tells how far that is. Who asks has made sure that nobody writes to them
    /// under a former key any more.
    pub fn rekey(&mut self, wishes: &BTreeMap<VolumeId, RekeyWish>, revision: u64) {
        self.balance.rekeying.follow(wishes, revision);
    }

    /// How far the volumes are that get another key.
    pub fn rekeying(&self) -> impl Iterator<Item = (VolumeId, RekeyProgress)> + '_ {
        self.balance.rekeying.progress()
    }

    /// Asks for the chunks that are next.
    pub(crate) fn run_rekeying(&mut self) {
        let (now, known) = (self.now, self.revision());
        while let Some(next) = self.balance.rekeying.next_chunk(now, known) {
            let (number, volume, chunk, to) = next;
            self.gateway.rekey(number, (volume, ATTACHMENT), (chunk, to), BLOCKS_MAX, now);
        }
    }
}
