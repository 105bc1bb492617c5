//! NBD clients: from a session's requests to the gateway, and back.

use super::attaching::Attaching;
use super::attachments::Trim;
use super::dataplane::{DataPlane, Report};
use super::exports::Volumes;
use super::missing::Missing;
use super::stream::Conn;
use azekura_base::{Generation, IoStatus, Repeats};
use azekura_frontend::{Doors, HANDSHAKE_MAX, Memory, MemoryLimits, TurnLimits, Turns};
use azekura_gateway::{IN_FLIGHT_BYTES_MAX, Op, Outcome, Piece, VolumeView, WRITE_WINDOW};
use azekura_nbd::{Command, ErrorCode, Event, Extent, Listing, ReadPiece, RequestToken};
use azekura_reactor::{Close, ConnId};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests that one connection may have under way.
const CONNECTION_REQUESTS_MAX: usize = 1024;
/// Bytes of all connections' receive buffers, about: where there are many, each has less.
const RECEIVE_BYTES_MAX: usize = 64 << 20;

/// What this node's clients may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections.
    pub connections_max: usize,
    /// Bytes of requests and answers.
    pub memory_bytes_max: usize,
}

/// What is told at most once a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    TooMany,
    Silent,
    Stalled,
}

/// A request under way.
struct Running {
    /// Who waits for the answer, if he is still there.
    client: Option<(ConnId, RequestToken)>,
    volume: Arc<str>,
    attachment: Generation,
}

/// Clients' requests under way.
pub struct NbdOps {
    running: BTreeMap<u64, Running>,
    /// Volumes that clients have attached.
    pub attaching: Attaching,
    /// Exports that are not known.
    pub missing: Missing,
    last: u64,
    /// Who waits for requests of no client's.
    asked: BTreeMap<u64, oneshot::Sender<Result<(), IoStatus>>>,
    /// Connections that have opened a volume or a snapshot, and which, as it was then.
    pub opened: BTreeMap<ConnId, Arc<VolumeView>>,
    /// The volumes' names as clients are told them, if any has asked since they have changed.
    pub listing: OnceCell<Listing>,
    doors: Doors<ConnId>,
    memory: Memory<ConnId>,
    turns: Turns<ConnId>,
    notices: Repeats<Notice>,
    pieces: Vec<ReadPiece>,
}

impl NbdOps {
    /// No clients yet.
    pub fn new(limits: ClientLimits) -> NbdOps {
        NbdOps {
            running: BTreeMap::new(),
            attaching: Attaching::default(),
            missing: Missing::default(),
            last: 0,
            asked: BTreeMap::new(),
            opened: BTreeMap::new(),
            listing: OnceCell::new(),
            doors: Doors::new(limits.connections_max),
            memory: Memory::new(MemoryLimits { bytes_max: limits.memory_bytes_max, ..MemoryLimits::default() }),
            turns: Turns::new(TurnLimits {
                connection_requests_max: CONNECTION_REQUESTS_MAX,
                window_requests: WRITE_WINDOW as usize,
                window_bytes: IN_FLIGHT_BYTES_MAX,
            }),
            notices: Repeats::default(),
            pieces: Vec::new(),
        }
    }

    /// The connection is gone: nobody waits for its answers.
    pub fn forget(&mut self, conn: ConnId) {
        for running in self.running.values_mut() {
            running.client.take_if(|(owner, _)| *owner == conn);
        }
        self.doors.gone(conn);
        self.memory.gone(conn);
        self.turns.gone(conn);
        self.opened.remove(&conn);
        self.missing.forget(conn);
    }

    /// When [`DataPlane::close_late`] is to be called at the latest.
    pub fn next_look(&self) -> Option<Duration> {
        [self.doors.next_overdue(), self.memory.next_look()].into_iter().flatten().min()
    }
}

impl DataPlane {
    /// A client has connected.
    pub(super) fn nbd_accepted(&mut self, conn: ConnId) {
        let now = self.time;
        if self.ops.doors.connect(conn, now) {
            let stream_bytes = RECEIVE_BYTES_MAX / self.ops.doors.len();
            // A connection that has ended meanwhile is reported as closed; its stream is of no use.
            let _ = self.reactor.install(conn, Conn::nbd(stream_bytes));
            return;
        }
        let most = self.ops.doors.connections_max();
        let what = format!("refusing a client: {most} are connected, and --nbd-connections allows no more");
        self.notice(Notice::TooMany, &what);
        self.reactor.close(conn, Close::AtOnce);
    }

