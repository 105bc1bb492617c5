//! Two shards of one process, on threads of their own, with a volume that has a copy on each.

#![allow(clippy::unwrap_used)]

use crate::args::NodeArgs;
use crate::driver::dataplane::Membership;
use crate::driver::messages::{Handles, Reports};
use crate::driver::process_fixture::{
    CHUNK, CHUNKS, CLUSTER, Control, NAME, NODE, PATIENCE, credentials, device, streams, view,
};
use crate::shards::Shards;
use azekura_base::{Endpoint, Transport};
use azekura_frontend::ClientLimits;
use azekura_nbd::numbers::*;
use azekura_node::{DEVICE_TIMEOUT, Identity};
use clap::{Args, FromArgMatches};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A client that has opened the volume.
struct Client(UnixStream);

impl Client {
    fn open(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client(stream);
        client.hear::<18>();
        let name = [&(NAME.len() as u32).to_be_bytes(), NAME.as_bytes(), &[0; 2]].concat();
        let flags = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes();
        let go = [&IHAVEOPT.to_be_bytes()[..], &OPT_GO.to_be_bytes(), &(name.len() as u32).to_be_bytes(), &name];
        client.0.write_all(&[&flags[..], &go.concat()].concat()).unwrap();
        loop {
            let reply = client.hear::<20>();
            let kind = u32::from_be_bytes(reply[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(reply[16..].try_into().unwrap());
            client.0.read_exact(&mut vec![0; len as usize]).unwrap();
            match kind {
                REP_ACK => return client,
                REP_INFO => {}
                other => panic!("the volume can't be opened: {other:x}"),
            }
        }
    }

    fn hear<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn ask(&mut self, command: u16, offset: u64, len: usize, data: &[u8]) {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend([0, command].map(u16::to_be_bytes).concat());
        request.extend([7, offset].map(u64::to_be_bytes).concat());
        request.extend((len as u32).to_be_bytes());
        request.extend(data);
        self.0.write_all(&request).unwrap();
        let reply = self.hear::<16>();
        assert_eq!(reply[..8], [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4]].concat(), "an error");
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.ask(CMD_WRITE, offset, data.len(), data);
    }

    fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.ask(CMD_READ, offset, len, &[]);
        let mut data = vec![0; len];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}

/// What the copies on both shards have: whether all is durable on both, of each group.
async fn durable_everywhere(shards: &Handles) -> bool {
    let copies = shards.inspect(|look| look.node.groups().map(|copy| (copy.pg, copy.durable)).collect::<Vec<_>>());
    let mut durable = BTreeMap::<_, Vec<_>>::new();
    copies.await.unwrap().into_iter().flatten().for_each(|(pg, upto)| durable.entry(pg).or_default().push(upto));
    let same = |copies: &Vec<_>| matches!(copies[..], [one, other] if one == other);
    durable.len() == 2 && durable.values().all(same)
}

#[tokio::test]
async fn shards_of_a_process_do_without_the_network() {
    // The devices where files may be opened for direct access; the socket where its path is short.
    let folder = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let short = tempfile::tempdir().unwrap();
    let socket = short.path().join("nbd");
    // Here the shards would dial each other.
    let network = TcpListener::bind("127.0.0.1:0").unwrap();
    network.set_nonblocking(true).unwrap();
    let options = ["--data", "unused", "--listen", "127.0.0.1:0", "--shards", "2", "--nbd-socket"];
    let command = NodeArgs::augment_args(clap::Command::new("node").no_binary_name(true));
    let matches = command.get_matches_from(options.into_iter().chain([socket.to_str().unwrap()]));
    let args = NodeArgs::from_arg_matches(&matches).unwrap();
    let mut plane = Shards::start(&args, ClientLimits::default(), streams()).await.unwrap();
    let shards = plane.handles();
    let (sender, reports) = mpsc::unbounded_channel();
    let mut devices = [1, 2].map(|number| Some(device(folder.path(), number)));
    plane.begin(|shard| Membership {
        identity: Identity { cluster: CLUSTER, endpoint: Endpoint { node: NODE, shard }, incarnation: 1 },
        devices: devices[usize::from(shard.0)].take().into_iter().collect(),
        credentials: credentials(),
        transport: Transport::Plain,
        device_timeout: DEVICE_TIMEOUT,
        reports: Reports::of(shard, sender.clone()),
        shards: shards.clone(),
    });
    let view = view(network.local_addr().unwrap(), 2);
    let control = tokio::spawn(Control { view, shards: shards.clone() }.run(reports));
    let work = move || {
        // They are dealt out: one to each shard.
        let mut clients = [Client::open(&socket), Client::open(&socket)];
        for chunk in 0..CHUNKS {
            let (writer, data) = (chunk as usize / 2 % 2, vec![chunk as u8 + 1; 64 << 10]);
            // The second ends within a block.
            clients[writer].write(chunk * CHUNK, &data);
            clients[writer].write(chunk * CHUNK + (64 << 10), &data[..1000]);
            for client in &mut clients {
                assert_eq!(client.read(chunk * CHUNK, 64 << 10), data);
                assert_eq!(client.read(chunk * CHUNK + (64 << 10), 1000), data[..1000]);
            }
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap();
    let begun = Instant::now();
    while !durable_everywhere(&shards).await {
        assert!(begun.elapsed() < PATIENCE, "a copy lacks something");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    plane.stop().await;
    control.abort();
    assert!(network.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "a shard has dialled another");
}
