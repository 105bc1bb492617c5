//! Plans of the reconcilers: what is to be done next, as pure functions of the cluster as it is. Each is one step; the
//! next one follows from what is then.

pub mod layers;
pub mod snapshots;
