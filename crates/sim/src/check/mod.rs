//! The checkers: what must hold, whatever happens.

pub(crate) mod copies;
pub(crate) mod linearizable;
pub(crate) mod order;
pub(crate) mod zeroed;
