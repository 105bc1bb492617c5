//! Keys that live as long as their holder: a node's sign of life, and the leadership of the control plane.

use azekura_base::NodeId;

use crate::{AliveRecord, Key, LeaderRecord, Model, Txn, encode};

/// Such a key ends this long after its holder's last renewal.
pub const LIFE_TTL_SECONDS: i64 = 5;

/// A key to hold, and who wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A node's sign of life. Whoever runs as this node has it: it is never somebody else's.
    Alive(NodeId),
    /// The leadership, which one node has at a time.
    Leader(NodeId),
}

impl Claim {
    /// The key.
    #[must_use]
    pub fn key(self) -> Key<'static> {
        match self {
            Claim::Alive(node) => Key::Alive(node),
            Claim::Leader(_) => Key::Leader,
        }
    }

    /// What it holds; `since`: the time, RFC 3339.
    #[must_use]
    pub fn value(self, since: &str) -> Vec<u8> {
        let since = since.to_owned();
        match self {
            Claim::Alive(node) => encode(&AliveRecord { node, since }),
            Claim::Leader(node) => encode(&LeaderRecord { node, since }),
        }
    }

    /// What must hold for the key to be taken; then it is written with its lease.
    pub fn conditions(self) -> Txn {
        match self {
            Claim::Alive(_) => Txn::new(),
            Claim::Leader(_) => Txn::new().when_absent(&self.key().to_string()),
        }
    }

    /// Whether somebody else has it, or the node may not have it, for it is shut out.
    #[must_use]
    pub fn is_taken(self, model: &Model) -> bool {
        matches!(self, Claim::Leader(_)) && model.leader.is_some() || self.is_barred(model)
    }

    fn is_barred(self, model: &Model) -> bool {
        let (Claim::Alive(node) | Claim::Leader(node)) = self;
        model.nodes.get(&node).is_some_and(|node| node.shut_out.is_some())
    }

    /// Whether a key that was taken in this revision is known to be lost again. A node's sign of life may have been
    /// renewed by a later process of it.
    #[must_use]
    pub fn is_lost(self, model: &Model, mod_revision: i64) -> bool {
        let is_present = match self {
            Claim::Alive(node) => model.alive.get(&node).is_some_and(|alive| alive.mod_revision >= mod_revision),
            Claim::Leader(_) => model.leader.as_ref().is_some_and(|leader| leader.mod_revision == mod_revision),
        };
        model.revision >= mod_revision && (!is_present || self.is_barred(model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn one_node_leads_and_every_process_of_a_node_shows_that_it_lives() {
        let mut memory = Memory::new();
        let (one, two) = (Claim::Leader(NodeId(1)), Claim::Leader(NodeId(2)));
        let first = memory.claim(one, "t").unwrap();
        assert!(two.is_taken(memory.model()));
        assert_eq!(memory.claim(two, "t"), None);
        assert!(!one.is_lost(memory.model(), first));
        memory.end(one);
        assert!(one.is_lost(memory.model(), first) && !two.is_taken(memory.model()));
        memory.claim(two, "t").unwrap();
        assert!(one.is_lost(memory.model(), first), "another one leads");
        let alive = Claim::Alive(NodeId(1));
        let before = memory.claim(alive, "t").unwrap();
        assert!(memory.claim(alive, "u").is_some_and(|after| after > before));
        assert!(!alive.is_lost(memory.model(), before) && !alive.is_taken(memory.model()));
        assert!(!alive.is_lost(&Model::default(), before), "the model is older");
        memory.end(alive);
        assert!(alive.is_lost(memory.model(), before));
    }
}
