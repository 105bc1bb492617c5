//! A node: one process a machine. [`run`] starts what the options ask for, in this order: data folder, embedded
//! configuration server, sockets, membership in the cluster, devices, data plane, control plane.
//!
//! - `driver`: a shard of the data plane, on its thread; `shards` has all of them.
//! - `disk`: what is on the disks.
//! - `secured`: clients that speak TLS.
//! - `bridge`: between those threads and the control plane.

mod args;
mod bridge;
mod checks;
mod config_servers;
mod configuration;
mod disk;
mod driver;
mod joining;
mod key_args;
mod listeners;
mod opening;
mod random;
mod secured;
mod shards;
mod start;
mod vhost_sockets;

pub use args::NodeArgs;
pub use checks::{check, notes};
pub use config_servers::ConfigServerArgs;
pub use configuration::as_node;
pub use disk::data_folder::config_database;
pub use disk::device::{DeviceDir, LogFile, loss};
pub use disk::disks;
pub use disk::files::put as put_file;
pub use disk::layers_file::read as read_layers;
pub use disk::seen::read_copy;

use anyhow::{Context, Result};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::time::Duration;

/// Threads of the control plane.
const CONTROL_THREADS: usize = 2;

/// Longest wait for threads that still work when all else has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
///
/// # Errors
/// When it can't start, or its event loop ends.
pub fn run(args: NodeArgs) -> Result<()> {
    // Nothing that this process makes is for others: its files tell where everything is. Sockets have options for that.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    azekura_logging::begin(args.log);
    if !args.core_dumps {
        // Keys are in the memory.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, none).context("can't switch core dumps off (--core-dumps leaves them on)")?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .context("can't start the control plane's threads")?;
    let result = runtime.block_on(start::serve(args));
    // A thread that works on a device which hangs may never end. What was promised is durable.
    runtime.shutdown_timeout(END_PATIENCE);
    result
}
