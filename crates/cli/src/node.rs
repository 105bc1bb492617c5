//! `azekura node …`: with options it runs a node, `list`, `drain` and `undrain` are about the cluster's.
//!
//! They are put together by hand: derived, a node option that comes from the environment (AZEKURA_CONFIG) would
//! make `azekura node list` ask for the other options of a node.

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use super::drain::{DrainArgs, NodeName, UndrainArgs};
use super::removal::{RemoveNodeArgs, ReplaceArgs};
use super::shut_out::{LetInArgs, ShutOutArgs};
use super::{ApiArgs, CliError, Here, config_file, lists};

/// Names of the subcommands.
const LIST: &str = "list";
const DRAIN: &str = "drain";
const UNDRAIN: &str = "undrain";
const REMOVE: &str = "remove";
const REPLACE: &str = "replace";
const SHUT_OUT: &str = "shut-out";
const LET_IN: &str = "let-in";

/// Run a node on this machine, list the cluster's nodes, or empty one.
#[derive(Debug)]
pub enum NodeCommand<H: Here> {
    /// Run a node.
    Run(Box<H::Node>),
    /// List the nodes.
    List(ApiArgs),
    /// Empty a node.
    Drain(DrainArgs<NodeName>),
    /// Let a node take data again.
    Undrain(UndrainArgs<NodeName>),
    /// Take a node out for good.
    Remove(RemoveNodeArgs),
    /// Free a node's name for its successor.
    Replace(ReplaceArgs),
    /// Trust a node's machine no more.
    ShutOut(ShutOutArgs),
    /// Trust it again.
    LetIn(LetInArgs),
}

impl<H: Here> FromArgMatches for NodeCommand<H> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NodeCommand<H>, Error> {
        match matches.subcommand() {
            Some((LIST, matches)) => Ok(NodeCommand::List(ApiArgs::from_arg_matches(matches)?)),
            Some((DRAIN, matches)) => Ok(NodeCommand::Drain(DrainArgs::from_arg_matches(matches)?)),
            Some((UNDRAIN, matches)) => Ok(NodeCommand::Undrain(UndrainArgs::from_arg_matches(matches)?)),
            Some((REMOVE, matches)) => Ok(NodeCommand::Remove(RemoveNodeArgs::from_arg_matches(matches)?)),
            Some((REPLACE, matches)) => Ok(NodeCommand::Replace(ReplaceArgs::from_arg_matches(matches)?)),
            Some((SHUT_OUT, matches)) => Ok(NodeCommand::ShutOut(ShutOutArgs::from_arg_matches(matches)?)),
            Some((LET_IN, matches)) => Ok(NodeCommand::LetIn(LetInArgs::from_arg_matches(matches)?)),
            _ => Ok(NodeCommand::Run(Box::new(H::Node::from_arg_matches(matches)?))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = NodeCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<H: Here> Args for NodeCommand<H> {
    fn augment_args(command: Command) -> Command {
        let list = Command::new(LIST).visible_alias("ls");
        H::Node::augment_args(command)
            .arg(config_file::option())
            .subcommand(ApiArgs::augment_args(list).about("List the cluster's nodes"))
            .subcommand(
                DrainArgs::<NodeName>::augment_args(Command::new(DRAIN))
                    .about("Empty a node: its copies move to others"),
            )
            .subcommand(
                UndrainArgs::<NodeName>::augment_args(Command::new(UNDRAIN)).about("Let a node take data again"),
            )
            .subcommand(
                RemoveNodeArgs::augment_args(Command::new(REMOVE).visible_alias("rm"))
                    .about("Take a node out of the cluster for good, and free its name"),
            )
            .subcommand(
                ReplaceArgs::augment_args(Command::new(REPLACE))
                    .about("Let a machine with an empty data folder take a lost node's place and name"),
            )
            .subcommand(
                ShutOutArgs::augment_args(Command::new(SHUT_OUT))
                    .about("Trust a node's machine no more: nobody talks with it, and no start brings it back"),
            )
            .subcommand(LetInArgs::augment_args(Command::new(LET_IN)).about("Let a node in again that was shut out"))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .arg_required_else_help(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        NodeCommand::<H>::augment_args(command)
    }
}

impl<H: Here> NodeCommand<H> {
    /// Runs the command: a node, until it is told to stop, or a question.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self {
            NodeCommand::List(api) => lists::list_nodes(&api),
            NodeCommand::Drain(arguments) => arguments.run(),
            NodeCommand::Undrain(arguments) => arguments.run(),
            NodeCommand::Remove(arguments) => arguments.run(),
            NodeCommand::Replace(arguments) => arguments.run(),
            NodeCommand::ShutOut(arguments) => arguments.run(),
            NodeCommand::LetIn(arguments) => arguments.run(),
            NodeCommand::Run(arguments) => H::node(*arguments),
        }
    }
}
