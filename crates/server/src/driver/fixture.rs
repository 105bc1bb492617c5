//! The first of two shards, on the thread of a test, and another one that stands still.

#![allow(clippy::unwrap_used)]

use crate::driver::clients::Share;
use crate::driver::commands::Command;
use crate::driver::dataplane::{DataPlane, Listeners, Membership};
use crate::driver::messages::{Handle, Handles, Report, Reports};
use crate::driver::stream::Conn;
use azekura_base::{Endpoint, NodeId, Shard, Transport};
use azekura_frontend::ClientLimits;
use azekura_node::{DEVICE_TIMEOUT, Identity};
use azekura_reactor::{ConnId, Event, Options, Reactor};
use azekura_transport::{Credentials, NodeKey};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU8;
use std::sync::mpsc;
use tokio::sync::mpsc as tokio_mpsc;

/// The shard under test.
const HERE: Endpoint = Endpoint { node: NodeId(1), shard: Shard(0) };
/// The one that stands still.
pub(super) const THERE: Endpoint = Endpoint { node: NodeId(1), shard: Shard(1) };
/// Clients that both may have together.
pub(super) const CLIENTS_MAX: usize = 8;

/// A shard under test, and what another one would see if it went on.
pub(super) struct Fixture {
    pub(super) plane: DataPlane,
    pub(super) reports: tokio_mpsc::UnboundedReceiver<(Shard, Report)>,
    pub(super) commands_there: mpsc::Receiver<Command>,
    pub(super) reactor_there: Reactor<Conn>,
    /// Where the shard under test can be reached.
    address: SocketAddr,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let limits = ClientLimits { connections_max: CLIENTS_MAX, ..ClientLimits::default() };
        Fixture::with(Share::of(limits, NonZeroU8::new(2).unwrap()))
    }

    pub(super) fn with(share: Share) -> Fixture {
        let [mut reactor, reactor_there] = [(); 2].map(|()| Reactor::new(Options::default()).unwrap());
        let listener = reactor.listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reactor.local_address(listener).unwrap();
        let ((sender, commands), (sender_there, commands_there)) = (mpsc::channel(), mpsc::channel());
        let here = Handle::new(sender, reactor.waker());
        let shards = Handles::new(vec![here, Handle::new(sender_there, reactor_there.waker())]);
        let (report, reports) = tokio_mpsc::unbounded_channel();
        let membership = Membership {
            identity: Identity { cluster: 1, endpoint: HERE, incarnation: 1 },
            credentials: Credentials::new(&NodeKey::generate().unwrap()).unwrap(),
            transport: Transport::Plain,
            devices: Vec::new(),
            device_timeout: DEVICE_TIMEOUT,
            reports: Reports::of(HERE.shard, report),
            shards,
        };
        let plane = DataPlane::new(reactor, commands, Listeners::default(), share, membership);
        Fixture { plane, reports, commands_there, reactor_there, address }
    }

    /// A connection that has just come, from somebody who has gone already.
    pub(super) fn accept(&mut self) -> ConnId {
        drop(TcpStream::connect(self.address).unwrap());
        let mut events = Vec::new();
        loop {
            self.plane.reactor.wait(None, &mut events).unwrap();
            for event in events.drain(..) {
                if let Event::Accepted { conn, .. } = event {
                    return conn;
                }
            }
        }
    }
}
