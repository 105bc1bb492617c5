//! The `azekura` program: a node, and the command line that asks nodes.

mod cli;
mod node;
mod size;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
