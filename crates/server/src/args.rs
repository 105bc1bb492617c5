//! The options of `azekura node`.

use crate::config_servers::ConfigServerArgs;
use crate::key_args::KeyArgs;
use azekura_api::Period;
use azekura_base::{ApiAccess, Size, Transport};
use azekura_logging::LogFormat;
use azekura_node::DEVICE_TIMEOUT_MIN;
use clap::{ArgGroup, Args};
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;

/// Shards that a process may have.
pub const SHARDS_MAX: u8 = 64;
/// Connections that [`NodeArgs::client_connections`] may be set to.
const CLIENT_CONNECTIONS_MAX: usize = 100_000;

fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=CLIENT_CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {CLIENT_CONNECTIONS_MAX}"))
}

/// A volume that has a socket of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostSocket {
    /// The volume, or the snapshot.
    pub volume: String,
    /// The socket.
    pub path: PathBuf,
}

/// Run a node: it keeps copies of volumes on its devices and serves every volume of the cluster to clients.
///
/// The process stays in the foreground and logs to standard error; stop it with Ctrl-C or SIGTERM. Everything that
/// was acknowledged is on its devices, whichever way it ends.
///
/// One machine, everything inside:
///   azekura node --data /var/lib/azekura --serve-config 127.0.0.1:7179 --device-size 100GiB
///
/// A further machine of a cluster whose first has --serve-config 10.0.0.1:7179, with 'azekura token create n2 --join':
///   azekura node --data /var/lib/azekura --config https://10.0.0.1:7179 --listen 10.0.0.2:7101 --api 10.0.0.2:7180 \
///     --join https://10.0.0.1:7180 --token-file TOKEN --device-size 100GiB
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[command(group(ArgGroup::new("vhost_sockets").args(["vhost_socket", "vhost_folder"]).multiple(true)))]
pub struct NodeArgs {
    /// The node's name, unique in the cluster; also its host in failure domains [default: the host's name].
    #[arg(long, env = "AZEKURA_NODE_NAME")]
    pub name: Option<String>,

    /// The data folder: identity, devices, and the configuration database if this node serves it.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,

    /// Where other nodes reach this one. The address is announced to them, so it must not be 0.0.0.0.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7101")]
    pub listen: SocketAddr,

    /// How the nodes of a cluster that this start makes talk with each other: without TLS, or with it, each proving its
    /// key. In a cluster that is there, 'azekura cluster set transport' changes that [default: tls, or plain where
    /// --listen is a loopback address].
    #[arg(long, value_name = "plain|both|tls")]
    pub transport: Option<Transport>,

    /// Where the REST API listens: the command line, the metrics and the dashboard use it.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7180")]
    pub api: SocketAddr,

    /// Whether the API of a cluster that this start makes asks for grants (azekura token). The node's own socket,
    /// DIR/api.sock, never does. In a cluster that is there, 'azekura cluster set api-access' changes that
    /// [default: grants, or open where --listen and --api are loopback addresses].
    #[arg(long, value_name = "open|grants")]
    pub api_access: Option<ApiAccess>,

    /// Names, separated by commas, by which the API is asked. Addresses and localhost need not be named; requests to
    /// any other name are refused, since web pages can make names of theirs lead here.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub api_names: Vec<String>,

    /// Where NBD clients connect over TCP.
    #[arg(long, value_name = "IP:PORT")]
    pub nbd: Option<SocketAddr>,

    /// Whether TLS is spoken there (nbds://): then nobody is served before TLS, and where the API asks for grants the
    /// key of a client's certificate needs one ('azekura key new') [default: tls, or plain where --nbd is a loopback
    /// address].
    #[arg(long, value_name = "plain|tls", value_parser = nbd_transport, requires = "nbd")]
    pub nbd_transport: Option<Transport>,

    /// A further address where NBD clients connect over TCP, always without TLS: for programs that can't speak it.
    /// Whoever reaches the address may everything with all volumes, and who is on the way reads and alters all.
    #[arg(long, value_name = "IP:PORT")]
    pub nbd_plain: Option<SocketAddr>,

    /// Where NBD clients of this machine connect: a unix socket.
    #[arg(long, value_name = "PATH")]
    pub nbd_socket: Option<PathBuf>,

    /// Who may connect to that socket: the mode of its file, in octal. Connecting takes the right to write
    /// [default: 600, or 660 with --nbd-socket-group].
    #[arg(long, value_name = "MODE", value_parser = socket_mode, requires = "nbd_socket")]
    pub nbd_socket_mode: Option<u32>,

