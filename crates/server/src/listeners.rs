//! Where clients connect, and what they speak there.

use crate::args::{NodeArgs, VhostSocket};
use crate::secured::SecuredDoor;
use azekura_frontend::{Client, StreamProtocol};
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
pub type Speak = Arc<dyn Fn(usize, Option<SocketAddr>) -> Client + Send + Sync>;

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
    pub(crate) fn of(mode: Option<u32>, group: Option<String>) -> Access {
        Access { mode: mode.unwrap_or(if group.is_some() { 0o660 } else { 0o600 }), group }
    }

    /// Gives the file of a socket that was just made what is asked for. By the process's umask, only its user could
    /// connect until now.
    pub(crate) fn apply(&self, path: &Path) -> io::Result<()> {
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

/// What is spoken at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Spoken {
    Nbd,
    NbdOverTls,
    Iscsi,
    Nvme,
    /// For one volume.
    VhostUser(String),
}

impl Spoken {
    /// As the cluster's configuration has it.
    fn name(&self) -> &'static str {
        match self {
            Spoken::Nbd => Endpoint::NBD,
            Spoken::NbdOverTls => Endpoint::NBDS,
            Spoken::Iscsi => "iscsi",
            Spoken::Nvme => Endpoint::NVME,
            Spoken::VhostUser(_) => Endpoint::VHOST_USER,
        }
    }
}

/// All that a node's options ask for, in the order in which the node is to announce them: the option, what is spoken
/// there, and the address. A further protocol has its line here.
fn wanted(args: &NodeArgs) -> Vec<(&'static str, Spoken, ListenAddress)> {
    let access = Access::of(args.nbd_socket_mode, args.nbd_socket_group.clone());
    let nbd = if args.nbd_over_tls() { Spoken::NbdOverTls } else { Spoken::Nbd };
    let tcp = [
        ("--nbd", nbd, args.nbd),
        ("--nbd-plain", Spoken::Nbd, args.nbd_plain),
        ("--iscsi", Spoken::Iscsi, args.iscsi),
        ("--nvme", Spoken::Nvme, args.nvme),
        ("--nvme-discovery", Spoken::Nvme, args.nvme_discovery),
    ];
    let tcp =
        tcp.into_iter().filter_map(|(option, spoken, address)| Some((option, spoken, ListenAddress::Tcp(address?))));
    let mut wanted: Vec<_> = tcp.collect();
    if let Some(path) = args.nbd_socket.clone() {
        // Behind NBD's own addresses.
        let at = wanted.iter().take_while(|(option, ..)| option.starts_with("--nbd")).count();
        wanted.insert(at, ("--nbd-socket", Spoken::Nbd, ListenAddress::Unix(path, access)));
    }
    let access = Access::of(args.vhost_socket_mode, args.vhost_socket_group.clone());
    wanted.extend(args.vhost_socket.iter().map(|VhostSocket { volume, path }| {
        let address = ListenAddress::Unix(path.clone(), access.clone());
        ("--vhost-socket", Spoken::VhostUser(volume.clone()), address)
    }));
    wanted
}

/// What the listeners of all shards of a process have together.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The controllers of clients that speak NVMe, whose connections may be in several shards.
    pub controllers: Arc<Controllers>,
    /// For clients that speak TLS.
    pub secured: SecuredDoor,
}

/// Where clients of one protocol connect.
pub struct ClientListener {
    /// The option that asks for it.
    pub option: &'static str,
    /// The address.
    pub address: ListenAddress,
    /// The protocol.
    pub speak: Speak,
}

/// Of clients that speak this no key is asked, and who may come is the business of the socket's file.
fn speaking<P: StreamProtocol + 'static>(
    connected: impl Fn(usize, Option<SocketAddr>) -> P + Send + Sync + 'static,
) -> Speak {
    Arc::new(move |bytes, here| Client::new(Box::new(connected(bytes, here))))
}

/// Clients that speak this say what they are called, and are asked for their grants or not.
fn of_hosts<P: StreamProtocol + 'static>(
    asks: bool,
    connected: impl Fn(usize, Option<SocketAddr>) -> P + Send + Sync + 'static,
) -> Speak {
    let client = if asks { Client::host } else { Client::anybody };
    Arc::new(move |bytes, here| client(Box::new(connected(bytes, here))))
}

