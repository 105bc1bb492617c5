//! The thread of the data plane: one event loop, which performs what `azekura_node` and `azekura_frontend` ask for.

pub(crate) mod clients;
mod clock;
pub(crate) mod dataplane;
mod devices;
mod peers;
pub(crate) mod stream;
