//! A volume as a block device of this machine, by what its kernel has (docs/attach.md): `azekura attach` and the node
//! part of the CSI driver.
//!
//! - `devices` has the ways: NVMe/TCP, NBD, and FUSE with a loop device; which comes first (docs/attach.md).
//! - `mounts` reads the kernel's list of what is mounted where.
//! - `programs` runs the machine's own programs, which the ways need.
//!
//! Nothing is kept in memory: what there is, is found in the kernel's lists and in files each time, so that any process
//! may go on where another one was ended. All functions may wait for programs and the kernel.

mod devices;
mod error;
mod mounts;
pub mod programs;

pub use devices::{Attached, Devices, Found, PassedOver, Wanted, Way, folder, is_claimed, is_read_only, size};
pub use error::{AttachError, Kind};
pub use mounts::{Mount, Mounts, real, unmount_all};

/// The outcome of a step.
pub type Outcome<T> = Result<T, AttachError>;
