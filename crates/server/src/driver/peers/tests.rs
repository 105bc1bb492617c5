//! A process of two shards, and what it says to whom over real sockets.

#![allow(clippy::unwrap_used)]

use crate::args::NodeArgs;
use crate::driver::commands::Command;
use crate::driver::dataplane::Membership;
use crate::driver::messages::{Report, Reports};
use crate::driver::process_fixture::{CLUSTER, NODE, PATIENCE, streams};
use crate::shards::Shards;
use azekura_base::{DeviceId, Endpoint, Inbox, NodeId, Outbox, PeerKey, PgId, Shard, Transport};
use azekura_frontend::ClientLimits;
use azekura_node::{ClusterView, DEVICE_TIMEOUT, Identity, Location, NodeView};
use azekura_replica::GroupConfig;
use azekura_transport::{Channel, Credentials, NodeKey};
use azekura_wire::{Decoder, Hello, Message, VERSION};
use clap::{Args, FromArgMatches};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU8;
use std::sync::Arc;
use tokio::sync::mpsc;

const OTHER: Endpoint = Endpoint { node: NodeId(2), shard: Shard(0) };

fn own_key() -> (PeerKey, Credentials) {
    let key = NodeKey::generate().unwrap();
    (key.name().unwrap(), Credentials::new(&key).unwrap())
}

/// Somebody at the other end of a connection, with a blocking socket.
struct Other {
    stream: TcpStream,
    channel: Channel,
    inbox: Inbox,
    outbox: Outbox,
    decoder: Decoder,
}

impl Other {
    fn new(stream: TcpStream, channel: Channel) -> Other {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Other { stream, channel, inbox: Inbox::new(), outbox: Outbox::new(), decoder: Decoder::default() }
    }

    fn greets(mut self, shard: u8) -> Option<Message> {
        let to = Endpoint { node: NODE, shard: Shard(shard) };
        let hello = Hello { version: VERSION, cluster: CLUSTER, from: OTHER, to, incarnation: 1, connection: 1 };
        azekura_wire::encode(&Message::Hello(hello), &mut self.outbox);
        self.hears()
    }

    /// The first message that comes; `None`: the connection ends before.
    fn hears(&mut self) -> Option<Message> {
        loop {
            self.channel.seal(&mut self.outbox, 0).ok()?;
            let mut pieces = Vec::new();
            self.channel.outbox(&mut self.outbox).take(&mut pieces, usize::MAX, usize::MAX);
            self.stream.write_all(&pieces.concat()).ok()?;
            let inbox = self.channel.inbox(&mut self.inbox);
            let mut fill = inbox.take_fill();
            // One byte at a time: whatever the cut.
            let count = self.stream.read(&mut fill.buf[fill.at..=fill.at]).unwrap_or_default();
            inbox.filled(fill, count);
            self.channel.open(&mut self.inbox).ok()?;
            let message = self.decoder.next(&mut self.inbox).unwrap();
            if message.is_some() || count == 0 {
                return message;
            }
        }
    }
}

fn first_byte(other: &Other) -> u8 {
    let mut byte = [0];
    assert_eq!(other.stream.peek(&mut byte).unwrap(), 1);
    byte[0]
}

/// Two shards under test, whose process has a key of its own.
struct Process {
    shards: Shards,
    address: SocketAddr,
    key: PeerKey,
    reports: mpsc::UnboundedReceiver<(Shard, Report)>,
}

impl Process {
    async fn start() -> Process {
        // Somebody else may take it meanwhile, but for that there are many.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listen = address.to_string();
        let command = NodeArgs::augment_args(clap::Command::new("node").no_binary_name(true));
        let options = ["--data", "unused", "--shards", "2", "--listen", &listen];
        let args = NodeArgs::from_arg_matches(&command.get_matches_from(options)).unwrap();
        let mut shards = Shards::start(&args, ClientLimits::default(), streams()).await.unwrap();
        let handles = shards.handles();
        let ((key, credentials), (sender, reports)) = (own_key(), mpsc::unbounded_channel());
        shards.begin(|shard| Membership {
            identity: Identity { cluster: CLUSTER, endpoint: Endpoint { node: NODE, shard }, incarnation: 1 },
            credentials: credentials.clone(),
            transport: Transport::Tls,
            devices: Vec::new(),
            device_timeout: DEVICE_TIMEOUT,
            reports: Reports::of(shard, sender.clone()),
            shards: handles.clone(),
        });
        Process { shards, address, key, reports }
    }

