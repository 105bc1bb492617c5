//! `azekura volume expose` and `azekura volume unexpose`: sockets for virtual machines, made while the node runs.

use std::process::ExitCode;

use azekura_api::ExposeVolume;
use azekura_api::endpoint::{VolumeExpose, VolumeUnexpose};
use clap::{Args, Subcommand};

use super::output::{print, print_json};
use super::{ApiArgs, CliError, endpoints};

/// Sockets for virtual machines.
#[derive(Debug, Subcommand)]
pub enum ExposeCommand {
    /// Serve a volume to virtual machines at a unix socket on a node's machine, until it is taken back (docs/vhost.md).
    #[command(
        after_help = "Example:\n  azekura volume expose vm1 --vhost --node n1   at vm1.sock in n1's --vhost-folder"
    )]
    Expose(ExposeArgs),
    /// Take a socket back that 'azekura volume expose' has made. Who is connected stays.
    Unexpose(ExposeArgs),
}

impl ExposeCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self {
            ExposeCommand::Expose(arguments) => expose(arguments),
            ExposeCommand::Unexpose(arguments) => unexpose(arguments),
        }
    }
}

#[derive(Debug, Args)]
pub struct ExposeArgs {
    /// Name of the volume.
    name: String,
    /// The socket, in the folder that the node has for these (--vhost-folder): its name there, or its path [default:
    /// NAME.sock, or all of the volume's that are to go].
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = "")]
    vhost: String,
    /// The node on whose machine the socket is [default: the one that is asked].
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl ExposeArgs {
    fn body(&self) -> ExposeVolume {
        ExposeVolume { node: self.node.clone(), vhost: Some(self.vhost.clone()).filter(|socket| !socket.is_empty()) }
    }
}

fn expose(arguments: ExposeArgs) -> Result<ExitCode, CliError> {
    let body = arguments.body();
    let volume = arguments.api.client()?.send::<VolumeExpose>([arguments.name], &body)?;
    if arguments.api.json {
        return print_json(&volume);
    }
    print(&format!("Volume {} is served.\n{}", volume.name, endpoints::lines(&volume.endpoints)))
}

fn unexpose(arguments: ExposeArgs) -> Result<ExitCode, CliError> {
    let body = arguments.body();
    let volume = arguments.api.client()?.send::<VolumeUnexpose>([arguments.name], &body)?;
    if arguments.api.json {
        return print_json(&volume);
    }
    print(&format!("Nobody comes to volume {} there any more; who is connected stays.\n", volume.name))
}
