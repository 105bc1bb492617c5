//! Where clients connect, and what they speak there.

use crate::args::NodeArgs;
use azekura_frontend::StreamProtocol;
use azekura_model::Endpoint;
use azekura_nvme::Controllers;
use azekura_reactor::{ListenerId, Reactor};
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the protocol's side of a connection, for a client that has just connected and may have a receive buffer of so
/// many bytes; and where it has found this node, over TCP.
pub type Speak = Arc<dyn Fn(usize, Option<SocketAddr>) -> Box<dyn StreamProtocol> + Send + Sync>;

/// An address that a node can listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket, for clients of this machine that its file lets in.
    Unix(PathBuf, Access),
}

/// Groups of this machine and their numbers.
const GROUPS: &str = "/etc/group";

/// Who may connect to a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of the socket's file; connecting takes the right to write.
    mode: u32,
    /// Its group, by name or number, if that is not to be the process's.
    group: Option<String>,
}

impl Access {
    fn of(mode: Option<u32>, group: Option<String>) -> Access {
        Access { mode: mode.unwrap_or(if group.is_some() { 0o660 } else { 0o600 }), group }
    }

    /// Gives the file of a socket that was just made what is asked for. By the process's umask, only its user could
    /// connect until now.
    fn apply(&self, path: &Path) -> io::Result<()> {
        if let Some(group) = &self.group {
            let number = match group.parse() {
                Ok(number) => number,
                Err(_) => group_number(&fs::read_to_string(GROUPS)?, group).ok_or_else(|| {
                    let text = format!("no group '{group}' in {GROUPS}; for one from elsewhere give its number");
                    io::Error::new(io::ErrorKind::NotFound, text)
                })?,
            };
            let told = |error: io::Error| {
                let text = format!("can't give the socket to the group '{group}', is this user in it? {error}");
                io::Error::new(error.kind(), text)
            };
            chown(path, None, Some(number)).map_err(told)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(self.mode))
    }
}

/// The number of a group in a file as group(5) has it.
fn group_number(file: &str, group: &str) -> Option<u32> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok())?
    })
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => write!(f, "{address}"),
            ListenAddress::Unix(path, _) => write!(f, "{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// Opens the socket; a TCP address may be `shared` by the shards of this process.
    ///
    /// # Errors
    /// What the system says.
    pub fn open<S: azekura_reactor::Stream>(&self, reactor: &mut Reactor<S>, shared: bool) -> io::Result<ListenerId> {
        match self {
            ListenAddress::Tcp(address) if shared => reactor.listen_tcp_shared(*address),
            ListenAddress::Tcp(address) => reactor.listen_tcp(*address),
            ListenAddress::Unix(path, access) => {
                let listener = reactor.listen_unix(path)?;
                access.apply(path)?;
                Ok(listener)
            }
        }
    }
}

/// Where clients of one protocol connect.
pub struct ClientListener {
    /// The option that asks for it.
    pub option: &'static str,
    /// The protocol's own name.
    pub protocol: &'static str,
    /// The address.
    pub address: ListenAddress,
    /// The protocol.
    pub speak: Speak,
}

