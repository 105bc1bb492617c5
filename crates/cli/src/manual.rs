//! `azekura manual DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::CliError;

/// Write manual pages into a folder, one for each command; packages do that.
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct ManualArgs {
    /// The folder.
    folder: PathBuf,
}

impl ManualArgs {
    /// Writes the pages.
    pub fn run(&self, command: clap::Command) -> Result<ExitCode, CliError> {
        let written =
            std::fs::create_dir_all(&self.folder).and_then(|()| clap_mangen::generate_to(command, &self.folder));
        let failed = |error| CliError::new(format!("can't write manual pages into {}: {error}", self.folder.display()));
        written.map(|()| ExitCode::SUCCESS).map_err(failed)
    }
}