    /// The group of that socket's file: a name of /etc/group or a number [default: the process's].
    #[arg(long, value_name = "GROUP", requires = "nbd_socket")]
    pub nbd_socket_group: Option<String>,

    /// Where iSCSI initiators connect over TCP: each volume is a target with one logical unit (docs/iscsi.md).
    #[arg(long, value_name = "IP:PORT")]
    pub iscsi: Option<SocketAddr>,

    /// Where NVMe hosts connect over TCP: each volume is a subsystem with one namespace (docs/nvme.md). Hosts can ask
    /// here, too, which there are; 4420 is the usual port.
    #[arg(long, value_name = "IP:PORT")]
    pub nvme: Option<SocketAddr>,

    /// With --nvme, a further address where hosts ask which subsystems there are; 8009 is the usual port.
    #[arg(long, value_name = "IP:PORT", requires = "nvme")]
    pub nvme_discovery: Option<SocketAddr>,

    /// Where the API asks for grants, hosts need one at --iscsi, --nvme and --nvme-discovery on loopbacks, too
    /// ('azekura host add'). Without this, whoever is on this machine may everything with all volumes there.
    #[arg(long)]
    pub ask_loopback_hosts: bool,

    /// Where QEMU's vhost-user-blk and others of this machine that share memory find a volume, or a snapshot
    /// (VOLUME@SNAPSHOT): a unix socket of its own, with one client at a time (docs/vhost.md). May be given often.
    #[arg(long, value_name = "VOLUME=PATH", value_parser = vhost_socket)]
    pub vhost_socket: Vec<VhostSocket>,

    /// The folder for such sockets that are made while the node runs: 'azekura volume expose'.
    #[arg(long, value_name = "FOLDER", value_parser = absolute)]
    pub vhost_folder: Option<PathBuf>,

    /// Who may connect to those sockets: the mode of their files, in octal. Connecting takes the right to write
    /// [default: 600, or 660 with --vhost-socket-group].
    #[arg(long, value_name = "MODE", value_parser = socket_mode, requires = "vhost_sockets")]
    pub vhost_socket_mode: Option<u32>,

    /// The group of those sockets' files: a name of /etc/group or a number [default: the process's].
    #[arg(long, value_name = "GROUP", requires = "vhost_sockets")]
    pub vhost_socket_group: Option<String>,

    /// How many connections of clients there may be at a time; further ones are refused. Other nodes have places of
    /// their own. At most half of the files that the process may have open.
    #[arg(long, value_name = "N", default_value_t = azekura_frontend::CLIENTS_MAX, value_parser = connections)]
    pub client_connections: usize,

    /// Memory for the requests and answers of clients that are on their way, at least 72MiB for each shard. Clients
    /// wait when there is not enough; each has 64KiB besides [default: 256MiB, or 72MiB a shard where that is more].
    #[arg(long, value_name = "SIZE")]
    pub client_memory: Option<Size>,

    /// Who has the keys that the keys of encrypted volumes are wrapped with.
    #[command(flatten)]
    pub keys: KeyArgs,

    /// The configuration servers, etcd's or another node's --serve-config, separated by commas. With https:// and
    /// without --config-ca it is a node's: both know each other by the keys of the cluster's nodes
    /// [default: the one that this node serves].
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', env = "AZEKURA_CONFIG")]
    pub config: Vec<String>,

    /// How these servers are known.
    #[command(flatten)]
    pub config_servers: ConfigServerArgs,

    /// Serve the cluster's configuration here (etcd's v3 API, kept in the data folder). For one machine or a small
    /// lab: when this node is away, nothing can be reconfigured. Use etcd for a cluster that must survive that.
    #[arg(long, value_name = "IP:PORT")]
    pub serve_config: Option<SocketAddr>,

    /// Whether TLS is spoken there: then the cluster's nodes alone are let in, by their keys, and others name it with
    /// https:// in --config. Without TLS, whoever reaches the address owns the cluster [default: tls, or plain where
    /// --serve-config is a loopback address].
    #[arg(long, value_name = "plain|tls", value_parser = config_transport, requires = "serve_config")]
    pub serve_config_transport: Option<Transport>,

    /// Read and compare all copies of everything that this node is primary of, every so many days; 0: only when asked
    /// for (azekura scrub).
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub scrub_days: u32,

    /// Compare the maps of all copies of everything that this node is primary of, every so many hours; 0: only when
    /// asked for (azekura scrub --light). No block is read, unless the maps differ.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub light_scrub_hours: u32,

