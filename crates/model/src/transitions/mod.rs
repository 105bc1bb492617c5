//! Transitions: how the configuration changes, as pure functions.
//!
//! Each takes [`crate::Records`], what is wanted, and the time or random numbers if it needs them, and gives a
//! [`crate::Step`]. None of them waits, asks or tries again: `azekura-meta` does that for a configuration server, and
//! the simulator for one in memory.

use crate::{ClusterRecord, Found, Halt, Model, Txn};

pub mod alive;
pub mod attachments;
pub mod authorities;
pub mod classes;
pub mod counters;
pub mod cuts;
pub mod data_keys;
pub mod devices;
pub mod grants;
pub mod groups;
pub mod identity;
pub mod joining;
pub mod keys;
pub mod layers;
pub mod members;
pub mod new_groups;
pub mod own_groups;
pub mod projects;
pub mod removal;
pub mod reservations;
pub mod restored;
pub mod settings;
pub mod shut_out;
pub mod snapshots;
pub mod targets;
pub mod volumes;

/// The nodes whose records do not say that they understand this; `None`: all do.
fn without(model: &Model, what: &str) -> Option<String> {
    let older = model.nodes.values().filter(|node| !node.removed && !node.understands.contains(what));
    let older: Vec<&str> = older.map(|node| node.name.as_str()).collect();
    (!older.is_empty()).then(|| crate::named(older))
}

/// From this change on no version becomes a node of the cluster that does not understand this: what follows would be
/// something else to such a one, on its devices as well (docs/decisions/0057-going-back.md).
fn require(txn: Txn, cluster: &Found, word: &str) -> Result<Txn, Halt> {
    let Some(mut record) = cluster.record::<ClusterRecord>()? else { return Ok(txn) };
    if !record.requires.insert(word.to_owned()) {
        return Ok(txn);
    }
    Ok(txn.when_as(cluster).put(&cluster.key, &record))
}

#[cfg(test)]
mod data_keys_tests;
#[cfg(test)]
mod logical_blocks_tests;
#[cfg(test)]
mod projects_tests;
#[cfg(test)]
mod targets_tests;
#[cfg(test)]
mod tests;
