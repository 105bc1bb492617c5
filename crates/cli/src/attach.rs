//! `azekura attach`, `detach` and `attached`: volumes as block devices of this machine.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use azekura_api::endpoint::{NodeList, SnapshotShow, VolumeShow};
use azekura_api::{EndpointView, NoQuery, NodeView, ShowSnapshot, VolumeAccess, VolumeView};
use azekura_attach::{AttachError, Attached, Devices, Found, Mounts, Wanted, Way, programs};
use azekura_client::Client;
use clap::Args;
use serde::Serialize;

use super::output::{print, print_json};
use super::progress::Progress;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};

/// Where each attached volume has a link of its own name.
const LINKS: &str = "/dev/azekura";

/// What all three need.
#[derive(Debug, Args)]
struct StateArgs {
    /// A folder that is empty after a restart of the machine, for sockets and mounts of the way `fuse`.
    #[arg(long, value_name = "DIR", default_value = "/run/azekura-attach")]
    state: PathBuf,
}

/// Make a volume, or a snapshot, a block device of this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura attach vol1                   /dev/azekura/vol1 leads to the device\n  \
    mkfs.ext4 /dev/azekura/vol1 && mount /dev/azekura/vol1 /mnt\n  \
    azekura attach vol1@monday            a snapshot, to read\n  \
    systemctl enable --now azekura-attach@vol1    now, and at each start of the machine\n\n\
    It takes the first way that the kernel, the installed programs and the node have: nvme (module nvme-tcp, nvme-cli, azekura \
    node --nvme), fuse (FUSE and a loop device, qemu-storage-daemon, --nbd-socket or --nbd), nbd (module nbd, nbd-client, as \
    fuse), fuse with nbdfuse, which shared volumes need. Where that is nbd or nbdfuse, requests fail when the node restarts. \
    Repeated, it answers with the device that is there.")]
pub struct AttachArgs {
    /// The volume, or VOLUME@SNAPSHOT.
    volume: String,
    /// How: the first of the others that works here, those first that go on when the node restarts; or one of them.
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Way::Auto)]
    via: Way,
    /// The node to use. Else it is the one that the volume is attached to, one with a socket on this machine, or
    /// any that can be reached.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Nothing is to be written.
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Give back a volume that is a block device of this machine. All that was written is in the volume then.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// The volume, or VOLUME@SNAPSHOT.
    volume: String,
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// List the volumes that are block devices of this machine.
#[derive(Debug, Args)]
pub struct AttachedArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// A volume on this machine, as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    volume: String,
    device: PathBuf,
    /// The link with the volume's name, if it is there.
    link: Option<PathBuf>,
    via: String,
    size_bytes: u64,
    /// Where its file system is mounted.
    mounted: Vec<PathBuf>,
}

/// What `attach` answers.
#[derive(Debug, Serialize)]
struct Done {
    volume: String,
    device: PathBuf,
    link: PathBuf,
    via: String,
    /// The node that serves it; of one that was there before, not known.
    node: Option<String>,
    /// Ways that come first and that this machine, or the node, does not have.
    passed_over: Vec<NotHere>,
}

#[derive(Debug, Serialize)]
struct NotHere {
    via: String,
    why: String,
}

impl From<AttachError> for CliError {
    fn from(error: AttachError) -> CliError {
        CliError::new(error.message)
    }
}

