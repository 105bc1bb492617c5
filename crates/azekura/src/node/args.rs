//! The options of `azekura node`.

use crate::size::Size;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run a node: it keeps copies of volumes on its devices and serves every volume of the cluster to clients.
///
/// The process stays in the foreground and logs to standard error; stop it with Ctrl-C or SIGTERM. Everything that
/// was acknowledged is on its devices, whichever way it ends.
///
/// One machine, everything inside:
///   azekura node --data /var/lib/azekura --serve-config 127.0.0.1:7179 --device-size 100GiB
///
/// A further machine of that cluster:
///   azekura node --data /var/lib/azekura --config http://10.0.0.1:7179 --listen 10.0.0.2:7101 --device-size 100GiB
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
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

    /// Where the REST API listens: the command line, the metrics and the dashboard use it.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7180")]
    pub api: SocketAddr,

    /// Where NBD clients connect over TCP.
    #[arg(long, value_name = "IP:PORT")]
    pub nbd: Option<SocketAddr>,

    /// Where NBD clients of this machine connect: a unix socket.
    #[arg(long, value_name = "PATH")]
    pub nbd_socket: Option<PathBuf>,

    /// The configuration servers, etcd's or another node's --serve-config, separated by commas
    /// [default: the one that this node serves].
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', env = "AZEKURA_CONFIG")]
    pub config: Vec<String>,

    /// Serve the cluster's configuration here (etcd's v3 API, kept in the data folder). For one machine or a small
    /// lab: when this node is away, nothing can be reconfigured. Use etcd for a cluster that must survive that.
    #[arg(long, value_name = "IP:PORT")]
    pub serve_config: Option<SocketAddr>,

    /// Read and compare all copies of everything that this node is primary of, every so many days; 0: only when asked for
    /// (azekura scrub).
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub scrub_days: u32,

    /// Compare the maps of all copies of everything that this node is primary of, every so many hours; 0: only when asked
    /// for (azekura scrub --light). No block is read, unless the maps differ.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub light_scrub_hours: u32,

    /// On the first start, make one device of this size in the data folder.
    #[arg(long, value_name = "SIZE")]
    pub device_size: Option<Size>,

    /// With --device-size, make this many devices instead of one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub devices: u32,

    /// The devices have power-loss protection: a write counts as durable without a flush of their cache.
    #[arg(long)]
    pub power_loss_protected: bool,

    /// The site (data centre) that this machine stands in, for failure domains.
    #[arg(long, default_value = "")]
    pub site: String,

    /// The rack that this machine stands in, for failure domains.
    #[arg(long, default_value = "")]
    pub rack: String,
}
