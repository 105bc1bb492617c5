//! A configuration in memory: executes the same transactions as a configuration server.

use std::ops::Bound;

use crate::transitions::alive::Claim;
use crate::{Change, Condition, KeyValue, Model, Txn, Write};

/// See the module's description. Every change has its own revision.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    model: Model,
}

impl Memory {
    /// An empty configuration.
    #[must_use]
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Everything as it is now.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Executes a change if all its conditions hold. Gives its revision; `None`: one does not hold, and nothing has
    /// changed.
    pub fn run(&mut self, txn: &Txn) -> Option<i64> {
        if !self.holds(txn) {
            return None;
        }
        let mod_revision = self.model.revision + 1;
        let mut changes = Vec::new();
        for write in txn.writes() {
            match write {
                Write::Put(key, value) => {
                    let (key, value) = (key.clone().into_bytes(), value.clone());
                    changes.push(Change::Put(KeyValue { key, value, mod_revision, lease: 0 }));
                }
                Write::Delete(key) => changes.push(Change::Delete(key.clone().into_bytes())),
                Write::DeletePrefix(prefix) => {
                    let keys = self
                        .model
                        .keys
                        .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
                        .map(|(key, _)| key);
                    let keys = keys.take_while(|key| key.starts_with(prefix.as_str()));
                    changes.extend(keys.map(|key| Change::Delete(key.as_bytes().to_vec())));
                }
            }
        }
        self.model.apply(&changes, mod_revision);
        Some(mod_revision)
    }

    fn holds(&self, txn: &Txn) -> bool {
        let current = |key: &str| Condition::of(self.model.key_value(key).as_ref());
        txn.conditions().iter().all(|(key, condition)| current(key) == *condition)
    }

    /// Takes a key that ends with a lease. Gives its revision; `None`: somebody else has it.
    pub fn claim(&mut self, claim: Claim, since: &str) -> Option<i64> {
        self.holds(&claim.conditions()).then(|| self.hold(&claim.key().to_string(), Some(claim.value(since))))
    }

    /// The lease of such a key ends.
    pub fn end(&mut self, claim: Claim) {
        self.hold(&claim.key().to_string(), None);
    }

    /// Sets or ends a key that ends with a lease, such as a sign of life; it has a revision, too.
    pub fn hold(&mut self, key: &str, value: Option<Vec<u8>>) -> i64 {
        let mod_revision = self.model.revision + 1;
        let key = key.as_bytes().to_vec();
        let change = match value {
            Some(value) => Change::Put(KeyValue { key, value, mod_revision, lease: 1 }),
            None => Change::Delete(key),
        };
        self.model.apply(&[change], mod_revision);
        mod_revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(memory: &Memory) -> Vec<&str> {
        memory.model().keys.keys().map(|key| key.rsplit('/').next().unwrap_or_default()).collect()
    }

    #[test]
    fn a_change_happens_as_a_whole_or_not_at_all() {
        let counter = |name: &str| format!("/azekura/v1/counters/{name}");
        let mut memory = Memory::new();
        let first = memory.run(&Txn::new().put(&counter("a"), &1).put(&counter("ab"), &1));
        assert_eq!(first, Some(1));
        let late = Txn::new().when_absent(&counter("a")).put(&counter("c"), &1);
        assert_eq!((memory.run(&late), keys(&memory), memory.model().revision), (None, vec!["a", "ab"], 1));
        let after = Txn::new().when_unchanged(&counter("a"), 1).when_absent(&counter("c")).put(&counter("c"), &2);
        assert_eq!((memory.run(&after), memory.run(&after)), (Some(2), None));
        assert_eq!(memory.model().counters["c"], 2);
        assert_eq!(memory.run(&Txn::new().delete_prefix(&counter("a"))), Some(3));
        assert_eq!(keys(&memory), ["c"]);
    }

    #[test]
    fn a_key_that_ends_with_a_lease_has_a_revision_too() {
        let mut memory = Memory::new();
        let key = crate::Key::Alive(azekura_base::NodeId(1)).to_string();
        let when_absent = Txn::new().when_absent(&key).put("/azekura/v1/counters/a", &1);
        let life = br#"{"node":1,"since":""}"#.to_vec();
        assert_eq!(memory.hold(&key, Some(life)), 1);
        assert_eq!(memory.run(&when_absent), None);
        assert_eq!(memory.run(&Txn::new().when_unchanged(&key, 1)), Some(2));
        memory.hold(&key, None);
        assert_eq!(memory.run(&when_absent), Some(4));
    }
}