    /// Memory for the maps of all devices, which say where each block is: at least 2MiB a device. 64MiB are enough for
    /// 20GiB written in small pieces, or ten times as much in a sparse volume; what is not in memory is read from the
    /// device first [default: a sixteenth of the machine's memory, or 64MiB a device where that is more]. Blocks that
    /// were read get a quarter of it besides, and at most 16MiB a device; pages of the maps' files as much, and between
    /// 16MiB and 64MiB a device, half as much again while they are written.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,

    /// On the first start, make one device of this size in the data folder, at least 320MiB. Devices that are there
    /// keep the size that they have.
    #[arg(long, value_name = "SIZE")]
    pub device_size: Option<Size>,

    /// Disks for devices, each whole or a partition; a pattern (quote it) means whole disks only. One that is new
    /// becomes a device at the next start. A disk with anything on it is left alone: 'azekura store wipe DISK' makes it
    /// blank. Take names that stay, such as /dev/disk/by-id/... Where only patterns are given and none finds a blank
    /// disk, the node keeps no data. The maps are in the data folder, and take 0.5 % of the disks' size.
    #[arg(long, value_name = "PATH|PATTERN", value_delimiter = ',', conflicts_with = "device_size")]
    pub disk: Vec<String>,

    /// With --device-size, make this many devices instead of one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub devices: u32,

    /// Cut the node's data plane into this many shards: threads with an event loop each, which have a part of the
    /// devices, in the order of their numbers, and a part of the clients. There are not more than devices, unless
    /// --shards-without-devices is given. The number may be another one at each start [default: one for each core].
    #[arg(long, value_name = "N", value_parser = shards)]
    pub shards: Option<NonZeroU8>,

    /// With --shards, have so many even where there are fewer devices: the others only serve clients.
    #[arg(long)]
    pub shards_without_devices: bool,

    /// The key in identity/node.key takes the place of those that the cluster knows of this node, which are lost: for
    /// one start
    #[arg(long)]
    pub replace_key: bool,

    /// On the first start, ask this node of the cluster (https://HOST:7180) to take the machine in, with the join token
    /// in --token-file (azekura token create NAME --join). A cluster whose nodes prove their keys and whose API asks
    /// for grants takes no new node otherwise. A node that has joined does not ask again.
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub join: Option<String>,

    /// Join without a token: for networks where nobody but the cluster's own machines reaches the configuration
    /// servers. Whoever reaches these can make himself a node all the same; a token keeps out machines that are started
    /// by mistake
    #[arg(long, conflicts_with = "join")]
    pub trusted_config: bool,

    /// With --join, the file with the token, which nobody else may read.
    #[arg(long, value_name = "FILE", requires = "join")]
    pub token_file: Option<PathBuf>,

    /// The devices have power-loss protection: a write counts as durable without a flush of their cache.
    #[arg(long)]
    pub power_loss_protected: bool,

    /// Leave blocks where they are that a large read finds scattered over a device. Else they are put together, so that
    /// the next such read is several times as fast, and each of them is written once more.
    #[arg(long)]
    pub leave_scattered: bool,

    /// A device of which nothing has been heard for so long, although it was asked for something, is out of service
    /// until it answers: its copies get new homes in time, as those of a failed device do. At least 2s. Nobody waits
    /// for a device that has been silent for one second, whatever this says.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = device_timeout)]
    pub device_timeout: Period,

    /// How a line of the log looks: text is a sentence for people, json an object that names volume, group, device,
    /// layer and peer apart (docs/operations/logs.md).
    #[arg(long, value_name = "text|json", value_enum, default_value_t, hide_possible_values = true)]
    pub log: LogFormat,

    /// Leave the limit of core dumps as it is. Without this the process leaves none, since the keys of encrypted
    /// volumes, of the node and of the certificate authority are in its memory
    #[arg(long)]
    pub core_dumps: bool,

    /// The site (data centre) that this machine stands in, for failure domains.
    #[arg(long, default_value = "")]
    pub site: String,

    /// The rack that this machine stands in, for failure domains.
    #[arg(long, default_value = "")]
    pub rack: String,
}

impl NodeArgs {
    /// How nodes are to talk with each other in a cluster that this start makes. Where all is on one machine there is
    /// no network to be afraid of.
    #[must_use]
    pub fn first_transport(&self) -> Transport {
        let default = if self.listen.ip().is_loopback() { Transport::Plain } else { Transport::Tls };
        self.transport.unwrap_or(default)
    }

