//! Clients' connections: the sockets under the front end, and what the front end asks of the rest of the process.

use crate::bridge::attachments::Trim;
use crate::driver::dataplane::DataPlane;
use crate::driver::messages::{Command, Handles, Report};
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use azekura_base::{IoStatus, Shard};
use azekura_frontend::{Client, ClientLimits, Clients, Close, Context, Effect, Frontend};
use azekura_gateway::{Op, Outcome};
use azekura_meta::MetaClient;
use azekura_reactor::{self as reactor, ConnId, Reactor, Released};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of the receive buffers of all connections of all shards, about: where there are many, each has less.
const RECEIVE_BYTES_MAX: usize = 64 << 20;
/// Without an answer of the configuration server for so long, an export that is not known counts as missing.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Places for clients' connections, which the shards of a process have together: a shard may have all clients.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

impl Places {
    /// So many.
    #[must_use]
    pub fn new(most: usize) -> Places {
        Places { taken: Arc::default(), most }
    }

    /// Takes one, if there is one.
    fn take(&self) -> bool {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives one back that was taken.
    fn give_back(&self) {
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more places given back than taken");
    }
}

/// What one shard's clients may take of what all may.
#[derive(Clone, Debug)]
pub struct Share {
    /// The shards that share.
    pub shards: NonZeroU8,
    /// Places, of which a shard may have all.
    pub places: Places,
    /// The limits of this one.
    pub limits: ClientLimits,
}

impl Share {
    /// Equal parts of what a process may take.
    #[must_use]
    pub fn of(all: ClientLimits, shards: NonZeroU8) -> Share {
        let memory_bytes_max = all.memory_bytes_max / usize::from(shards.get());
        Share { shards, places: Places::new(all.connections_max), limits: ClientLimits { memory_bytes_max, ..all } }
    }
}

/// The sockets, as the front end sees them.
struct Sockets<'a>(&'a mut Reactor<Conn>);

impl Clients<ConnId> for Sockets<'_> {
    fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        match self.0.stream(conn) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    fn unsent_bytes(&mut self, conn: ConnId) -> usize {
        self.0.unsent_bytes(conn)
    }
}

impl DataPlane {
    /// Lets the front end work.
    pub(super) fn front<T>(&mut self, act: impl FnOnce(&mut Frontend<ConnId>, &mut Context<'_, ConnId>) -> T) -> T {
        let mut sockets = Sockets(&mut self.reactor);
        let mut context = Context { clients: &mut sockets, backend: &mut self.node, now: self.time };
        act(&mut self.frontend, &mut context)
    }

    /// A client has connected to a listener, which speaks a protocol.
    pub(super) fn client_accepted(&mut self, conn: ConnId, speak: &Speak) {
        if !self.places.take() {
            self.frontend.refuse(self.time);
            return self.reactor.close(conn, reactor::Close::AtOnce);
        }
        if !self.frontend.connect(conn, self.time) {
            self.places.give_back();
            return self.reactor.close(conn, reactor::Close::AtOnce);
        }
        let stream_bytes = RECEIVE_BYTES_MAX / self.shards.count() / self.frontend.connections();
        // A connection that has ended meanwhile is reported as closed; its stream is of no use.
        let _ = self.reactor.install(conn, Conn::Client(Box::new(Client::new(speak(stream_bytes)))));
    }

    /// A client's connection has ended.
    pub(super) fn client_gone(&mut self, conn: ConnId) {
        self.frontend.gone(conn);
        self.places.give_back();
    }

    /// A client has connected where one shard accepts for all: they have them in turn.
    pub(super) fn deal(&mut self, conn: ConnId, speak: Speak) {
        let turn = self.next_shard;
        self.next_shard = (turn + 1) % self.shards.count();
        let shard = self.shards.all().nth(turn).cloned();
        match shard.filter(|_| turn != usize::from(self.node.identity().endpoint.shard.0)) {
            // One that has ended is nobody's.
            Some(shard) => {
                if let Some(released) = self.reactor.release(conn) {
                    shard.send(Command::TakeClient(released, speak));
                }
            }
            None => self.client_accepted(conn, &speak),
        }
    }

    /// Another shard has accepted a client for this one.
    pub(super) fn take_client(&mut self, released: Released, speak: &Speak) {
        if let Some(conn) = self.reactor.adopt(released) {
            self.client_accepted(conn, speak);
        }
    }

    /// Does what the front end asks for.
    pub(super) fn perform_for_clients(&mut self) {
        while let Some(effect) = self.frontend.next_effect() {
            match effect {
                Effect::Touched(conn) => drop(self.touched.insert(conn)),
                Effect::Close(conn, Close::AtOnce) => self.reactor.close(conn, reactor::Close::AtOnce),
                Effect::Close(conn, Close::AfterDrain) => self.reactor.close(conn, reactor::Close::AfterDrain),
                Effect::Attach(volume) => self.report(Report::Attach(volume)),
                Effect::GiveBack(volume, attachment) => self.report(Report::GiveBack(volume, attachment)),
                Effect::Ended(volume, attachment) => self.report(Report::Ended(volume, attachment)),
                Effect::ReadConfiguration => self.report(Report::ReadConfiguration),
                Effect::Answered(token, outcome) => self.trimmed(token, &outcome),
                Effect::Warn(what) => self.report(Report::Warn(what)),
            }
        }
    }

    /// Trims a volume for the control plane.
    pub(super) fn trim(&mut self, trim: Trim) {
        let Trim { volume, attachment, offset, len, answer } = trim;
        let token = self.trims.insert(answer);
        self.frontend.submit(token, &volume, attachment, Op::Trim { offset, len }, &mut self.node);
    }

    fn trimmed(&mut self, token: u64, outcome: &Outcome) {
        let answer: Option<oneshot::Sender<Result<(), IoStatus>>> = self.trims.remove(token);
        // Whoever asked may have given up.
        let result = if let Outcome::Failed(status) = outcome { Err(*status) } else { Ok(()) };
        answer.map(|answer| answer.send(result));
    }
}

/// Reads the configuration for [`Report::ReadConfiguration`].
pub async fn read_configuration(client: MetaClient, shards: Handles, shard: Shard) {
    let model = tokio::time::timeout(LOOK_MAX, client.model_of_snapshots()).await;
    let revision = model.ok().and_then(Result::ok).and_then(|model| u64::try_from(model.revision).ok());
    shards.send(shard, Command::ConfigurationRead(revision.unwrap_or(0)));
}
