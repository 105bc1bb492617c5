//! `azekura node remove`, `node replace`, `device remove`, `class delete`: what leaves the cluster for good.

use std::process::ExitCode;

use azekura_api::endpoint::{ClassDelete, DeviceRemove, NodeRemove};
use azekura_api::{NoQuery, RemoveMember, RemovedView};
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// A part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// A node.
    Node,
    /// A device.
    Device,
}

/// What all that leaves the cluster for good is told.
const REMOVED: &str =
    "The data folder of what was removed is not let in again: give a machine that comes back an empty one.";

/// A node that leaves the cluster for good.
#[derive(Debug, Args)]
#[command(after_help = format!("It is refused while its copies are needed, and says what to do then. In order:\n  \
    azekura node drain n3 --wait 3600      its copies move to other nodes, while it runs\n  \
    (stop its process)\n  \
    azekura node remove n3                 its name is free\n\n\
    For a machine that will never come back:\n  \
    azekura node remove n3 --lost          its copies are made anew from the others'\n\n{REMOVED}"))]
pub struct RemoveNodeArgs {
    /// The node's name.
    name: String,
    #[command(flatten)]
    how: RemoveArgs,
}

/// A device that leaves the cluster for good.
#[derive(Debug, Args)]
#[command(after_help = format!("It is refused while its copies are needed, and says what to do then. In order:\n  \
    azekura device drain n3/device-1 --wait 3600      its copies move to other devices\n  \
    azekura device remove n3/device-1                 its folder can go at the node's next stop\n\n\
    For a device that will never come back:\n  \
    azekura device remove n3/device-1 --lost          its copies are made anew from the others'\n\n{REMOVED}"))]
pub struct RemoveDeviceArgs {
    /// The device: its number, NODE/NAME, or its name if only one has it.
    name: String,
    #[command(flatten)]
    how: RemoveArgs,
}

/// How something leaves the cluster for good.
#[derive(Debug, Args)]
struct RemoveArgs {
    /// It will never come back: its copies are made anew from the other copies. Refused when it has the last one of
    /// anything.
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Whose place another machine, or an empty data folder, is to take.
#[derive(Debug, Args)]
#[command(
    after_help = "For a machine whose data folder was lost (reinstalled, new disks): it frees the name, as 'azekura node \
    remove NAME --lost' does, and the machine joins under it when it is started with an empty data folder. Its copies are made \
    anew from the other copies, on it or on others. Refused when the lost one had the last copy of anything.\n\n\
    Example:\n  \
    azekura node replace n3\n  \
    azekura node --name n3 --data /var/lib/azekura --device-size 1TiB ...    on the machine, as at its first start"
)]
pub struct ReplaceArgs {
    /// The node's name.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// A storage class that is not needed any more.
#[derive(Debug, Args)]
pub struct DeleteClassArgs {
    /// Name of the class.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

impl RemoveNodeArgs {
    /// Removes a node.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        self.how.run(Member::Node, &self.name)
    }
}

impl RemoveDeviceArgs {
    /// Removes a device.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        self.how.run(Member::Device, &self.name)
    }
}

impl RemoveArgs {
    fn run(&self, member: Member, name: &str) -> Result<ExitCode, CliError> {
        let what = match member {
            Member::Node => "Node",
            Member::Device => "Device",
        };
        let removed = remove(&self.api, member, name, self.lost)?;
        if self.api.json {
            return print_json(&removed);
        }
        print(&format!("{what} {name} is removed{}.\n", rest(&removed)))
    }
}

impl ReplaceArgs {
    /// Frees the name.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let removed = remove(&self.api, Member::Node, &self.name, true)?;
        if self.api.json {
            return print_json(&removed);
        }
        print(&format!(
            "The name {name} is free{}.\nStart the machine that takes it with an empty data folder: azekura node --name {name} …\n",
            rest(&removed),
            name = self.name
        ))
    }
}

impl DeleteClassArgs {
    /// Deletes the class.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let removed = self.api.client()?.ask::<ClassDelete>([self.name.clone()], &NoQuery {})?;
        if self.api.json {
            return print_json(&removed);
        }
        print(&format!("Storage class {} is deleted.\n", self.name))
    }
}

fn remove(api: &ApiArgs, member: Member, name: &str, lost: bool) -> Result<RemovedView, CliError> {
    let (client, name, query) = (api.client()?, [name.to_owned()], RemoveMember { lost });
    Ok(match member {
        Member::Node => client.ask::<NodeRemove>(name, &query)?,
        Member::Device => client.ask::<DeviceRemove>(name, &query)?,
    })
}

/// What goes on by itself.
fn rest(removed: &RemovedView) -> String {
    match removed.groups_left {
        0 => String::new(),
        left => format!(
            "; {left} placement groups still have to do without its copies, which goes on by itself ('azekura status')"
        ),
    }
}
