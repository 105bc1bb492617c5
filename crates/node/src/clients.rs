//! Requests of this node's clients.

use crate::effect::Effect;
use crate::node::Node;
use azekura_base::{Generation, VolumeId};
use azekura_gateway::{Backend, Keyring, Op, VolumeView};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Backend for Node {
    fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        self.gateway.volumes()
    }

    fn keys(&self) -> &Keyring {
        self.gateway.keys()
    }

    fn revision(&self) -> u64 {
        Node::revision(self)
    }

    fn has_room(&self, volume: &str) -> bool {
        Node::has_room(self, volume)
    }

    fn is_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        Node::is_ended(self, volume, attachment)
    }

    fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op) {
        Node::submit(self, token, volume, attachment, op);
    }
}

impl Node {
    /// The request of a client that has opened a volume under an attachment; [`Effect::Complete`] with `token` answers
    /// it.
    pub fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op) {
        let now = self.now;
        self.gateway.submit(token, volume, attachment, op, now);
    }

    /// The client that asked for the request of this token is gone.
    pub fn orphan(&mut self, token: u64) {
        self.gateway.orphan(token);
    }

    /// True while more requests on this volume may be submitted.
    #[must_use]
    pub fn has_room(&self, volume: &str) -> bool {
        self.gateway.has_room(volume)
    }

    /// Carries out what the gateway asks for.
    pub(crate) fn run_gateway(&mut self) {
        while let Some(effect) = self.gateway.next_effect() {
            match effect {
                azekura_gateway::Effect::Complete(token, outcome) => {
                    self.effects.push_back(Effect::Complete(token, outcome));
                }
                azekura_gateway::Effect::Rekeyed(number, result) => {
                    self.balance.rekeying.answered(number, result.ok(), self.now);
                }
                azekura_gateway::Effect::Send(to, message) => self.send_to(to, message),
            }
        }
    }
}
