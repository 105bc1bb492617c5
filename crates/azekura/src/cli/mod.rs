//! The command line: `azekura node` runs a node, everything else asks a running one.

use std::process::ExitCode;

use azekura_client::Client;
use clap::{Args, CommandFactory, Parser, Subcommand};

mod class;
mod cluster;
mod completion;
mod diff;
mod drain;
mod lists;
mod node;
mod output;
mod period;
mod protect;
mod rates;
mod removal;
mod restored;
mod scrub;
mod snapshot;
mod space;
mod status;
mod store;
mod table;
mod top;
mod volume;

pub use output::CliError;

/// Azekura: replicated block storage.
///
/// `azekura node` runs a node on this machine. The other commands ask a running node through its REST API
/// (--api or AZEKURA_API, http://127.0.0.1:7180 if neither is given); any node of the cluster will do.
#[derive(Debug, Parser)]
#[command(
    name = "azekura",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        azekura status                        is everything well, and if not, what to do\n  \
        azekura volume create vol1 10GiB      a new volume, two copies of everything\n  \
        azekura volume list                   all volumes\n  \
        azekura space                         what is promised, written, shared and free\n  \
        azekura snapshot create vol1@monday   vol1 as it is now, to go back to\n  \
        azekura top                           who reads and writes how much, live\n\n\
        'azekura COMMAND --help' explains a command."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Node(node::NodeCommand),
    Volume(volume::VolumeCommand),
    Snapshot(snapshot::SnapshotCommand),
    Class(class::ClassCommand),
    Device(lists::DeviceCommand),
    Group(lists::GroupCommand),
    Scrub(scrub::ScrubArgs),
    Cluster(cluster::ClusterCommand),
    Space(space::SpaceArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Store(store::StoreCommand),
    Completion(completion::CompletionArgs),
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
    /// The REST API of any node of the cluster.
    #[arg(long, value_name = "URL", env = "AZEKURA_API", default_value = "http://127.0.0.1:7180")]
    api: String,

    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl ApiArgs {
    /// A client that tells on standard error when an answer may be out of date.
    fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.api)?.on_stale(|said| eprintln!("note: {said}")))
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Node(command) => command.run(),
        Command::Volume(command) => command.run(),
        Command::Snapshot(command) => command.run(),
        Command::Class(command) => command.run(),
        Command::Device(command) => command.run(),
        Command::Group(command) => command.run(),
        Command::Scrub(arguments) => arguments.run(),
        Command::Cluster(command) => command.run(),
        Command::Space(arguments) => arguments.run(),
        Command::Status(arguments) => arguments.run(),
        Command::Top(arguments) => arguments.run(),
        Command::Store(command) => command.run(),
        Command::Completion(arguments) => arguments.run(&mut Cli::command()),
        Command::Version(arguments) => arguments.run(),
    };
    outcome.unwrap_or_else(|error| {
        // Whoever asked for JSON gets it of an error, too; where the command had no such option, it did not come here.
        if std::env::args().any(|argument| argument == "--json") {
            eprintln!("{}", error.json());
        } else {
            eprintln!("{error}");
        }
        ExitCode::FAILURE
    })
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
mod tests;
