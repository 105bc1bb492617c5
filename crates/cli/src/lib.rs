//! The command line: what asks a running node through its REST API, and prints the answer.
//!
//! What the program does on its own machine, without asking a node, it brings along as [`Here`]. So this crate knows
//! the API and its client, and nothing of what a node is made of.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use azekura_client::Client;
use clap::builder::Resettable;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

mod attach;
mod audit;
mod bundle;
mod ca;
mod class;
mod cluster;
mod completion;
mod config;
mod config_file;
mod diff;
mod drain;
mod endpoints;
mod expose;
mod host;
mod jobs;
mod kek;
mod key;
mod limits;
mod lists;
mod login;
mod manual;
mod node;
mod output;
mod period;
mod progress;
mod project;
mod protect;
mod rates;
mod removal;
mod screen;
mod scrub;
mod shut_out;
mod snapshot;
mod space;
mod status;
mod table;
mod target;
mod token;
mod top;
mod unlock;
mod volume;
mod volume_key;
mod volume_shown;
mod watch;

use output::EXIT_CODES;
pub use output::{CliError, print, print_json};
pub use progress::Progress;

/// What the program does on its own machine.
pub trait Here: Debug + 'static {
    /// Options of a node.
    type Node: Args + Debug;
    /// Looks into a device's folder.
    type Store: Args + Debug;
    /// Goes on after the configuration was restored.
    type Restored: Args + Debug;
    /// The CSI driver's options.
    type Csi: Args + Debug;

    /// Runs a node until it is told to stop.
    ///
    /// # Errors
    /// When the node can't start, or its event loop ends.
    fn node(options: Self::Node) -> Result<ExitCode, CliError>;

    /// What a node says about its options before it touches anything: notes.
    ///
    /// # Errors
    /// What it refuses; it names the option as `--NAME`.
    fn check_node(options: &Self::Node) -> Result<Vec<String>, String>;

    /// Looks into a device's folder, as `azekura store` says.
    ///
    /// # Errors
    /// When the folder can't be read.
    fn store(command: Self::Store) -> Result<ExitCode, CliError>;

    /// Does what `azekura cluster restored` says.
    ///
    /// # Errors
    /// When there is nothing to go on from, or nodes run.
    fn restored(options: Self::Restored) -> Result<ExitCode, CliError>;

    /// Runs a part of the CSI driver until it is told to stop.
    ///
    /// # Errors
    /// When it can't start.
    fn csi(options: Self::Csi) -> Result<ExitCode, CliError>;
}

/// Where several nodes may be asked, the next one is when one has not answered within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "Examples:\n  \
    azekura status                        is everything well, and if not, what to do\n  \
    azekura volume create vol1 10GiB      a new volume, two copies of everything\n  \
    azekura volume list                   all volumes\n  \
    azekura attach vol1                   vol1 as a block device of this machine\n  \
    azekura space                         what is promised, written, shared and free\n  \
    azekura snapshot create vol1@monday   vol1 as it is now, to go back to\n  \
    azekura top                           who reads and writes how much, live\n  \
    azekura jobs                          what takes long, and how far it is\n  \
    azekura watch                         what changes, as it changes\n  \
    azekura support-bundle                one file for whoever helps, without secrets\n\n\
    'azekura COMMAND --help' explains a command.";

/// Azekura: replicated block storage.
///
/// `azekura node` runs a node on this machine. The other commands ask a running node through its REST API
/// (--api or AZEKURA_API, http://127.0.0.1:7180 if neither is given); any node of the cluster will do.
#[derive(Debug, Parser)]
#[command(
    name = "azekura",
    version,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}")
)]
struct Cli<H: Here> {
    #[command(subcommand)]
    command: Command<H>,
}

