//! The threads of the data plane: an event loop each, which performs what `azekura_node` and `azekura_frontend` ask
//! for.

pub(crate) mod clients;
mod clock;
pub(crate) mod commands;
pub(crate) mod dataplane;
mod devices;
mod doors;
#[cfg(test)]
mod fixture;
mod local;
pub(crate) mod messages;
mod peers;
#[cfg(test)]
mod process_fixture;
mod sharing;
pub(crate) mod stream;
