//! `azekura node …`: with options it runs a node, `azekura node list` shows the cluster's.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{ApiArgs, CliError, lists};
use crate::node::NodeArgs;

/// Run a node on this machine, or list the cluster's nodes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, arg_required_else_help = true)]
pub struct NodeCommand {
    #[command(subcommand)]
    command: Option<Node>,
    #[command(flatten)]
    run: Option<NodeArgs>,
}

#[derive(Debug, Subcommand)]
enum Node {
    /// List the cluster's nodes.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
}

impl NodeCommand {
    /// Runs the command: a node, until it is told to stop, or the list.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match (self.command, self.run) {
            (Some(Node::List(api)), _) => lists::list_nodes(&api),
            (None, Some(arguments)) => match crate::node::run(arguments) {
                Ok(()) => Ok(ExitCode::SUCCESS),
                Err(error) => Err(CliError::new(format!("{error:#}"))),
            },
            (None, None) => Err(CliError::new("azekura node needs --data DIR").hint("see 'azekura node --help'")),
        }
    }
}
