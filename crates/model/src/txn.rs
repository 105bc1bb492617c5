//! A change of the configuration: conditions on keys' revisions, and writes when all of them hold.

use crate::KeyValue;
use serde::Serialize;

/// A change that happens as a whole, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Txn {
    conditions: Vec<(String, Condition)>,
    writes: Vec<Write>,
}

/// What a [`Txn`] asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is not there.
    Absent,
    /// It is there, and was last changed at this revision.
    Unchanged(i64),
}

/// A write of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The key gets this value.
    Put(String, Vec<u8>),
    /// The key goes, if it is there.
    Delete(String),
    /// Every key goes that starts with this.
    DeletePrefix(String),
}

impl Txn {
    /// A change of nothing.
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Only if the key is so.
    pub fn when(mut self, key: &str, condition: Condition) -> Txn {
        self.conditions.push((key.to_owned(), condition));
        self
    }

    /// Only if the key was last changed at this revision.
    pub fn when_unchanged(self, key: &str, mod_revision: i64) -> Txn {
        self.when(key, Condition::Unchanged(mod_revision))
    }

    /// Only if the key is not there.
    pub fn when_absent(self, key: &str) -> Txn {
        self.when(key, Condition::Absent)
    }

    /// Writes a record, or another value that is JSON.
    pub fn put<T: Serialize>(mut self, key: &str, record: &T) -> Txn {
        self.writes.push(Write::Put(key.to_owned(), encode(record)));
        self
    }

    /// Deletes a key.
    pub fn delete(mut self, key: &str) -> Txn {
        self.writes.push(Write::Delete(key.to_owned()));
        self
    }

    /// Deletes every key that starts with `prefix`.
    pub fn delete_prefix(mut self, prefix: &str) -> Txn {
        self.writes.push(Write::DeletePrefix(prefix.to_owned()));
        self
    }

    /// Keys, and how they must be: all of them.
    #[must_use]
    pub fn conditions(&self) -> &[(String, Condition)] {
        &self.conditions
    }

    /// What is written then, in this order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }
}

impl Condition {
    /// The condition that holds now of a key that has this value.
    pub(crate) fn of(kv: Option<&KeyValue>) -> Condition {
        kv.map_or(Condition::Absent, |kv| Condition::Unchanged(kv.mod_revision))
    }
}

/// A record as it is kept.
#[must_use]
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    // Our records have string keys and finite numbers only, so this can't fail.
    serde_json::to_vec(record).expect("records are JSON objects")
}
