//! NBD clients: from a session's requests to the gateway, and back.

use super::attaching::Attaching;
use super::attachments::Trim;
use super::dataplane::{DataPlane, Report};
use super::exports::Volumes;
use super::missing::Missing;
use super::stream::Conn;
use azekura_base::{Generation, IoStatus};
use azekura_gateway::{Op, Outcome, Piece, VolumeView};
use azekura_nbd::{Command, ErrorCode, Event, Extent, ReadPiece, RequestToken};
use azekura_reactor::{Close, ConnId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Requests that one connection may have under way.
const CONNECTION_REQUESTS_MAX: usize = 1024;

/// A request under way.
struct Running {
    /// Who waits for the answer, if he is still there.
    client: Option<(ConnId, RequestToken)>,
    volume: Arc<str>,
    attachment: Generation,
}

/// Clients' requests under way.
#[derive(Default)]
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
    /// Connections that wait for room.
    starved: BTreeSet<ConnId>,
    pieces: Vec<ReadPiece>,
}

impl NbdOps {
    /// True while a connection's requests wait until others are answered.
    pub fn waits_for_room(&self, conn: ConnId) -> bool {
        self.starved.contains(&conn)
    }

    /// The connection is gone: nobody waits for its answers.
    pub fn forget(&mut self, conn: ConnId) {
        for running in self.running.values_mut() {
            running.client.take_if(|(owner, _)| *owner == conn);
        }
        self.starved.remove(&conn);
        self.opened.remove(&conn);
        self.missing.forget(conn);
    }
}

impl DataPlane {
    /// Takes what requests a client has sent, as long as there is room for them.
    pub(super) fn pump_nbd(&mut self, conn: ConnId) {
        self.touched.insert(conn);
        loop {
            let room = self.node.has_room();
            let exports = Volumes {
                all: self.node.gateway().volumes(),
                attaching: &self.ops.attaching,
                is_certain: self.ops.missing.is_certain(conn),
                conn,
            };
            let Some(Conn::Nbd(nbd)) = self.reactor.stream(conn) else { return };
            if nbd.session.is_open() && (!room || nbd.session.in_flight() >= CONNECTION_REQUESTS_MAX) {
                self.ops.starved.insert(conn);
                return;
            }
            match nbd.session.poll(&exports) {
                None => {
                    // A refusal has been told; whoever asks again gets another answer.
                    self.ops.attaching.forget_refusal(conn);
                    self.ops.missing.told(conn);
                    return;
                }
                Some(Event::Missing { .. }) => {
                    self.look_for_export(conn);
                    return;
                }
                Some(Event::Wanted { name }) => {
                    self.want_volume(conn, &name);
                    return;
                }
                Some(Event::Opened { name }) => {
                    // It was there a moment ago, in the session's poll.
                    let attachment = self.ops.attaching.opened(conn, &name).unwrap_or_default();
                    nbd.volume = Some((name.as_str().into(), attachment));
                    let view = self.node.gateway().volumes().get(&name).cloned();
                    self.ops.opened.extend(view.map(|view| (conn, view)));
                }
                Some(Event::Request { token, command }) => {
                    let Some(op) = op(command) else {
                        nbd.session.reply_done(token);
                        continue;
                    };
                    let Some((volume, attachment)) = nbd.volume.clone() else { continue };
                    self.ops.last += 1;
                    let id = self.ops.last;
                    self.ops.attaching.begin(&volume, attachment);
                    self.node.submit(id, &volume, attachment, op);
                    let client = Some((conn, token));
                    self.ops.running.insert(id, Running { client, volume, attachment });
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

    /// Lets connections that waited for room go on. False when none had to.
    pub(super) fn feed_starved(&mut self) -> bool {
        if self.ops.starved.is_empty() || !self.node.has_room() {
            return false;
        }
        let mut fed = false;
        for conn in std::mem::take(&mut self.ops.starved) {
            let before = self.ops.last;
            self.pump_nbd(conn);
            fed |= self.ops.last != before;
        }
        fed
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
