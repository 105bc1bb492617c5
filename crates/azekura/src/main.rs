//! The `azekura` program: a node (`azekura_server`), the command line that asks nodes (`azekura_cli`), and the driver
//! for Kubernetes (`azekura_csi`). Its own are the commands that work on this machine's files while no node has them
//! open.

mod restored;
mod store;

use std::process::ExitCode;

use azekura_cli::{CliError, Here};
use azekura_csi::{CsiCommand, CsiError};
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
        match azekura_server::run(options) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => {
                let hint = error.downcast_ref::<MetaError>().and_then(MetaError::hint);
                let told = CliError::new(format!("{error:#}"));
                Err(hint.into_iter().fold(told, CliError::hint))
            }
        }
    }

    fn store(command: store::StoreCommand) -> Result<ExitCode, CliError> {
        command.run()
    }

    fn restored(options: restored::RestoredArgs) -> Result<ExitCode, CliError> {
        options.run()
    }

    fn csi(options: CsiCommand) -> Result<ExitCode, CliError> {
        let told = |CsiError { message, hint }| CliError::new(message).hint(hint);
        options.run().map(|()| ExitCode::SUCCESS).map_err(told)
    }
}

fn main() -> ExitCode {
    azekura_cli::main::<Program>()
}

#[cfg(test)]
mod tests;