impl ClientListener {
    fn new<P: StreamProtocol + 'static>(
        option: &'static str,
        address: ListenAddress,
        connected: impl Fn(usize, Option<SocketAddr>) -> P + Send + Sync + 'static,
    ) -> ClientListener {
        let speak = move |bytes, here| Box::new(connected(bytes, here)) as Box<dyn StreamProtocol>;
        let speak = Arc::new(speak);
        ClientListener { option, protocol: P::name(), address, speak }
    }

    /// All that a node's options ask for, in the order in which the node is to announce them. A further protocol has
    /// its line here. NVMe's controllers are those of the process.
    #[must_use]
    pub fn all(args: &NodeArgs, controllers: &Arc<Controllers>) -> Vec<ClientListener> {
        let speak_nbd = |bytes, _| azekura_nbd::Connection::new(bytes);
        let nbd = |option, address| ClientListener::new(option, address, speak_nbd);
        let tcp = args.nbd.map(|address| nbd("--nbd", ListenAddress::Tcp(address)));
        let access = Access::of(args.nbd_socket_mode, args.nbd_socket_group.clone());
        let unix = args.nbd_socket.clone().map(|path| nbd("--nbd-socket", ListenAddress::Unix(path, access)));
        let nvme = [("--nvme", args.nvme), ("--nvme-discovery", args.nvme_discovery)];
        let nvme = nvme.into_iter().filter_map(|(option, address)| {
            Some(ClientListener::nvme(option, address?, args.nvme?, Arc::clone(controllers)))
        });
        tcp.into_iter().chain(unix).chain(args.iscsi.map(ClientListener::iscsi)).chain(nvme).collect()
    }

    fn iscsi(address: SocketAddr) -> ClientListener {
        // One that stands for all addresses of the machine is none that an initiator could be sent to.
        let portal = if address.ip().is_unspecified() { String::new() } else { address.to_string() };
        let connected = move |stream_bytes_max, _| azekura_iscsi::Connection::new(stream_bytes_max, &portal);
        ClientListener::new("--iscsi", ListenAddress::Tcp(address), connected)
    }

    /// Hosts that ask where volumes are, are sent to `portal`: where that stands for all addresses of the machine, to
    /// the one that they have come to.
    fn nvme(
        option: &'static str,
        address: SocketAddr,
        portal: SocketAddr,
        controllers: Arc<Controllers>,
    ) -> ClientListener {
        let connected = move |stream_bytes_max, here: Option<SocketAddr>| {
            let found = here.map(|here| SocketAddr::new(here.ip(), portal.port()));
            let portal = if portal.ip().is_unspecified() { found } else { Some(portal) };
            azekura_nvme::Connection::new(stream_bytes_max, portal, &controllers)
        };
        ClientListener::new(option, ListenAddress::Tcp(address), connected)
    }

    /// Where clients connect, by a node's options.
    #[must_use]
    pub fn endpoints(args: &NodeArgs) -> Vec<Endpoint> {
        ClientListener::all(args, &Arc::new(Controllers::new(0))).iter().map(ClientListener::endpoint).collect()
    }

    /// As the cluster's configuration has it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let address = match &self.address {
            ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::Unix(path, _) => format!("{}{}", Endpoint::UNIX_PREFIX, path.display()),
        };
        Endpoint::new(self.protocol, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    #[test]
    fn a_socket_is_its_users_unless_a_group_is_named() {
        assert_eq!(Access::of(None, None).mode, 0o600);
        assert_eq!(Access::of(None, Some("kvm".to_owned())).mode, 0o660);
        assert_eq!(Access::of(Some(0o620), Some("kvm".to_owned())).mode, 0o620);
        let groups = "root:x:0:\nkvm:x:104:ann,bob\nbroken\nodd:x:none:\n";
        assert_eq!(group_number(groups, "kvm"), Some(104));
        for none in ["kv", "ann", "broken", "odd", ""] {
            assert_eq!(group_number(groups, none), None, "{none}");
        }
    }

    #[test]
    fn options_become_endpoints_that_clients_can_open() {
        let options = ["--data", "d", "--nbd-socket", "/run/a.nbd", "--nbd", "127.0.0.1:10809"];
        let command = NodeArgs::augment_args(Command::new("node").no_binary_name(true));
        let args = NodeArgs::from_arg_matches(&command.get_matches_from(options)).unwrap();
        let endpoints = ClientListener::endpoints(&args);
        let shown: Vec<_> = endpoints.iter().map(|endpoint| (endpoint.address.as_str(), endpoint.uri("v"))).collect();
        let expected = [
            ("127.0.0.1:10809", Some("nbd://127.0.0.1:10809/v".to_owned())),
            ("unix:/run/a.nbd", Some("nbd+unix:///v?socket=/run/a.nbd".to_owned())),
        ];
        assert_eq!(shown, expected, "the protocol calls itself what the configuration calls it");
    }
}