    /// Whether the API asks for grants in a cluster that this start makes. Where all is on one machine only its users
    /// reach it.
    #[must_use]
    pub fn first_api_access(&self) -> ApiAccess {
        let loopbacks = self.listen.ip().is_loopback() && self.api.ip().is_loopback();
        self.api_access.unwrap_or(if loopbacks { ApiAccess::Open } else { ApiAccess::Grants })
    }

    /// Whether TLS is spoken at --nbd.
    #[must_use]
    pub fn nbd_over_tls(&self) -> bool {
        let default = self.nbd.is_some_and(|nbd| !nbd.ip().is_loopback());
        self.nbd_transport.map_or(default, |transport| transport == Transport::Tls)
    }

    /// Whether TLS is spoken at --serve-config.
    #[must_use]
    pub fn config_over_tls(&self) -> bool {
        let default = self.serve_config.is_some_and(|address| !address.ip().to_canonical().is_loopback());
        self.serve_config_transport.map_or(default, |transport| transport == Transport::Tls)
    }

    /// Whether hosts are asked for their grants at an address of --iscsi or --nvme.
    #[must_use]
    pub fn asks_hosts(&self, address: SocketAddr) -> bool {
        self.ask_loopback_hosts || !address.ip().to_canonical().is_loopback()
    }

    /// How many shards the node has, once its start has counted cores and devices: one before.
    #[must_use]
    pub fn shard_count(&self) -> NonZeroU8 {
        self.shards.unwrap_or(NonZeroU8::MIN)
    }
}

fn socket_mode(text: &str) -> Result<u32, String> {
    let digits = text.len() <= 4 && text.bytes().all(|digit| digit.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits, as chmod takes them: 660 lets the owner and the group connect".to_owned())
}

fn vhost_socket(text: &str) -> Result<VhostSocket, String> {
    let parts = text.split_once('=').filter(|(volume, path)| !volume.is_empty() && !path.is_empty());
    let (volume, path) =
        parts.ok_or_else(|| "a volume and its socket, as in vm1-root=/run/vm1-root.sock".to_owned())?;
    Ok(VhostSocket { volume: volume.to_owned(), path: path.into() })
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("a path from / on, as in /run/azekura".to_owned()) }
}

fn nbd_transport(text: &str) -> Result<Transport, String> {
    match text.parse() {
        Ok(Transport::Both) => Err("an address has either: where both are served, somebody on the way talks clients \
                                    out of TLS; give --nbd-plain a further address"
            .to_owned()),
        Ok(transport) => Ok(transport),
        Err(_) => Err("plain or tls".to_owned()),
    }
}

fn config_transport(text: &str) -> Result<Transport, String> {
    match text.parse() {
        Ok(transport @ (Transport::Plain | Transport::Tls)) => Ok(transport),
        Ok(Transport::Both) | Err(_) => Err("plain or tls".to_owned()),
    }
}

fn shards(text: &str) -> Result<NonZeroU8, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU8| number.get() <= SHARDS_MAX);
    number.ok_or_else(|| format!("a number from 1 to {SHARDS_MAX}: one for each core that is to work for this node"))
}

