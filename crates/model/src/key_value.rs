//! What the configuration keeps under its keys, and how that changes.

/// A key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// The lease that it ends with; 0: it stays.
    pub lease: i64,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there, with this value.
    Put(KeyValue),
    /// It is gone.
    Delete(Vec<u8>),
}