/// Where hosts that ask for this node's volumes are sent: where the portal stands for all addresses of the machine, to
/// the one that they have come to.
fn reached(portal: SocketAddr, here: Option<SocketAddr>) -> Option<SocketAddr> {
    if portal.ip().is_unspecified() { here.map(|here| SocketAddr::new(here.ip(), portal.port())) } else { Some(portal) }
}

/// Random bytes to ask somebody what he knows; `None`: the system gives none.
fn draw<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

impl ClientListener {
    /// All that a node's options ask for.
    #[must_use]
    pub fn all(args: &NodeArgs, shared: &Shared) -> Vec<ClientListener> {
        let listener = |(option, spoken, address)| {
            let speak = match (&spoken, &address) {
                (Spoken::NbdOverTls, _) => {
                    let door = shared.secured.clone();
                    let speak: Speak = Arc::new(move |bytes, _| Client::asked(Box::new(door.connected(bytes))));
                    speak
                }
                (Spoken::Iscsi, ListenAddress::Tcp(address)) => {
                    ClientListener::iscsi(*address, args.asks_hosts(*address))
                }
                (Spoken::Nvme, ListenAddress::Tcp(address)) => {
                    let (portal, controllers) = (args.nvme.unwrap_or(*address), Arc::clone(&shared.controllers));
                    ClientListener::nvme(portal, controllers, args.asks_hosts(*address))
                }
                (Spoken::VhostUser(volume), _) => {
                    ClientListener::vhost_user(volume.clone(), Arc::clone(&shared.controllers))
                }
                (_, ListenAddress::Tcp(_)) => {
                    let speak: Speak =
                        Arc::new(|bytes, _| Client::anybody(Box::new(azekura_nbd::Connection::new(bytes))));
                    speak
                }
                _ => speaking(|bytes, _| azekura_nbd::Connection::new(bytes)),
            };
            ClientListener { option, address, speak }
        };
        wanted(args).into_iter().map(listener).collect()
    }

    fn iscsi(portal: SocketAddr, asks: bool) -> Speak {
        of_hosts(asks, move |stream_bytes_max, here| {
            let drawn = draw::<{ azekura_iscsi::CHALLENGE_BYTES + 1 }>();
            let challenge = drawn.map(|[identifier, bytes @ ..]| azekura_iscsi::Challenge { identifier, bytes });
            azekura_iscsi::Connection::new(stream_bytes_max, reached(portal, here), challenge)
        })
    }

    fn nvme(portal: SocketAddr, controllers: Arc<Controllers>, asks: bool) -> Speak {
        of_hosts(asks, move |stream_bytes_max, here| {
            let drawn = draw::<{ azekura_nvme::CHALLENGE_BYTES + 4 }>();
            let challenge = drawn.map(|[a, b, c, d, bytes @ ..]| azekura_nvme::Challenge {
                bytes,
                // 0 means that there is none.
                sequence: u32::from_le_bytes([a, b, c, d]).max(1),
            });
            azekura_nvme::Connection::new(stream_bytes_max, reached(portal, here), &controllers, challenge)
        })
    }

    /// For a volume's own socket.
    pub(crate) fn vhost_user(volume: String, controllers: Arc<Controllers>) -> Speak {
        speaking(move |stream_bytes_max, _| {
            azekura_vhost::Connection::new(stream_bytes_max, &volume, controllers.cluster())
        })
    }

