//! `azekura config …`: files with a node's options.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::config_file::{self, USUAL};
use super::output::{print, print_json};
use super::{CliError, Here, grammar, grammar_here};

/// Files with a node's options (azekura node --config-file).
#[derive(Debug, Args)]
pub struct ConfigCommand {
    #[command(subcommand)]
    command: Config,
}

#[derive(Debug, Subcommand)]
enum Config {
    /// Check a file: whether it can be understood, and a node could be started with it. Nothing is started.
    Check(CheckArgs),
    /// Print a file with all options, and what they mean.
    Example,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The file.
    #[arg(default_value = USUAL)]
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ConfigCommand {
    /// Runs the command.
    pub fn run<H: Here>(self) -> Result<ExitCode, CliError> {
        match self.command {
            Config::Check(CheckArgs { file, json }) => {
                let judge = |found: &ArgMatches| {
                    let options = H::Node::from_arg_matches(found).map_err(|error| error.to_string())?;
                    H::check_node(&options)
                };
                let (read, notes) = config_file::check(&grammar_here::<H>(), &file, judge)?;
                let options = read.len();
                if json {
                    print_json(&serde_json::json!({ "file": file, "options": options, "notes": notes }))
                } else {
                    let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
                    print(&format!("{} can be used: it has {options} options of a node\n{notes}", file.display()))
                }
            }
            Config::Example => print(&config_file::example(&grammar::<H>())),
        }
    }
}
