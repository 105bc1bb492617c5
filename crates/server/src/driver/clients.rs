//! Clients' connections: the sockets under the front end, and what the front end asks of the rest of the process.

use crate::bridge::attachments::Trim;
use crate::driver::dataplane::{Command, DataPlane, Handle, Report};
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use azekura_base::IoStatus;
use azekura_frontend::{Client, Clients, Close, Context, Effect, Frontend};
use azekura_gateway::{Op, Outcome};
use azekura_meta::MetaClient;
use azekura_reactor::{self as reactor, ConnId, Reactor};
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes of all connections' receive buffers, about: where there are many, each has less.
const RECEIVE_BYTES_MAX: usize = 64 << 20;
/// Without an answer of the configuration server for so long, an export that is not known counts as missing.
const LOOK_MAX: Duration = Duration::from_secs(2);

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
        if !self.frontend.connect(conn, self.time) {
            return self.reactor.close(conn, reactor::Close::AtOnce);
        }
        let stream_bytes = RECEIVE_BYTES_MAX / self.frontend.connections();
        // A connection that has ended meanwhile is reported as closed; its stream is of no use.
        let _ = self.reactor.install(conn, Conn::Client(Box::new(Client::new(speak(stream_bytes)))));
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
                Effect::Look => self.report(Report::Look),
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

/// Reads the configuration for [`Report::Look`].
pub async fn look(client: MetaClient, handle: Handle) {
    let model = tokio::time::timeout(LOOK_MAX, client.model_of_snapshots()).await;
    let revision = model.ok().and_then(Result::ok).and_then(|model| u64::try_from(model.revision).ok());
    handle.send(Command::Looked(revision.unwrap_or(0)));
}
