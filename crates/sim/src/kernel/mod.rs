//! What a simulated computer is made of: time, network, disk, process, chance. Nothing here knows what a cluster is.

pub(crate) mod device;
pub(crate) mod disk;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod rings;
pub(crate) mod time;
pub(crate) mod trace;
