//! `azekura node list`, `azekura device …`, `azekura group list`

use std::process::ExitCode;

use azekura_api::endpoint::{DeviceList, GroupList, NodeList};
use azekura_api::{DeviceState, DeviceView, Endpoint, GroupView, NoBody, NoQuery, NodeView};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::drain::{DeviceName, DrainArgs, UndrainArgs};
use super::endpoints;
use super::output::{print, print_json};
use super::removal::RemoveDeviceArgs;
use super::screen::Tone;
use super::scrub::scrub_time;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};
use azekura_base::Size;

/// The cluster's devices.
#[derive(Debug, Args)]
pub struct DeviceCommand {
    #[command(subcommand)]
    command: Device,
}

/// The cluster's placement groups: the units of replication that volumes are spread over.
#[derive(Debug, Args)]
pub struct GroupCommand {
    #[command(subcommand)]
    command: List,
}

#[derive(Debug, Subcommand)]
enum Device {
    /// List all of them.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
    /// Empty a device: its copies move to others.
    Drain(DrainArgs<DeviceName>),
    /// Let a device take data again.
    Undrain(UndrainArgs<DeviceName>),
    /// Take a device out of the cluster for good; it is drained first.
    #[command(visible_alias = "rm")]
    Remove(RemoveDeviceArgs),
}

#[derive(Debug, Subcommand)]
enum List {
    /// List all of them.
    #[command(visible_alias = "ls")]
    List(ApiArgs),
}

impl DeviceCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Device::List(api) => list::<DeviceList, _>(&api, "There are no devices.\n", devices),
            Device::Drain(arguments) => arguments.run(),
            Device::Undrain(arguments) => arguments.run(),
            Device::Remove(arguments) => arguments.run(),
        }
    }
}

impl GroupCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let List::List(api) = self.command;
        list::<GroupList, _>(&api, "There are no placement groups yet; the first volume makes them.\n", groups)
    }
}

/// `azekura node list`.
pub fn list_nodes(api: &ApiArgs) -> Result<ExitCode, CliError> {
    show(api, &api.client()?.ask_all::<NodeList, _>([])?, "There are no nodes.\n", nodes)
}

fn list<E, T>(api: &ApiArgs, none: &str, table: impl Fn(&[T]) -> String) -> Result<ExitCode, CliError>
where
    E: Endpoint<Names = [String; 0], Query = NoQuery, Body = NoBody, Answer = Vec<T>>,
    T: Serialize,
{
    show(api, &api.client()?.ask::<E>([], &NoQuery {})?, none, table)
}

fn show<T: Serialize>(
    api: &ApiArgs,
    all: &[T],
    none: &str,
    table: impl Fn(&[T]) -> String,
) -> Result<ExitCode, CliError> {
    if api.json {
        return print_json(&all);
    }
    print(&if all.is_empty() { none.to_owned() } else { table(all) })
}

/// Nodes as a table.
pub fn nodes(nodes: &[NodeView]) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("ID", Align::Right),
        ("ALIVE", Align::Left),
        ("DEVICES", Align::Right),
        ("SHARDS", Align::Right),
        ("DATA", Align::Left),
        ("API", Align::Left),
        ("CLIENTS", Align::Left),
        ("MEMORY", Align::Right),
        ("VERSION", Align::Left),
        ("ROLE", Align::Left),
    ])
    .toned("ALIVE", |alive| if matches!(alive, "NO" | "SHUT OUT") { Tone::Bad } else { Tone::Plain });
    for node in nodes {
        table.row(vec![
            node.name.clone(),
            node.id.to_string(),
            if node.removed {
                "removed"
            } else if node.shut_out {
                "SHUT OUT"
            } else if node.alive {
                "yes"
            } else {
                "NO"
            }
            .to_owned(),
            node.devices.to_string(),
            node.shards.to_string(),
            node.data_address.clone(),
            node.api_address.clone(),
            endpoints::by_protocol(&node.endpoints),
            node.memory_bytes.map_or_else(|| "?".to_owned(), |bytes| Size::new(bytes).to_string()),
            node.version.clone().unwrap_or_else(|| "?".to_owned()),
            if node.leader { "leader" } else { "" }.to_owned(),
        ]);
    }
    table.render()
}