    /// Where clients connect, by a node's options, as the cluster's configuration has it.
    #[must_use]
    pub fn endpoints(args: &NodeArgs) -> Vec<Endpoint> {
        let endpoint = |(_, spoken, address): (_, Spoken, _)| {
            let address = match &address {
                ListenAddress::Tcp(address) => address.to_string(),
                ListenAddress::Unix(path, _) => format!("{}{}", Endpoint::UNIX_PREFIX, path.display()),
            };
            match &spoken {
                Spoken::VhostUser(volume) => Endpoint::of_volume(spoken.name(), volume, &address),
                _ => Endpoint::new(spoken.name(), address),
            }
        };
        wanted(args).into_iter().map(endpoint).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_frontend::Protocol;
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

    fn arguments(options: &[&str]) -> NodeArgs {
        let command = NodeArgs::augment_args(Command::new("node").no_binary_name(true));
        let options = ["--data", "d"].iter().chain(options);
        NodeArgs::from_arg_matches(&command.get_matches_from(options)).unwrap()
    }

    fn uris(options: &[&str]) -> Vec<String> {
        let args = arguments(options);
        ClientListener::endpoints(&args).iter().map(|endpoint| endpoint.uri("v").unwrap_or_default()).collect()
    }

    #[test]
    fn options_become_endpoints_that_clients_can_open() {
        let unix = "nbd+unix:///v?socket=/run/a.nbd";
        assert_eq!(
            uris(&["--nbd-socket", "/run/a.nbd", "--nbd", "127.0.0.1:10809", "--nvme", "10.0.0.1:4420"]),
            ["nbd://127.0.0.1:10809/v", unix, "nvme+tcp://10.0.0.1:4420/nqn.2026-01.io.azekura:v"]
        );
    }

    #[test]
    fn hosts_are_asked_where_there_is_a_network() {
        let asks = |options: &[&str], address: &str| arguments(options).asks_hosts(address.parse().unwrap());
        assert!(asks(&[], "10.0.0.1:3260") && asks(&[], "0.0.0.0:3260") && asks(&[], "[::]:3260"));
        assert!(!asks(&[], "127.0.0.1:3260") && !asks(&[], "[::1]:1") && !asks(&[], "[::ffff:127.0.0.1]:1"));
        assert!(asks(&["--ask-loopback-hosts"], "127.0.0.1:3260"));
    }

    #[test]
    fn a_vhost_socket_is_announced_with_its_volume() {
        let command = NodeArgs::augment_args(Command::new("node").no_binary_name(true));
        let options = ["--data", "d", "--vhost-socket", "v=/run/v.sock", "--vhost-socket-group", "kvm"];
        let args = NodeArgs::from_arg_matches(&command.get_matches_from(options)).unwrap();
        let endpoint = Endpoint::new("vhost-user", "v=unix:/run/v.sock".to_owned());
        assert_eq!(ClientListener::endpoints(&args), std::slice::from_ref(&endpoint));
        assert!(endpoint.serves("v") && !endpoint.serves("w") && !endpoint.serves(""));
        let [(_, _, ListenAddress::Unix(_, access))] = &wanted(&args)[..] else { panic!() };
        assert_eq!(access.mode, 0o660);
    }

    #[test]
    fn nbd_is_spoken_over_tls_where_there_is_a_network() {
        assert_eq!(uris(&["--nbd", "10.0.0.1:10809"]), ["nbds://10.0.0.1:10809/v"]);
        assert_eq!(uris(&["--nbd", "0.0.0.0:10809"]), ["nbds://0.0.0.0:10809/v"]);
        assert_eq!(uris(&["--nbd", "[::1]:10809"]), ["nbd://[::1]:10809/v"]);
        assert_eq!(uris(&["--nbd", "[::1]:10809", "--nbd-transport", "tls"]), ["nbds://[::1]:10809/v"]);
        assert_eq!(uris(&["--nbd", "10.0.0.1:1", "--nbd-transport", "plain"]), ["nbd://10.0.0.1:1/v"]);
        assert_eq!(
            uris(&["--nbd", "10.0.0.1:1", "--nbd-plain", "10.0.0.1:2"]),
            ["nbds://10.0.0.1:1/v", "nbd://10.0.0.1:2/v"]
        );
    }

    #[test]
    fn protocols_call_themselves_what_the_configuration_calls_them() {
        let [nbd, iscsi] = [azekura_nbd::Connection::name(), azekura_iscsi::Connection::name()];
        assert_eq!([nbd, iscsi], [Spoken::Nbd.name(), Spoken::Iscsi.name()]);
        assert_eq!(azekura_vhost::Connection::name(), Spoken::VhostUser(String::new()).name());
        let [nbds, nvme] = [crate::secured::Secured::name(), azekura_nvme::Connection::name()];
        assert_eq!([nbds, nvme], [Spoken::NbdOverTls.name(), Spoken::Nvme.name()]);
    }
}