    /// Both nodes have a copy of the only group; the other one is there, and has this key.
    fn configure(&self, transport: Transport, other: SocketAddr, key: PeerKey) {
        let node = |address, shards, key| {
            let shards = NonZeroU8::new(shards).unwrap();
            NodeView { address, shards, keys: vec![key], location: Location::default() }
        };
        let devices = [DeviceId(1), DeviceId(2)];
        let view = Arc::new(ClusterView {
            revision: 1,
            nodes: [(NODE, node(self.address, 2, self.key)), (OTHER.node, node(other, 1, key))].into(),
            transport,
            devices: [(devices[0], Endpoint::first(NODE)), (devices[1], OTHER)].into(),
            groups: [(PgId(1), GroupConfig::new(devices[0], devices.into()))].into(),
            ..ClusterView::default()
        });
        self.shards.handles().all().for_each(|shard| shard.send(Command::Configure(Arc::clone(&view))));
    }

    fn dialled_by(&self, channel: Channel) -> Other {
        Other::new(TcpStream::connect(self.address).unwrap(), channel)
    }

    /// What is reported next and contains this.
    async fn told(&mut self, what: &str) {
        loop {
            match self.reports.recv().await.unwrap().1 {
                Report::Warn(warning) if warning.text.contains(what) => return,
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn who_has_the_key_of_a_node_is_welcome_at_each_shard_and_nobody_else() {
    let (process, (key, credentials)) = (Process::start().await, own_key());
    process.configure(Transport::Tls, "127.0.0.1:9".parse().unwrap(), key);
    for shard in [0, 1] {
        let heard = process.dialled_by(credentials.connect().unwrap()).greets(shard);
        assert!(matches!(heard, Some(Message::Welcome(hello)) if hello.from.shard == Shard(shard)), "{heard:?}");
        assert!(process.dialled_by(own_key().1.connect().unwrap()).greets(shard).is_none(), "a key that nobody has");
        assert!(process.dialled_by(Channel::plain()).greets(shard).is_none(), "no key");
    }
    process.configure(Transport::Both, "127.0.0.1:9".parse().unwrap(), key);
    for shard in [0, 1] {
        for channel in [Channel::plain(), credentials.connect().unwrap()] {
            let heard = process.dialled_by(channel).greets(shard);
            assert!(matches!(heard, Some(Message::Welcome(_))), "{heard:?}");
        }
        assert!(process.dialled_by(own_key().1.connect().unwrap()).greets(shard).is_none(), "a key that nobody has");
    }
    process.shards.stop().await;
}

#[tokio::test]
async fn a_node_that_is_dialled_proves_its_key_before_it_is_told_anything() {
    let (process, (key, credentials)) = (Process::start().await, own_key());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    process.configure(Transport::Tls, listener.local_addr().unwrap(), key);
    let accept = |channel| Other::new(listener.accept().unwrap().0, channel);
    assert!(accept(own_key().1.accept().unwrap()).hears().is_none(), "a key that nobody has");
    assert_eq!(first_byte(&accept(Channel::plain())), 22, "a record of a handshake comes first");
    let heard = accept(credentials.accept().unwrap()).hears();
    assert!(matches!(heard, Some(Message::Hello(hello)) if hello.to == OTHER), "{heard:?}");
    process.configure(Transport::Plain, listener.local_addr().unwrap(), key);
    // It may have dialled before it was told.
    let plain = std::iter::repeat_with(|| accept(Channel::plain())).find(|other| first_byte(other) != 22);
    assert!(matches!(plain.unwrap().hears(), Some(Message::Hello(_))));
    process.shards.stop().await;
}

#[tokio::test]
async fn who_does_not_speak_what_is_spoken_here_is_cut_off_and_told_of() {
    let mut process = Process::start().await;
    process.configure(Transport::Tls, "127.0.0.1:9".parse().unwrap(), own_key().0);
    let speaks = |bytes: &[u8]| {
        let mut stream = process.dialled_by(Channel::plain()).stream;
        stream.write_all(bytes).unwrap();
        // An alert may come before the end.
        stream.read_to_end(&mut Vec::new()).unwrap_or_default()
    };
    assert_eq!(speaks(b"GET / HTTP/1.1\r\n\r\n"), 0);
    assert!(speaks(&[22, 3, 1, 255, 255, 1, 2, 3, 4, 5, 6]) > 0, "why is said in an alert");
    process.told("closing a connection with 127.0.0.1, who had not greeted yet").await;
    process.shards.stop().await;
}
