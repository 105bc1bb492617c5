//! The `azekura` program: a node, and the command line that asks nodes.

mod cli;
mod node;

use std::process::ExitCode;

/// Page-aligned blocks of one page cost a page with it; with the C library's they cost two.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
