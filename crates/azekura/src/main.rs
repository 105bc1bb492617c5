//! The `azekura` program: a node (`azekura_server`), the command line that asks nodes (`azekura_cli`), and the driver
//! for Kubernetes (`azekura_csi`). Its own are the commands that work on this machine's files while no node has them
//! open.

mod rebuild;
mod restored;
mod store;

use std::process::ExitCode;

use azekura_cli::{CliError, Here};
use azekura_csi::{CsiCommand, CsiError};
use azekura_logging::LogFormat;
use azekura_model::MetaError;
use azekura_server::NodeArgs;

/// Page-aligned blocks of one page cost a page with it; with the C library's they cost two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What this program does by itself.
#[derive(Debug)]
struct Program;

impl Here for Program {
    type Node = NodeArgs;
    type Store = store::StoreCommand;
    type Restored = restored::RestoredArgs;
    type Csi = CsiCommand;

    fn node(options: NodeArgs) -> Result<ExitCode, CliError> {
        let log = options.log;
        ended(
            log,
            azekura_server::run(options).map_err(|error| {
                let hint = error.downcast_ref::<MetaError>().and_then(MetaError::hint);
                (format!("{error:#}"), hint)
            }),
        )
    }

    fn check_node(options: &NodeArgs) -> Result<Vec<String>, String> {
        azekura_server::check(options).map_err(|error| format!("{error:#}"))?;
        Ok(azekura_server::notes(options))
    }

    fn store(command: store::StoreCommand) -> Result<ExitCode, CliError> {
        command.run()
    }

    fn restored(options: restored::RestoredArgs) -> Result<ExitCode, CliError> {
        options.run()
    }

    fn csi(options: CsiCommand) -> Result<ExitCode, CliError> {
        let log = options.log();
        ended(log, options.run().map_err(|CsiError { message, hint }| (message, Some(hint.to_owned()))))
    }
}

/// How a process that serves has ended: else with an error, and perhaps what to do about it. Whoever reads its log as
/// JSON gets them there.
fn ended(log: LogFormat, outcome: Result<(), (String, Option<String>)>) -> Result<ExitCode, CliError> {
    match (outcome, log) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err((message, hint)), LogFormat::Text) => Err(hint.into_iter().fold(CliError::new(message), CliError::hint)),
        (Err((message, hint)), LogFormat::Json) => {
            azekura_logging::fatal(&message, hint.as_deref());
            Ok(ExitCode::FAILURE)
        }
    }
}

fn main() -> ExitCode {
    azekura_cli::main::<Program>()
}

#[cfg(test)]
mod tests;
