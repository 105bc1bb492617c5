//! The checks: what must hold, whatever happens.

mod accounts;
mod compared;
mod copies;
mod flow;
pub(crate) mod history;
mod linearizable;
mod links;
pub(crate) mod minimum;
pub(crate) mod order;
mod past;
mod rest;
mod scrubs;
mod serving;
mod sessions;
pub(crate) mod slowness;
mod zeroed;