impl StateArgs {
    /// The ways, for this process alone.
    fn devices(&self, via: Way) -> Result<(Devices, File), CliError> {
        if !programs::is_root() {
            return Err(CliError::new("block devices are made by root alone").hint("run it with sudo"));
        }
        let failed = |error| CliError::new(format!("can't use {}: {error}", self.state.display()));
        let made = fs::create_dir_all(&self.state).and_then(|()| self.state.canonicalize()).map_err(failed)?;
        let lock = File::create(made.join("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok((Devices::new(via, &made), lock))
    }
}

impl AttachArgs {
    /// Attaches, or finds what is attached.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (devices, _alone) = self.state.devices(self.via)?;
        let there = devices.list()?.into_iter().find(|found| found.volume == self.volume);
        let (attached, node) = match there {
            // Whoever repeats the command need not reach the cluster for that.
            Some(Found { device, way, .. }) if devices.is_sound(&self.volume)? == Some(true) => {
                // A call that was interrupted may have made the device and left it to be written.
                if self.is_read_only() {
                    devices.make_read_only(&self.volume)?;
                }
                (Attached { device, way, passed_over: Vec::new() }, None)
            }
            _ => {
                let (wanted, node) = self.wanted(&self.api.client()?)?;
                Progress::new().tell(format!("attaching {} through node {node}", self.volume));
                (devices.attach(&wanted)?, Some(node))
            }
        };
        let link = make_link(&self.volume, &attached.device)?;
        let passed_over =
            attached.passed_over.into_iter().map(|gone| NotHere { via: gone.way.to_string(), why: gone.why });
        let done = Done {
            volume: self.volume,
            device: attached.device,
            link,
            via: attached.way.to_string(),
            node,
            passed_over: passed_over.collect(),
        };
        if self.api.json { print_json(&done) } else { print(&text(&done)) }
    }

    /// Nothing is to be written; to a snapshot nothing can be.
    fn is_read_only(&self) -> bool {
        self.read_only || self.volume.contains('@')
    }

    /// What is wanted, of which node.
    fn wanted(&self, client: &Client) -> Result<(Wanted, String), CliError> {
        let nodes = client.ask_all::<NodeList, _>([])?;
        let is_local = is_local(client.url());
        let (volume, user, (size_bytes, request_bytes_min), shared) = match self.volume.split_once('@') {
            Some((volume, snapshot)) => {
                let names = [volume.to_owned(), snapshot.to_owned()];
                let shown = client.ask::<SnapshotShow>(names, &ShowSnapshot { measure_ms: Some(0) })?;
                let of = client.ask::<VolumeShow>([volume.to_owned()], &NoQuery {})?;
                (format!("{volume}@{}", shown.name), None, (shown.size_bytes, of.request_bytes_min()), false)
            }
            None => {
                let shown = client.ask::<VolumeShow>([self.volume.clone()], &NoQuery {})?;
                let shared = shown.access == VolumeAccess::Shared;
                let size = (shown.size_bytes, shown.request_bytes_min());
                (shown.name.clone(), user(&shown, self.node.as_deref())?, size, shared)
            }
        };
        let node = choose(&nodes, self.node.as_deref().or(user.as_deref()), is_local)?;
        let endpoints = reachable(node, is_local).map(|endpoint| addressed(endpoint, node)).collect();
        let read_only = self.is_read_only();
        Ok((Wanted { volume, endpoints, size_bytes, request_bytes_min, read_only, shared }, node.name.clone()))
    }
}

/// The node that has the volume for itself, through which alone it can be used.
fn user(volume: &VolumeView, asked: Option<&str>) -> Result<Option<String>, CliError> {
    let Some(has) = volume.attachments.iter().find(|entry| !entry.shared) else { return Ok(None) };
    let (name, node) = (&volume.name, &has.node_name);
    if asked.is_some_and(|asked| asked != node) {
        return Err(CliError::new(format!("volume {name} is attached to node {node}")).hint(format!(
            "leave --node out, or take it away from there: azekura volume detach {name} --node {node}"
        )));
    }
    // Two machines that write to one file system destroy it, also where they do so through one node.
    if has.in_use {
        return Err(CliError::new(format!("volume {name} is in use, through node {node}")).hint(format!(
            "detach it on the machine that has it. If that machine is gone: azekura volume detach {name} --node {node} --force, \
             after which nothing late of it is written"
        )));
    }
    Ok(Some(node.clone()))
}

/// Whether the API is one of this machine: then so are the loopback addresses of nodes.
fn is_local(api: &str) -> bool {
    let host = api.split_once("://").map_or(api, |(_, rest)| rest);
    api.starts_with("unix:") || ["127.", "localhost", "[::1]"].iter().any(|start| host.starts_with(start))
}

/// Where a node can be reached from here by a protocol that makes devices.
fn reachable(node: &NodeView, is_local: bool) -> impl Iterator<Item = &EndpointView> {
    node.endpoints.iter().filter(move |endpoint| {
        let address = endpoint.address.as_str();
        let is_loopback = address.starts_with("127.") || address.starts_with("[::1]");
        let is_here = match address.strip_prefix("unix:") {
            Some(path) => Path::new(path).exists(),
            None => is_local || !is_loopback,
        };
        is_here && ["nvme", "nbd"].contains(&endpoint.protocol.as_str())
    })
}

/// The endpoint with an address to connect to: where a node listens at all of its addresses, that which it has told to
/// the other nodes.
fn addressed(endpoint: &EndpointView, node: &NodeView) -> EndpointView {
    let port = ["0.0.0.0:", "[::]:"].iter().find_map(|all| endpoint.address.strip_prefix(all));
    let host = node.data_address.rsplit_once(':').map(|(host, _)| host);
    let told = port.zip(host).map(|(port, host)| format!("{host}:{port}"));
    EndpointView { address: told.unwrap_or_else(|| endpoint.address.clone()), ..endpoint.clone() }
}

/// The node to use.
fn choose<'a>(nodes: &'a [NodeView], named: Option<&str>, is_local: bool) -> Result<&'a NodeView, CliError> {
    let serves = |node: &NodeView| reachable(node, is_local).next().is_some();
    let options = "azekura node --nvme IP:PORT, --nbd-socket PATH on this machine, or --nbd IP:PORT without TLS";
    if let Some(name) = named {
        let node = nodes.iter().find(|node| node.name == name);
        let node = node.ok_or_else(|| CliError::new(format!("there is no node {name}")).hint("azekura node list"))?;
        if !serves(node) {
            return Err(CliError::new(format!("node {name} serves nothing that this machine can attach")).hint(options));
        }
        return Ok(node);
    }
    let has_socket = |node: &NodeView| reachable(node, is_local).any(|endpoint| endpoint.address.starts_with("unix:"));
    let mut able: Vec<&NodeView> = nodes.iter().filter(|node| node.alive && serves(node)).collect();
    able.sort_by_key(|node| (!has_socket(node), node.name.clone()));
    let none = || CliError::new("no living node serves anything that this machine can attach").hint(options);
    able.first().copied().ok_or_else(none)
}