    fn notice(&mut self, notice: Notice, what: &str) {
        if let Some(more) = self.ops.notices.note(&notice, self.time) {
            self.report(Report::Warn(format!("{what}{more}")));
        }
    }

    /// Takes what a client has sent, as far as there is memory for it, up to the first request: that waits for its
    /// turn.
    pub(super) fn pump_nbd(&mut self, conn: ConnId) {
        self.touched.insert(conn);
        let now = self.time;
        loop {
            let exports = Volumes {
                all: self.node.gateway().volumes(),
                listing: &self.ops.listing,
                attaching: &self.ops.attaching,
                is_certain: self.ops.missing.is_certain(conn),
                conn,
            };
            let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) else { return };
            if nbd.ready.is_some() {
                return;
            }
            match nbd.session.poll(&exports) {
                None => match nbd.session.wants_room() {
                    Some(bytes) if self.ops.memory.take(conn, bytes as usize, now) => nbd.session.give_room(),
                    Some(_) => return,
                    None => {
                        // A refusal has been told; whoever asks again gets another answer.
                        self.ops.attaching.forget_refusal(conn);
                        self.ops.missing.told(conn);
                        self.ops.doors.heard(conn, now);
                        return;
                    }
                },
                Some(Event::Missing { .. }) => {
                    self.ops.doors.answering(conn);
                    self.look_for_export(conn);
                    return;
                }
                Some(Event::Wanted { name }) => {
                    self.ops.doors.answering(conn);
                    self.want_volume(conn, &name);
                    return;
                }
                Some(Event::Opened { name }) => {
                    self.ops.doors.opened(conn);
                    // It was there a moment ago, in the session's poll.
                    let attachment = self.ops.attaching.opened(conn, &name).unwrap_or_default();
                    nbd.volume = Some((name.as_str().into(), attachment));
                    let view = self.node.gateway().volumes().get(&name).cloned();
                    self.ops.opened.extend(view.map(|view| (conn, view)));
                }
                Some(Event::Request { token, command }) => {
                    let bytes = token.memory_bytes();
                    self.ops.memory.received(conn);
                    let Some(op) = op(command) else {
                        self.ops.memory.answered(conn, bytes);
                        nbd.session.reply_done(token);
                        continue;
                    };
                    nbd.ready = Some((token, op));
                    self.ops.turns.ask(conn, bytes);
                    return;
                }
                Some(Event::Closed) => {
                    self.reactor.close(conn, Close::AfterDrain);
                    return;
                }
                Some(Event::Violation(violation)) => {
                    self.reactor.close(conn, Close::AfterDrain);
                    self.report(Report::Warn(format!("closing a client's connection: {violation}")));
                    return;
                }
            }
        }
    }

    /// What a client has sent, and has taken of its answers, since the last look.
    pub(super) fn note_traffic(&mut self, conn: ConnId) {
        let unsent = self.reactor.unsent_bytes(conn);
        self.ops.memory.unsent(conn, unsent, self.time);
        if let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) {
            let received = nbd.session.inbox_mut().received_bytes();
            let new = received - std::mem::replace(&mut nbd.received_bytes, received);
            self.ops.memory.moved(conn, new as usize);
        }
    }

    /// Lets requests in, in turn, as long as the gateway has room for their volumes. False when none was.
    pub(super) fn admit(&mut self) -> bool {
        self.feed_waiting();
        if !self.ops.turns.has_waiting() {
            return false;
        }
        let mut admitted = false;
        self.ops.turns.begin_round();
        while let Some(conn) = self.next_in_turn() {
            self.submit_ready(conn);
            self.pump_nbd(conn);
            admitted = true;
        }
        admitted
    }

    /// The connection whose request enters now: the next one whose volume has room.
    fn next_in_turn(&mut self) -> Option<ConnId> {
        let NbdOps { turns, opened, .. } = &mut self.ops;
        let node = &self.node;
        turns.let_in(|conn| opened.get(&conn).is_none_or(|volume| node.has_room(&volume.name)))
    }

    fn submit_ready(&mut self, conn: ConnId) {
        let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) else { return self.ops.turns.gone(conn) };
        let (Some((token, op)), Some((volume, attachment))) = (nbd.ready.take(), nbd.volume.clone()) else {
            return self.ops.turns.gone(conn);
        };
        self.ops.last += 1;
        let id = self.ops.last;
        self.ops.attaching.begin(&volume, attachment);
        self.node.submit(id, &volume, attachment, op);
        self.ops.running.insert(id, Running { client: Some((conn, token)), volume, attachment });
    }

    /// Lets connections go on that have waited for memory.
    fn feed_waiting(&mut self) {
        if !self.ops.memory.has_waiting() {
            return;
        }
        let now = self.time;
        // Small answers leave without an event.
        let holders: Vec<ConnId> = self.ops.memory.holders().collect();
        holders.into_iter().for_each(|conn| self.note_traffic(conn));
        while let Some(conn) = self.ops.memory.next(now) {
            if let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) {
                nbd.session.give_room();
            }
            self.pump_nbd(conn);
        }
    }

    /// Closes the connections of clients that do not say what they want, or that hold memory that others wait for.
    pub(super) fn close_late(&mut self, now: Duration) {
        if self.ops.next_look().is_none_or(|at| now < at) {
            return;
        }
        let silent = self.ops.doors.overdue(now);
        if !silent.is_empty() {
            let what = format!("closing {} connections: no export opened in {HANDSHAKE_MAX:?}", silent.len());
            self.notice(Notice::Silent, &what);
        }
        let stalled = self.ops.memory.stalled(now);
        if !stalled.is_empty() {
            let what = format!(
                "closing {} clients' connections: they neither send nor read, and others wait for the memory that they hold",
                stalled.len()
            );
            self.notice(Notice::Stalled, &what);
        }
        silent.into_iter().chain(stalled).for_each(|conn| self.reactor.close(conn, Close::AtOnce));
    }

    /// Trims a volume for the control plane.
    pub(super) fn trim(&mut self, trim: Trim) {
        let Trim { volume, attachment, offset, len, answer } = trim;
        self.ops.last += 1;
        self.ops.asked.insert(self.ops.last, answer);
        self.node.submit(self.ops.last, &volume, attachment, Op::Trim { offset, len });
    }

    /// Answers a client.
    pub(super) fn complete_nbd(&mut self, id: u64, outcome: Outcome) {
        if let Some(answer) = self.ops.asked.remove(&id) {
            // Whoever asked may have given up.
            let _ = answer.send(if let Outcome::Failed(status) = outcome { Err(status) } else { Ok(()) });
            return;
        }
        let Some(Running { client, volume, attachment }) = self.ops.running.remove(&id) else { return };
        if let Some((conn, token)) = client {
            let bytes = token.memory_bytes();
            self.ops.memory.answered(conn, bytes);
            self.ops.turns.ended(conn, bytes);
            self.answer_nbd(conn, token, outcome);
        }
        self.request_ended(&volume, attachment);
    }

    fn answer_nbd(&mut self, conn: ConnId, token: RequestToken, outcome: Outcome) {
        let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) else { return };
        match outcome {
            Outcome::Done => nbd.session.reply_done(token),
            Outcome::Read(pieces) => {
                let mut out = std::mem::take(&mut self.ops.pieces);
                out.extend(pieces.into_iter().map(|piece| match piece {
                    Piece::Data(bytes) => ReadPiece::Data(bytes),
                    Piece::Zero(len) => ReadPiece::Hole(len as u32),
                }));
                nbd.session.reply_read(token, &mut out);
                out.clear();
                self.ops.pieces = out;
            }
            Outcome::Status(runs) => {
                let extent = |(length, data): (u64, bool)| Extent { length, hole: !data, zero: !data };
                let extents: Vec<Extent> = runs.into_iter().map(extent).collect();
                nbd.session.reply_block_status(token, &extents);
            }
            Outcome::Failed(status) => nbd.session.reply_error(token, ErrorCode::from(status), &status.to_string()),
        }
        self.touched.insert(conn);
    }
}

/// The gateway's name for an NBD command; `None` where there is nothing to do.
fn op(command: Command) -> Option<Op> {
    Some(match command {
        Command::Read { offset, length } => Op::Read { offset, len: u64::from(length) },
        Command::Write { offset, data, .. } => Op::Write { offset, bytes: data },
        Command::Trim { offset, length, .. } => Op::Trim { offset, len: u64::from(length) },
        Command::WriteZeroes { offset, length, .. } => Op::Zero { offset, len: u64::from(length) },
        Command::BlockStatus { offset, length, .. } => Op::Status { offset, len: u64::from(length) },
        // Whatever has been answered is durable; and there is no cache to warm before a client reads.
        Command::Flush | Command::Cache { .. } => return None,
    })
}
