//! `azekura completion SHELL`

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::CliError;
use super::output::print;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bash:  azekura completion bash > /etc/bash_completion.d/azekura\n  \
    zsh:   azekura completion zsh > \"${fpath[1]}/_azekura\"\n  \
    fish:  azekura completion fish > ~/.config/fish/completions/azekura.fish")]
pub struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionArgs {
    /// Prints the script.
    pub fn run(&self, command: &mut clap::Command) -> Result<ExitCode, CliError> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, command, "azekura", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