/// Lets the link of the volume's name lead to the device.
fn make_link(volume: &str, device: &Path) -> Result<PathBuf, CliError> {
    let link = Path::new(LINKS).join(volume);
    let failed =
        |error| CliError::new(format!("{} is made, but not the link {}: {error}", device.display(), link.display()));
    if fs::read_link(&link).is_ok_and(|target| target == device) {
        return Ok(link);
    }
    let temporary = Path::new(LINKS).join(format!(".{volume}"));
    fs::create_dir_all(LINKS).map_err(failed)?;
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    symlink(device, &temporary).and_then(|()| fs::rename(&temporary, &link)).map_err(failed)?;
    Ok(link)
}

fn text(done: &Done) -> String {
    let through = done.node.as_ref().map_or_else(|| ", as it was".to_owned(), |node| format!(", through node {node}"));
    let mut text = format!(
        "Volume {} is {} ({}), by {}{through}.\n",
        done.volume,
        done.link.display(),
        done.device.display(),
        done.via
    );
    for NotHere { via, why } in &done.passed_over {
        text += &format!("Not by {via}: {why}.\n");
    }
    text
}

impl DetachArgs {
    /// Detaches; where nothing is attached, nothing is to be done.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let (devices, _alone) = self.state.devices(Way::Auto)?;
        let volume = &self.volume;
        let device = devices.find(volume)?;
        if let Some(device) = &device {
            let users = users(device)?;
            if !users.is_empty() {
                let error =
                    CliError::new(format!("volume {volume} ({}) is used: {}", device.display(), users.join(", ")));
                return Err(error.hint("unmount it, or take it out of there, first"));
            }
        }
        Progress::new().tell(format!("detaching {volume}"));
        devices.detach(volume)?;
        let link = Path::new(LINKS).join(volume);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(CliError::new(format!("can't remove the link {}: {error}", link.display())));
            }
            _ => {}
        }
        if self.json {
            return print_json(&serde_json::json!({ "volume": volume, "device": device }));
        }
        print(&match device {
            Some(device) => format!("Volume {volume} is detached; {} is free.\n", device.display()),
            None => format!("Volume {volume} was not attached here.\n"),
        })
    }
}

/// Who has a device: where it is mounted, and what the kernel has made of it.
fn users(device: &Path) -> Result<Vec<String>, CliError> {
    let mut users: Vec<String> =
        Mounts::now()?.of(device).map(|mount| format!("mounted at {}", mount.point.display())).collect();
    let holders = Path::new("/sys/class/block").join(device.file_name().unwrap_or_default()).join("holders");
    let holders = fs::read_dir(holders).into_iter().flatten().flatten();
    users.extend(holders.map(|entry| format!("a part of {}", entry.file_name().to_string_lossy())));
    if users.is_empty() && azekura_attach::is_claimed(device) {
        users.push("the kernel has it, as swap or the like".to_owned());
    }
    Ok(users)
}

