//! The checkers: what must hold, whatever happens.

mod accounts;
pub(crate) mod copies;
pub(crate) mod flow;
pub(crate) mod linearizable;
pub(crate) mod minimum;
pub(crate) mod order;
mod scrubs;
mod serving;
pub(crate) mod zeroed;
