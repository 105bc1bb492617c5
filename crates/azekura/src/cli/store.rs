//! `azekura store …`: looks into a device's folder while no node has it open.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::CliError;

/// Look into a device's folder. The node that has it must be stopped.
#[derive(Debug, Args)]
pub struct StoreCommand {
    #[command(subcommand)]
    command: Store,
}

#[derive(Debug, Subcommand)]
enum Store {
    /// Check that the map and the log of a device agree, and with --deep that every block matches its checksum.
    Check(CheckArgs),
    /// Print what is in a device's log.
    Dump(DumpArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The device's folder.
    dir: PathBuf,
    /// Read every block and compare it with its checksum.
    #[arg(long)]
    deep: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DumpArgs {
    /// The device's folder.
    dir: PathBuf,
    /// Print JSON, a line a record.
    #[arg(long)]
    json: bool,
}

impl StoreCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (what, dir) = match &self.command {
            Store::Check(arguments) => ("check", &arguments.dir),
            Store::Dump(arguments) => ("dump", &arguments.dir),
        };
        Err(CliError::new(format!("can't {what} {}: this build has no reader of stores", dir.display())))
    }
}