impl AttachedArgs {
    /// Lists.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let mounts = Mounts::now()?;
        let shown = Devices::new(Way::Auto, &self.state.state).list()?.into_iter().map(|found| {
            let link = Path::new(LINKS).join(&found.volume);
            let leads = fs::read_link(&link).is_ok_and(|target| target == found.device);
            Shown {
                size_bytes: azekura_attach::size(&found.device).unwrap_or(0),
                mounted: mounts.of(&found.device).map(|mount| mount.point.clone()).collect(),
                link: leads.then_some(link),
                via: found.way.to_string(),
                volume: found.volume,
                device: found.device,
            }
        });
        let shown: Vec<Shown> = shown.collect();
        if self.json {
            return print_json(&shown);
        }
        if shown.is_empty() {
            return print("No volume is attached to this machine. 'azekura attach VOLUME' does that.\n");
        }
        let mut table = Table::new(&[
            ("VOLUME", Align::Left),
            ("SIZE", Align::Right),
            ("DEVICE", Align::Left),
            ("VIA", Align::Left),
            ("LINK", Align::Left),
            ("MOUNTED", Align::Left),
        ]);
        for one in shown {
            let points: Vec<String> = one.mounted.iter().map(|point| point.display().to_string()).collect();
            table.row(vec![
                one.volume,
                azekura_base::Size::new(one.size_bytes).to_string(),
                one.device.display().to_string(),
                one.via,
                one.link.map_or_else(String::new, |link| link.display().to_string()),
                points.join(", "),
            ]);
        }
        print(&table.render())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, alive: bool, endpoints: &[(&str, &str)]) -> NodeView {
        let endpoints: Vec<_> =
            endpoints.iter().map(|(protocol, address)| json!({ "protocol": protocol, "address": address })).collect();
        serde_json::from_value(json!({
            "id": 1, "name": name, "alive": alive, "data_address": "10.0.0.9:7101", "api_address": "",
            "endpoints": endpoints, "site": "", "rack": "", "devices": 1, "leader": false,
        }))
        .unwrap()
    }

    fn volume(attachments: serde_json::Value) -> VolumeView {
        serde_json::from_value(json!({
            "name": "v", "id": 1, "uuid": "", "size_bytes": 4096, "class": "c", "copies": 2, "access": "exclusive",
            "generation": 1, "attachments": attachments, "fence_due": false, "ack_rule": "all", "created": "",
        }))
        .unwrap()
    }

    #[test]
    fn a_node_that_can_be_reached_is_chosen() {
        let folder = std::env::temp_dir();
        let socket = format!("unix:{}", folder.display());
        let nodes = [
            node("a", false, &[("nvme", "10.0.0.1:4420")]),
            node("b", true, &[("iscsi", "10.0.0.2:3260"), ("nbds", "10.0.0.2:10809"), ("nbd", "unix:/not/there")]),
            node("c", true, &[("nbd", "127.0.0.1:10809")]),
            node("d", true, &[("nvme", "10.0.0.4:4420")]),
            node("e", true, &[("nbd", &socket)]),
        ];
        let name = |nodes: &[NodeView], named, local| choose(nodes, named, local).map(|node| node.name.clone()).ok();
        assert_eq!(name(&nodes, None, false).as_deref(), Some("e"), "a socket of this machine comes first");
        assert_eq!(name(&nodes[..4], None, false).as_deref(), Some("d"), "a loopback is another machine's");
        assert_eq!(name(&nodes[..4], None, true).as_deref(), Some("c"));
        assert_eq!(name(&nodes, Some("d"), false).as_deref(), Some("d"));
        for (named, said) in [(Some("b"), "serves nothing"), (Some("x"), "no node x"), (None, "no living node")] {
            let refused = choose(&nodes[..2], named, false).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
        assert!(is_local("unix:/a") && is_local("http://127.0.0.1:1") && is_local("https://localhost:1"));
        assert!(!is_local("http://10.0.0.1:7180"));
    }

    #[test]
    fn an_address_that_is_all_addresses_is_that_of_the_node() {
        let node = node("a", true, &[("nvme", "0.0.0.0:4420"), ("nbd", "10.0.0.1:1"), ("nbd", "[::]:2")]);
        let told: Vec<String> = node.endpoints.iter().map(|endpoint| addressed(endpoint, &node).address).collect();
        assert_eq!(told, ["10.0.0.9:4420", "10.0.0.1:1", "10.0.0.9:2"]);
    }

    #[test]
    fn a_volume_in_use_is_not_attached_a_second_time() {
        let entry = |shared: bool, in_use: bool| {
            json!([{ "node": 1, "node_name": "n1", "generation": 1, "shared": shared, "pinned": true, "in_use": in_use,
                     "since": "" }])
        };
        assert_eq!(user(&volume(json!([])), Some("n2")).unwrap(), None);
        assert_eq!(user(&volume(entry(true, true)), Some("n2")).unwrap(), None);
        assert_eq!(user(&volume(entry(false, false)), None).unwrap().as_deref(), Some("n1"));
        let told = |volume, asked| user(&volume, asked).unwrap_err().to_string();
        assert!(told(volume(entry(false, true)), None).contains("in use"));
        assert!(told(volume(entry(false, false)), Some("n2")).contains("attached to node n1"));
    }

    #[test]
    fn what_is_said() {
        let done = Done {
            volume: "v".into(),
            device: "/dev/loop0".into(),
            link: "/dev/azekura/v".into(),
            via: "fuse".into(),
            node: Some("n1".into()),
            passed_over: vec![NotHere {
                via: "nbd".into(),
                why: "the kernel has no NBD devices (modprobe nbd)".into(),
            }],
        };
        let wanted = "Volume v is /dev/azekura/v (/dev/loop0), by fuse, through node n1.\n\
                      Not by nbd: the kernel has no NBD devices (modprobe nbd).\n";
        assert_eq!(text(&done), wanted);
    }
}
