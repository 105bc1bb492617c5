//! Transitions: how the configuration changes, as pure functions.
//!
//! Each takes [`crate::Records`], what is wanted, and the time or random numbers if it needs them, and gives a
//! [`crate::Step`]. None of them waits, asks or tries again: `azekura-meta` does that for a configuration server, and
//! the simulator for one in memory.

pub mod alive;
pub mod attachments;
pub mod authorities;
pub mod classes;
pub mod counters;
pub mod cuts;
mod data_keys;
pub mod devices;
pub mod grants;
pub mod groups;
pub mod identity;
pub mod joining;
pub mod keys;
pub mod layers;
pub mod members;
pub mod new_groups;
pub mod projects;
pub mod removal;
pub mod reservations;
pub mod restored;
pub mod settings;
pub mod shut_out;
pub mod snapshots;
pub mod volumes;

#[cfg(test)]
mod data_keys_tests;
#[cfg(test)]
mod projects_tests;
#[cfg(test)]
mod tests;
