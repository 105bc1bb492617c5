//! Clients' connections. Whatever a run's clients ask goes through the front end of a process
//! ([`azekura_frontend::Frontend`]): it attaches what they open, lets their requests in, gives volumes back, and closes
//! the connections to what has ended or is gone. Only the bytes between a client and the process are left out.

mod branches;
mod lines;

mod plain;
mod session;

use crate::kernel::process::Life;
use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Budgets, Client, ClientLimits, Clients, Frontend, Request, VolumeUse};
use azekura_gateway::{Outcome, Unsettled};
use plain::{Stage, Wire};
use session::SessionWire;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A process that does not reach the configuration store reads nothing of it within this time.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Branches have numbers from here on: how many there were in their process, and that of their trunk.
const BRANCHES: u64 = 1 << 62;
/// More connections than a run makes.
const MADE_MAX: u64 = 1 << 32;

/// A client's connection; no two of a run have the same, but for branches of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line(u64);

/// Whose connection: what they are, and which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who(pub(crate) &'static str, pub(crate) u64);

/// The front end of a process.
pub(crate) struct Front {
    frontend: Frontend<Line>,
    sockets: Sockets,
}

impl Front {
    pub(crate) fn new(unsettled: Arc<Unsettled>, budgets: Arc<Budgets>) -> Front {
        let mut frontend = Frontend::new(ClientLimits::default());
        frontend.share(unsettled, budgets);
        Front { frontend, sockets: Sockets { clients: BTreeMap::new(), branches: 0 } }
    }

    /// When it wants to look again.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.frontend.next_look()
    }
}

struct Sockets {
    clients: BTreeMap<Line, Client>,
    /// Connections that were made without a socket.
    branches: u64,
}

impl Clients<Line> for Sockets {
    fn client(&mut self, line: Line) -> Option<&mut Client> {
        self.clients.get_mut(&line)
    }

    fn branch(&mut self, trunk: Line, client: Client) -> Option<Line> {
        self.branches += 1;
        let line = Line(BRANCHES + self.branches * MADE_MAX + trunk.0);
        self.clients.insert(line, client);
        Some(line)
    }

    fn unsent_bytes(&mut self, _: Line) -> usize {
        0
    }
}

impl Line {
    /// The trunk of a branch.
    fn trunk(self) -> Option<Line> {
        (self.0 >= BRANCHES).then_some(Line(self.0 % MADE_MAX))
    }
}

/// What a client and its process have together.
#[derive(Clone)]
enum Shared {
    /// A connection that opens one volume.
    Plain(Rc<RefCell<Wire>>),
    /// A session that has several.
    Session(Rc<RefCell<SessionWire>>),
}

impl Shared {
    fn stage(&self) -> Stage {
        match self {
            Shared::Plain(wire) => wire.borrow().stage.clone(),
            Shared::Session(wire) => wire.borrow().stage.clone(),
        }
    }

    /// Answers, and what is not carried out, or will not be answered.
    fn receive(&self) -> (Vec<(u64, Outcome)>, Vec<u64>) {
        match self {
            Shared::Plain(wire) => (take(&mut wire.borrow_mut().answers), Vec::new()),
            Shared::Session(wire) => wire.borrow_mut().receive(),
        }
    }

    fn ask(&self, token: u64, request: Request, is_late: bool) {
        match self {
            Shared::Plain(wire) => wire.borrow_mut().ask(token, request),
            Shared::Session(wire) => wire.borrow_mut().ask(token, request, is_late),
        }
    }

    fn unheard(&self) -> Vec<u64> {
        match self {
            Shared::Plain(wire) => wire.borrow().unheard(),
            Shared::Session(wire) => wire.borrow().unheard(),
        }
    }
}

/// A connection as its client has it.
struct Connection {
    life: Life,
    who: Who,
    name: String,
    /// The same, for the host that the client belongs to.
    which: VolumeUse,
    wire: Shared,
    /// What it has opened, and the attachment that its requests carry.
    opened: Option<(VolumeId, Generation)>,
    /// Requests without an answer.
    under_way: BTreeSet<u64>,
    /// Its client has gone on without it since then, and the process does not know.
    abandoned: Option<Duration>,
    /// What was under way at that time.
    left: BTreeSet<u64>,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Connections {
    all: BTreeMap<Line, Connection>,
    by_name: BTreeMap<(Life, Who, String), Line>,
    made: u64,
}

impl Connections {
    fn remove(&mut self, line: Line) -> Option<Connection> {
        let connection = self.all.remove(&line)?;
        if connection.abandoned.is_none() {
            self.by_name.remove(&(connection.life, connection.who, connection.name.clone()));
        }
        Some(connection)
    }

    /// A client goes on without a connection. Gives the requests that were under way.
    fn abandon(&mut self, line: Line, now: Duration) -> BTreeSet<u64> {
        let Some(connection) = self.all.get_mut(&line) else { return BTreeSet::new() };
        connection.abandoned = Some(now);
        self.by_name.remove(&(connection.life, connection.who, connection.name.clone()));
        connection.left = take(&mut connection.under_way);
        connection.left.clone()
    }

    /// The connections that were abandoned before.
    fn abandoned_before(&self, at: Duration) -> Vec<Line> {
        let is_older = |connection: &Connection| connection.abandoned.is_some_and(|since| since < at);
        self.all.iter().filter(|(_, connection)| is_older(connection)).map(|(line, _)| *line).collect()
    }

    /// A process is gone, and its clients' connections with it. Gives the requests that were under way.
    pub(crate) fn lose(&mut self, life: Life) -> Vec<u64> {
        let all = self.all.iter().filter(|(_, connection)| connection.life == life);
        let all: Vec<Line> = all.map(|(line, _)| *line).collect();
        all.into_iter().filter_map(|line| self.remove(line)).flat_map(|connection| connection.under_way).collect()
    }

    /// Requests that clients have sent and their processes have not taken yet.
    pub(crate) fn unheard(&self) -> BTreeSet<u64> {
        self.all.values().flat_map(|connection| connection.wire.unheard()).collect()
    }

    /// Requests for which nobody waits any more, on connections of which the processes do not know that.
    pub(crate) fn left(&self) -> BTreeSet<u64> {
        self.all.values().flat_map(|connection| connection.left.iter().copied()).collect()
    }

    /// The process at the other end; `None` when the connection has ended.
    pub(crate) fn life(&self, line: Line) -> Option<Life> {
        self.all.get(&line).map(|connection| connection.life)
    }

    /// What a connection has opened, and the attachment that its requests carry.
    pub(crate) fn opened(&self, line: Line) -> Option<(VolumeId, Generation)> {
        self.all.get(&line)?.opened
    }
}
