//! What a node keeps on its disks: its own folder, the devices' folders, the disks that are given to it, and the
//! threads of the devices' maps.

pub(crate) mod data_folder;
pub(crate) mod device;
pub mod disks;
pub(crate) mod files;
mod holders;
pub(crate) mod identity;
pub(crate) mod initialise;
pub(crate) mod layers_file;
pub(crate) mod map_thread;
pub(crate) mod memory;
pub(crate) mod room;
pub(crate) mod seen;
mod segments;