fn device_timeout(text: &str) -> Result<Period, String> {
    let period: Period = text.parse()?;
    if period.0 < DEVICE_TIMEOUT_MIN.as_secs() {
        let least = Period(DEVICE_TIMEOUT_MIN.as_secs());
        return Err(format!("a sound device may be silent for {period}; give {least} or more"));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn a_node_has_a_number_of_shards_that_makes_sense() {
        assert_eq!(shards("4").map(NonZeroU8::get), Ok(4));
        for nonsense in ["0", "65", "256", "-1", "all", ""] {
            assert!(shards(nonsense).is_err_and(|error| error.contains("from 1 to 64")), "{nonsense}");
        }
    }

    fn try_read(options: &[&str]) -> Result<NodeArgs, clap::Error> {
        let command = NodeArgs::augment_args(clap::Command::new("node").no_binary_name(true));
        let options = ["--data", "d"].iter().chain(options);
        NodeArgs::from_arg_matches(&command.try_get_matches_from(options)?)
    }

    fn read(options: &[&str]) -> NodeArgs {
        try_read(options).unwrap()
    }

    #[test]
    fn only_clusters_within_a_machine_begin_open() {
        let access = |options: &[&str]| read(options).first_api_access();
        assert_eq!(access(&["--listen", "[::1]:7101"]), ApiAccess::Open);
        assert_eq!(access(&["--listen", "10.0.0.1:7101"]), ApiAccess::Grants);
        assert_eq!(access(&["--api", "0.0.0.0:7180"]), ApiAccess::Grants);
        assert_eq!(access(&["--api", "10.0.0.1:7180", "--api-access", "open"]), ApiAccess::Open);
        assert_eq!(access(&["--api-access", "grants"]), ApiAccess::Grants);
    }

    #[test]
    fn only_clusters_within_a_machine_begin_without_tls() {
        let transport = |options: &[&str]| read(options).first_transport();
        assert_eq!(transport(&[]), Transport::Plain);
        assert_eq!(transport(&["--listen", "[::1]:7101"]), Transport::Plain);
        assert_eq!(transport(&["--listen", "10.0.0.1:7101"]), Transport::Tls);
        assert_eq!(transport(&["--listen", "10.0.0.1:7101", "--transport", "plain"]), Transport::Plain);
        assert_eq!(transport(&["--transport", "tls"]), Transport::Tls);
    }

    #[test]
    fn the_configuration_is_served_with_tls_where_there_is_a_network() {
        let tls = |options: &[&str]| read(options).config_over_tls();
        assert!(tls(&["--serve-config", "10.0.0.1:7179"]) && tls(&["--serve-config", "0.0.0.0:7179"]));
        assert!(!tls(&["--serve-config", "[::1]:7179"]) && !tls(&["--serve-config", "127.0.0.1:7179"]) && !tls(&[]));
        assert!(tls(&["--serve-config", "127.0.0.1:7179", "--serve-config-transport", "tls"]));
        assert!(!tls(&["--serve-config", "10.0.0.1:7179", "--serve-config-transport", "plain"]));
        assert!(config_transport("both").is_err() && config_transport("ssl").is_err());
    }

    #[test]
    fn nbd_has_tls_or_not() {
        assert_eq!(nbd_transport("tls"), Ok(Transport::Tls));
        assert_eq!(nbd_transport("plain"), Ok(Transport::Plain));
        assert!(nbd_transport("both").is_err_and(|error| error.contains("--nbd-plain")));
        assert!(nbd_transport("ssl").is_err_and(|error| error.contains("plain or tls")));
    }

    #[test]
    fn a_socket_has_a_mode_of_octal_digits() {
        assert_eq!((socket_mode("660"), socket_mode("0600"), socket_mode("0")), (Ok(0o660), Ok(0o600), Ok(0)));
        for nonsense in ["", "680", "rw", "+60", "1777", "0o66", "-1"] {
            assert!(socket_mode(nonsense).is_err_and(|error| error.contains("octal")), "{nonsense}");
        }
    }

    #[test]
    fn a_vhost_socket_is_a_volumes() {
        let sockets = read(&["--vhost-socket", "v=/run/a=b", "--vhost-socket", "w@monday=s"]).vhost_socket;
        let sockets: Vec<_> = sockets.iter().map(|one| (one.volume.as_str(), one.path.to_str())).collect();
        assert_eq!(sockets, [("v", Some("/run/a=b")), ("w@monday", Some("s"))]);
        for nonsense in ["", "v", "=s", "v=", "/run/a"] {
            assert!(vhost_socket(nonsense).is_err_and(|error| error.contains("vm1-root=")), "{nonsense}");
        }
    }

    #[test]
    fn who_may_connect_to_vhost_sockets_is_said_where_there_are_some() {
        let (mode, group) = (["--vhost-socket-mode", "660"], ["--vhost-socket-group", "kvm"]);
        let (socket, folder) = (["--vhost-socket", "v=/run/v"], ["--vhost-folder", "/run/azekura"]);
        for access in [mode, group] {
            let error = try_read(&access).unwrap_err().to_string();
            assert!(error.contains("--vhost-socket") && error.contains("--vhost-folder"), "{error}");
            for some in [[socket, access].concat(), [folder, access].concat(), [socket, folder, access].concat()] {
                assert!(try_read(&some).is_ok(), "{some:?}");
            }
        }
        assert!(try_read(&["--vhost-folder", "run"]).is_err_and(|error| error.to_string().contains("/run/azekura")));
    }

    #[test]
    fn a_device_is_given_some_time() {
        assert_eq!(device_timeout("30s"), Ok(Period(30)));
        assert_eq!(device_timeout("1s"), Err("a sound device may be silent for 1s; give 2s or more".into()));
        assert!(device_timeout("1").is_err_and(|error| error.contains("write 90s")));
    }
}