#[derive(Debug, Subcommand)]
enum Command<H: Here> {
    Node(node::NodeCommand<H>),
    Volume(volume::VolumeCommand),
    Snapshot(snapshot::SnapshotCommand),
    Class(class::ClassCommand),
    Device(lists::DeviceCommand),
    Group(lists::GroupCommand),
    Scrub(scrub::ScrubArgs),
    Cluster(cluster::ClusterCommand<H>),
    Project(project::ProjectCommand),
    Target(target::TargetCommand),
    Token(token::TokenCommand),
    Key(key::KeyCommand),
    Host(host::HostCommand),
    Audit(audit::AuditArgs),
    Ca(ca::CaCommand),
    Kek(kek::KekCommand),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    Attach(attach::AttachArgs),
    Detach(attach::DetachArgs),
    Attached(attach::AttachedArgs),
    Space(space::SpaceArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Jobs(jobs::JobsArgs),
    Watch(watch::WatchArgs),
    SupportBundle(bundle::BundleArgs),
    Store(H::Store),
    Csi(H::Csi),
    Config(config::ConfigCommand),
    Completion(completion::CompletionArgs),
    Manual(manual::ManualArgs),
    Version(VersionArgs),
}

/// Print the version.
#[derive(Debug, Args)]
struct VersionArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Which node to ask, and how to answer.
#[derive(Clone, Debug, Args)]
struct ApiArgs {
    /// The REST API of any node of the cluster, or of several with commas between: the first that answers is asked. Or
    /// unix:DIR/api.sock: the own socket of a node of this machine, DIR being its --data, which asks its user for no
    /// token.
    #[arg(long, value_name = "URL", env = "AZEKURA_API", default_value = "http://127.0.0.1:7180")]
    api: String,

    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl ApiArgs {
    /// Each of the APIs that are named.
    fn urls(&self) -> Vec<&str> {
        self.api.split(',').map(str::trim).collect()
    }

    /// A client that tells on standard error when an answer may be out of date.
    fn client(&self) -> Result<Client, CliError> {
        let client = match self.urls()[..] {
            [url] => login::client(url)?,
            ref urls => first_that_answers(urls)?,
        };
        Ok(client.on_stale(|said| eprintln!("note: {said}")))
    }
}

/// A client of the first of several APIs that answers. One that can't be asked, for what is wrong here, is passed over,
/// too, and told of if none answers: to ask again would not help.
fn first_that_answers(urls: &[&str]) -> Result<Client, CliError> {
    let (mut wrong, mut why) = (None, Vec::new());
    for url in urls {
        match login::client(url) {
            Ok(client) if client.answers(ANSWER_WITHIN) => return Ok(client),
            Ok(client) => why.push(format!("no answer from {} within {} s", client.url(), ANSWER_WITHIN.as_secs())),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    Err(wrong.unwrap_or_else(|| CliError::unreachable(why.join("; "))))
}

/// All commands with their options and texts.
#[must_use]
pub fn grammar<H: Here>() -> clap::Command {
    Cli::<H>::command()
}

/// The same as this process reads it: a variable of the environment that is empty counts as one that is not set.
/// Service managers and scripts that leave out a value leave it so.
fn grammar_here<H: Here>() -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    without_variables(grammar::<H>(), &is_empty)
}

/// The command without the variables of which this holds.
fn without_variables(command: clap::Command, is_out: &impl Fn(&OsStr) -> bool) -> clap::Command {
    let without = |argument: clap::Arg| match argument.get_env().is_some_and(is_out) {
        true => argument.env(Resettable::<clap::builder::OsStr>::Reset),
        false => argument,
    };
    command.mut_args(without).mut_subcommands(|command| without_variables(command, is_out))
}

/// Runs the command line of this process.
pub fn main<H: Here>() -> ExitCode {
    run::<H>().unwrap_or_else(|error| {
        if wants_json() {
            eprintln!("{}", error.json());
        } else {
            eprintln!("{error}");
        }
        error.exit_code()
    })
}

/// Whoever asked for JSON gets it of an error, too, whatever command it was.
fn wants_json() -> bool {
    std::env::args_os().any(|argument| argument == "--json")
}

fn run<H: Here>() -> Result<ExitCode, CliError> {
    let grammar_here = grammar_here::<H>();
    let (words, file) = config_file::with_file(&grammar_here, std::env::args_os().collect())?;
    let parse = |words| Cli::<H>::from_arg_matches(&grammar_here.try_get_matches_from(words)?);
    match config_file::parse(words, file.as_ref(), parse)?.command {
        Command::Node(command) => command.run(),
        Command::Volume(command) => command.run(),
        Command::Snapshot(command) => command.run(),
        Command::Class(command) => command.run(),
        Command::Device(command) => command.run(),
        Command::Group(command) => command.run(),
        Command::Scrub(arguments) => arguments.run(),
        Command::Cluster(command) => command.run(),
        Command::Project(command) => command.run(),
        Command::Target(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Key(command) => command.run(),
        Command::Host(command) => command.run(),
        Command::Audit(arguments) => arguments.run(),
        Command::Ca(command) => command.run(),
        Command::Kek(command) => command.run(),
        Command::Login(arguments) => arguments.run(),
        Command::Logout(arguments) => arguments.run(),
        Command::Attach(arguments) => arguments.run(),
        Command::Detach(arguments) => arguments.run(),
        Command::Attached(arguments) => arguments.run(),
        Command::Space(arguments) => arguments.run(),
        Command::Status(arguments) => arguments.run(),
        Command::Top(arguments) => arguments.run(),
        Command::Jobs(arguments) => arguments.run(),
        Command::Watch(arguments) => arguments.run(),
        Command::SupportBundle(arguments) => arguments.run(),
        Command::Store(command) => H::store(command),
        Command::Csi(command) => H::csi(command),
        Command::Config(command) => command.run::<H>(),
        Command::Completion(arguments) => arguments.run(&mut grammar::<H>()),
        Command::Manual(arguments) => arguments.run(grammar::<H>()),
        Command::Version(arguments) => arguments.run(),
    }
}

impl VersionArgs {
    fn run(&self) -> Result<ExitCode, CliError> {
        let version = env!("CARGO_PKG_VERSION");
        if self.json {
            output::print_json(&serde_json::json!({ "version": version }))
        } else {
            output::print(&format!("azekura {version}\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_empty_is_not_set() {
        let url = || clap::Arg::new("api").long("api").default_value("here").env("PATH");
        let command = || clap::Command::new("a").subcommand(clap::Command::new("b").arg(url()));
        let asked = |command: clap::Command| {
            let found = command.try_get_matches_from(["a", "b"]).unwrap();
            found.subcommand_matches("b").unwrap().get_one::<String>("api").unwrap().clone()
        };
        assert_eq!(asked(without_variables(command(), &|name| name == "PATH")), "here");
        assert_ne!(asked(without_variables(command(), &|name| name == "HOME")), "here");
    }
}
