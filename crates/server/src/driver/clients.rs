//! Clients' connections: the sockets under the front end, and what the front end asks of the rest of the process.

use crate::driver::clock::Clock;
use crate::driver::commands::Command;
use crate::driver::messages::Handles;
use crate::driver::sharing::SharedSide;
use azekura_base::{IoStatus, NodeId, Shard, Slab};
use azekura_frontend::{Budgets, Client, ClientLimits, Frontend, Portals};
use azekura_gateway::{Outcome, Unsettled};
use azekura_meta::MetaClient;
use azekura_reactor::ConnId;
use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

mod steps;

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
    /// Writes of clients that were given up, of all shards.
    pub unsettled: Arc<Unsettled>,
    /// What they have used of volumes' limits, of all shards.
    pub budgets: Arc<Budgets>,
    /// The clock of all shards: what they share of times means the same to each.
    pub clock: Clock,
}

impl Share {
    /// Equal parts of what a process may take.
    #[must_use]
    pub fn of(all: ClientLimits, shards: NonZeroU8) -> Share {
        let memory_bytes_max = all.memory_bytes_max / usize::from(shards.get());
        let (places, limits) = (Places::new(all.connections_max), ClientLimits { memory_bytes_max, ..all });
        let (unsettled, budgets, clock) = (Arc::default(), Arc::default(), Clock::start());
        Share { shards, places, limits, unsettled, budgets, clock }
    }
}

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientConn {
    /// One with a socket.
    Socket(ConnId),
    /// One without, a branch of one that has a socket.
    Branch(u64),
}

/// Clients whose connections have no sockets.
#[derive(Default)]
pub(super) struct BranchClients {
    clients: BTreeMap<u64, Client>,
    made: u64,
}

/// Gets the outcome of a trim.
type Trimmer = oneshot::Sender<Result<(), IoStatus>>;

/// What a shard has of its clients.
pub(super) struct ClientSide {
    pub(super) frontend: Frontend<ClientConn>,
    /// Those that have no sockets.
    branches: BranchClients,
    /// Those that share memory.
    pub(super) shared: SharedSide,
    /// Places for clients, which all shards of the process have together.
    places: Places,
    /// The shard that gets the next client that is dealt out.
    next_shard: usize,
    /// Who waits for a trim.
    trims: Slab<Trimmer>,
}

impl ClientSide {
    pub(super) fn new(here: NodeId, share: Share) -> ClientSide {
        let mut frontend = Frontend::new(share.limits);
        frontend.set_portals(Arc::new(Portals::of(here)));
        frontend.share(share.unsettled, share.budgets);
        ClientSide {
            frontend,
            branches: BranchClients::default(),
            shared: SharedSide::default(),
            places: share.places,
            next_shard: 0,
            trims: Slab::default(),
        }
    }

    /// The shard that gets a client, when they are dealt out to so many in turn.
    fn next_turn(&mut self, shards: usize) -> usize {
        let turn = self.next_shard;
        self.next_shard = (turn + 1) % shards;
        turn
    }

    /// Somebody waits for a trim. Gives its token.
    fn trimming(&mut self, answer: Trimmer) -> u64 {
        self.trims.insert(answer)
    }

    /// A trim has ended.
    fn trimmed(&mut self, token: u64, outcome: &Outcome) {
        let result = if let Outcome::Failed(status) = outcome { Err(*status) } else { Ok(()) };
        // Whoever asked may have given up.
        self.trims.remove(token).map(|answer| answer.send(result));
    }
}

/// Reads the configuration for [`crate::driver::messages::Report::ReadConfiguration`].
pub async fn read_configuration(client: MetaClient, shards: Handles, shard: Shard) {
    let model = tokio::time::timeout(LOOK_MAX, client.model_of_snapshots()).await;
    let revision = model.ok().and_then(Result::ok).and_then(|model| u64::try_from(model.revision).ok());
    shards.send(shard, Command::ConfigurationRead(revision));
}
