//! Fences that wait until what was ordered before them is committed.

use crate::action::Client;
use azekura_base::{RequestId, Sequence};

/// Fences of one group that wait for an answer; further ones are asked to come again.
const FENCES_MAX: usize = 1024;

/// Fences that wait until what was ordered before them is committed.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    waiting: Vec<(Sequence, Client, RequestId)>,
}

impl Fences {
    /// Further ones are asked to come again.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= FENCES_MAX
    }

    /// `client` is answered when everything up to `upto` is committed.
    pub(super) fn wait(&mut self, upto: Sequence, client: Client, request: RequestId) {
        self.waiting.push((upto, client, request));
    }

    /// Takes out those that wait for nothing after `committed`.
    pub(super) fn reached(&mut self, committed: Sequence) -> Vec<(Client, RequestId)> {
        let reached = self.waiting.extract_if(.., |(upto, ..)| *upto <= committed);
        reached.map(|(_, client, request)| (client, request)).collect()
    }
}