/// What a device does, in a word or two.
fn device_status(device: &DeviceView) -> String {
    match (device.state, device.groups_left()) {
        (DeviceState::Draining, 0) => "drained".to_owned(),
        (DeviceState::Draining, left) => format!("draining, {left} groups left"),
        _ => device.status.clone(),
    }
}

/// Devices as a table.
pub fn devices(devices: &[DeviceView]) -> String {
    let mut table = Table::new(&[
        ("DEVICE", Align::Right),
        ("NODE", Align::Left),
        ("NAME", Align::Left),
        ("STATUS", Align::Left),
        ("SIZE", Align::Right),
        ("USED", Align::Right),
        ("USED%", Align::Right),
        ("GROUPS", Align::Right),
        ("PRIMARIES", Align::Right),
        ("PROBLEM", Align::Left),
    ])
    .toned("STATUS", |status| if status == "open" { Tone::Plain } else { Tone::Notice })
    .toned("PROBLEM", |_| Tone::Bad);
    for device in devices {
        let share = device.used_bytes as f64 / device.capacity_bytes.max(1) as f64 * 100.0;
        table.row(vec![
            device.id.to_string(),
            device.node_name.clone(),
            device.name.clone(),
            device_status(device),
            Size::new(device.capacity_bytes).to_string(),
            Size::new(device.used_bytes).to_string(),
            format!("{share:.1}"),
            device.groups.to_string(),
            device.primaries.to_string(),
            device.problem.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

fn groups(groups: &[GroupView]) -> String {
    let mut table = Table::new(&[
        ("GROUP", Align::Right),
        ("CLASS", Align::Left),
        ("HEALTH", Align::Left),
        ("STATE", Align::Left),
        ("PRIMARY", Align::Right),
        ("IN SYNC", Align::Left),
        ("MEMBERS", Align::Left),
        ("EPOCH", Align::Right),
        ("COMMITTED", Align::Right),
        ("DEEP SCRUB", Align::Left),
        ("LIGHT SCRUB", Align::Left),
    ])
    .toned("HEALTH", super::status::health_tone);
    let numbers = |ids: &[azekura_base::DeviceId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    for group in groups {
        table.row(vec![
            group.id.to_string(),
            group.class.clone(),
            super::status::health_word(group.health).to_owned(),
            group.state.clone(),
            group.primary.to_string(),
            numbers(&group.in_sync),
            numbers(&group.members),
            group.epoch.to_string(),
            group.committed.to_string(),
            scrub_time(group.scrub.deep.done),
            scrub_time(group.scrub.light.done),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_listed_with_their_shards() {
        let node = |name: &str| {
            serde_json::json!({
                "id": 1, "name": name, "alive": true, "alive_since": null, "data_address": "127.0.0.1:7101",
                "api_address": "127.0.0.1:7180", "site": "", "rack": "", "devices": 3, "leader": false,
                "memory_bytes": null, "uptime_seconds": null, "version": null,
            })
        };
        let of_today = {
            let mut node = node("n1");
            node["shards"] = 2.into();
            node
        };
        // The second answer is that of a node from before shards.
        let nodes: Vec<NodeView> = [of_today, node("n2")].map(|node| serde_json::from_value(node).unwrap()).into();
        let table = super::nodes(&nodes);
        let cells: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let column = cells[0].iter().position(|title| *title == "SHARDS").unwrap();
        assert_eq!((cells[0][column - 1], cells[1][column - 1]), ("DEVICES", "3"));
        assert_eq!((cells[1][column], cells[2][column]), ("2", "1"));
    }
}
