//! A node: one process a machine. [`run`] starts what the options ask for, in this order: data folder, embedded
//! configuration server, sockets, membership in the cluster, devices, data plane, control plane.
//!
//! - The driver performs what `azekura_node` asks for, on one thread with one event loop: `dataplane`, `nbd`, `stream`,
//!   `clock`;
//!   `attaching`, `exports`, `missing` and `room` are what clients meet before their requests get that far.
//! - What is on the disk: `data_folder`, `initialise`, `device`, `map_thread`, `files`, `layers_file`, `seen`.
//! - The bridge between that thread and the control plane: `view` has the configuration as the thread wants it,
//!   `reports`, `found`,
//!   `holdings`, `scrubs` and `statistics` bring what it says, `attachments` and `layer_questions` ask it.

mod args;
mod attaching;
mod attachments;
mod clock;
mod data_folder;
mod dataplane;
mod device;
mod exports;
mod files;
mod found;
mod holdings;
mod initialise;
mod layer_questions;
mod layers_file;
mod map_thread;
mod missing;
mod nbd;
mod random;
mod reports;
mod room;
mod scrubs;
mod seen;
mod start;
mod statistics;
mod stream;
mod view;

pub use args::NodeArgs;
pub use data_folder::config_database;
pub use device::LogFile;
pub use layers_file::read as read_layers;
pub use seen::read_copy;

use anyhow::{Context, Result};
use std::io::IsTerminal;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Threads of the control plane.
const CONTROL_THREADS: usize = 2;

/// Longest wait for threads that still work when all else has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
///
/// # Errors
/// When it can't start, or its event loop ends.
pub fn run(args: NodeArgs) -> Result<()> {
    let filter = EnvFilter::builder().with_env_var("AZEKURA_LOG").with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter.from_env_lossy())
        .init();
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
