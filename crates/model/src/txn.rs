//! A change of the configuration: conditions on keys' revisions, and writes when all of them hold.

use serde::Serialize;

/// A change that happens as a whole, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Txn {
    conditions: Vec<(String, i64)>,
    writes: Vec<Write>,
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

    /// Only if the key was last changed at this revision; 0: only if it is not there.
    pub fn when_unchanged(mut self, key: &str, mod_revision: i64) -> Txn {
        self.conditions.push((key.to_owned(), mod_revision));
        self
    }

    /// Only if the key is not there.
    pub fn when_absent(self, key: &str) -> Txn {
        self.when_unchanged(key, 0)
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

    /// Keys, and the revisions of their last changes: all must be right. 0: the key is not there.
    #[must_use]
    pub fn conditions(&self) -> &[(String, i64)] {
        &self.conditions
    }

    /// What is written then, in this order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }
}

/// A record as it is kept.
#[must_use]
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    // Our records have string keys and finite numbers only, so this can't fail.
    serde_json::to_vec(record).expect("records are JSON objects")
}
