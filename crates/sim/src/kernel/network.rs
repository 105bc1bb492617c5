//! The simulated network: connections that keep order, take their time, and break.
//!
//! Messages go through the real encoder and decoder, in random cuts. The links of one node may have a bandwidth: then
//! what is sent waits in a real outbox, as in a real node, and heartbeats go ahead there.

use crate::kernel::process::Life;
use crate::kernel::random::Random;
use azekura_base::{Checksum, Inbox, NodeId, Outbox};
use azekura_node::ConnKey;
use azekura_wire::{Decoder, Message, encode};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A narrow link takes about so much at once.
const DRAIN_BYTES: usize = 16 << 10;
/// Names a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u64);

impl ConnId {
    /// The connection of which a process knows its end as `key`.
    pub(crate) fn of(key: ConnKey) -> ConnId {
        ConnId((key.0 / 2).saturating_sub(1))
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The end that dialled.
    Dialler,
    /// The end that accepted.
    Acceptor,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Dialler => Side::Acceptor,
            Side::Acceptor => Side::Dialler,
        }
    }
}

/// The name by which a process knows its end.
pub(crate) fn key_of(conn: ConnId, side: Side) -> ConnKey {
    ConnKey(2 * conn.0 + 2 + u64::from(side == Side::Acceptor))
}

/// Something that comes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Bytes arrive at an end.
    Arrive(ConnId, Side),
    /// A link that is narrow takes more of what waits at an end.
    Drain(ConnId, Side),
    /// An end learns that its connection has ended.
    Closed(ConnId, Side),
    /// A connection has been cut for so long that it is given up, if it still is.
    TimeOut(ConnId),
}

/// What comes, and when.
pub(crate) type Coming = Vec<(Duration, Passage)>;

/// A message has been sent.
pub(crate) struct Sent {
    pub(crate) sum: Checksum,
    pub(crate) coming: Coming,
    /// It waits at its end, as the link is narrow.
    pub(crate) waits: bool,
}

/// What has arrived at an end.
pub(crate) enum Arrived {
    /// Nothing before then: that direction is cut.
    Held(Duration),
    /// Nothing that anybody wants.
    Nothing,
    Messages(Arrivals),
}

/// Messages that have arrived at an end, in their order.
pub(crate) struct Arrivals {
    pub(crate) to: Life,
    pub(crate) messages: Vec<Message>,
    /// When the heartbeats among them were sent, over a narrow link.
    pub(crate) beats: Vec<Duration>,
    /// Everything takes this many times as long on this connection.
    pub(crate) slowness: u32,
}

/// What is under way from an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsent {
    pub(crate) from: Life,
    /// Bytes that wait there.
    pub(crate) waiting: usize,
    /// With those on the link.
    pub(crate) bytes: usize,
}

/// One end, and the bytes on their way to it.
struct End {
    life: Life,
    /// The process has not been told that the connection has ended, nor ended it.
    open: bool,
    arriving: VecDeque<(Duration, Vec<u8>)>,
    last_arrival: Duration,
    inbox: Inbox,
    decoder: Decoder,
    /// What waits to be sent from here, over a link that has a bandwidth.
    outbox: Outbox,
    /// The link takes some of that.
    draining: bool,
    /// When the heartbeats were sent that are on their way to here.
    beats: VecDeque<Duration>,
}

impl End {
    fn new(life: Life) -> End {
        End {
            life,
            open: true,
            arriving: VecDeque::new(),
            last_arrival: Duration::ZERO,
            inbox: Inbox::new(),
            decoder: Decoder::default(),
            outbox: Outbox::new(),
            draining: false,
            beats: VecDeque::new(),
        }
    }

    /// Bytes that are on their way to here.
    fn arriving_bytes(&self) -> usize {
        self.arriving.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// A connection.
struct Conn {
    ends: [End; 2],
    /// Nothing gets through any more; the ends may not know.
    broken: bool,
    /// Everything takes this many times as long.
    slowness: u32,
}

impl Conn {
    fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[usize::from(side == Side::Acceptor)]
    }
}

/// Directions in which nothing gets through, and until when.
#[derive(Default)]
struct Cuts {
    until: BTreeMap<(NodeId, NodeId), Duration>,
}

impl Cuts {
    /// Until when nothing gets from a node to another; `None` when the way is open.
    fn until(&self, from: NodeId, to: NodeId, now: Duration) -> Option<Duration> {
        self.until.get(&(from, to)).copied().filter(|until| now < *until)
    }
}

/// All connections.
pub(crate) struct Network {
    conns: BTreeMap<ConnId, Conn>,
    made: u64,
    random: Random,
    cuts: Cuts,
    /// A node whose links have a bandwidth.
    narrow: Option<Narrow>,
    messages: u64,
    bytes: u64,
}

/// A node whose links are narrow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow {
    pub(crate) node: NodeId,
    /// Of each connection, in each direction.
    pub(crate) bytes_per_second: u64,
}

impl Network {
    pub(crate) fn new(random: Random, narrow: Option<Narrow>) -> Network {
        Network { conns: BTreeMap::new(), made: 0, random, cuts: Cuts::default(), narrow, messages: 0, bytes: 0 }
    }

    /// The node whose links are narrow.
    pub(crate) fn narrow(&self) -> Option<Narrow> {
        self.narrow
    }

    /// Messages that were sent, and their bytes.
    pub(crate) fn sent(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Time that it takes to reach a node.
    pub(crate) fn dial_time(&mut self) -> Duration {
        Network::latency(&mut self.random, 1)
    }

    /// Time after which a system gives up to reach a node that does not answer.
    pub(crate) fn dial_patience(&mut self) -> Duration {
        self.random.spread_millis(100, 4000)
    }

    /// True when one direction between two nodes is cut, or both are.
    pub(crate) fn is_cut(&self, a: NodeId, b: NodeId, now: Duration) -> bool {
        self.cuts.until(a, b, now).or(self.cuts.until(b, a, now)).is_some()
    }

    /// Nothing gets from a node to another until then.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId, until: Duration) {
        let before = self.cuts.until.entry((from, to)).or_default();
        *before = until.max(*before);
    }

    /// All links are whole again: what waits arrives now.
    pub(crate) fn heal(&mut self, now: Duration) -> Coming {
        let cuts = std::mem::take(&mut self.cuts.until).into_keys();
        let conns = cuts.flat_map(|(a, b)| self.between(a, b));
        let arrive = |conn| [Side::Dialler, Side::Acceptor].map(|side| (now, Passage::Arrive(conn, side)));
        conns.flat_map(arrive).collect()
    }

    /// A process reaches another one.
    pub(crate) fn connect(&mut self, dialler: Life, acceptor: Life) -> ConnId {
        let id = ConnId(self.made);
        self.made += 1;
        let ends = [End::new(dialler), End::new(acceptor)];
        self.conns.insert(id, Conn { ends, broken: false, slowness: 1 });
        id
    }

    /// An end has not ended, as far as its process knows.
    pub(crate) fn is_open(&self, conn: ConnId, side: Side) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.ends[usize::from(side == Side::Acceptor)].open)
    }

    /// The connections that carry something.
    pub(crate) fn whole(&self) -> Vec<ConnId> {
        let whole = |conn: &&ConnId| self.conns[conn].ends.iter().all(|end| end.open) && !self.conns[conn].broken;
        self.conns.keys().filter(whole).copied().collect()
    }

    /// Everything takes so many times as long on a connection.
    pub(crate) fn slow_down(&mut self, conn: ConnId, times: u32) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.slowness = times;
        }
    }

    /// Time that a message takes.
    fn latency(random: &mut Random, slowness: u32) -> Duration {
        let usual = if random.chance(95) { random.micros(20, 300) } else { random.micros(300, 5000) };
        usual * slowness
    }

    /// Until when nothing arrives at an end, because that direction is cut.
    fn held(&mut self, conn: ConnId, side: Side, now: Duration) -> Option<Duration> {
        let conn = self.conns.get_mut(&conn)?;
        let (from, to) = (conn.end(side.other()).life.node, conn.end(side).life.node);
        self.cuts.until(from, to, now)
    }

    /// The connections between two nodes.
    pub(crate) fn between(&self, a: NodeId, b: NodeId) -> Vec<ConnId> {
        let joins = |conn: &Conn| {
            let [x, y] = [conn.ends[0].life.node, conn.ends[1].life.node];
            (x, y) == (a, b) || (x, y) == (b, a)
        };
        self.conns.iter().filter(|(_, conn)| joins(conn)).map(|(id, _)| *id).collect()
    }

    /// The process at an end.
    pub(crate) fn life_at(&self, conn: ConnId, side: Side) -> Option<Life> {
        self.conns.get(&conn).map(|conn| conn.ends[usize::from(side == Side::Acceptor)].life)
    }

    fn forget_if_over(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_some_and(|conn| conn.ends.iter().all(|end| !end.open)) {
            self.conns.remove(&conn);
        }
    }

    /// A process sends a message from an end; `None` when nothing leaves there any more. Heartbeats go ahead of what
    /// waits for a narrow link, unless they are `behind_data`.
    pub(crate) fn send(
        &mut self,
        id: ConnId,
        side: Side,
        message: &Message,
        now: Duration,
        behind_data: bool,
    ) -> Option<Sent> {
        let conn = self.conns.get_mut(&id).filter(|conn| !conn.broken)?;
        if !conn.end(side).open {
            return None;
        }
        let mut out = Outbox::new();
        encode(message, &mut out);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        let mut bytes = pieces.concat();
        self.messages += 1;
        self.bytes += bytes.len() as u64;
        let sum = azekura_base::checksum(&bytes);
        let mut coming = Vec::new();
        if self.narrow.is_some_and(|narrow| conn.ends.iter().any(|end| end.life.node == narrow.node)) {
            if is_beat(message) {
                conn.end(side.other()).beats.push_back(now);
            }
            let from = conn.end(side);
            if behind_data {
                from.outbox.put(&bytes);
                from.outbox.end_frame();
            } else {
                encode(message, &mut from.outbox);
            }
            if !std::mem::replace(&mut from.draining, true) {
                coming.push((now, Passage::Drain(id, side)));
            }
            return Some(Sent { sum, coming, waits: true });
        }
        let random = &mut self.random;
        let mut at = now + Network::latency(random, conn.slowness);
        let to = conn.end(side.other());
        while !bytes.is_empty() {
            at = at.max(to.last_arrival);
            to.last_arrival = at;
            let cut = if random.chance(80) { bytes.len() } else { random.between(1, bytes.len() as u64) as usize };
            let rest = bytes.split_off(cut);
            to.arriving.push_back((at, bytes));
            coming.push((at, Passage::Arrive(id, side.other())));
            bytes = rest;
            at += random.micros(0, 50);
        }
        Some(Sent { sum, coming, waits: false })
    }

    /// A narrow link takes some of what waits at an end; `None` when nothing waits.
    pub(crate) fn drain(&mut self, id: ConnId, side: Side, now: Duration) -> Option<Coming> {
        let conn = self.conns.get_mut(&id).filter(|conn| !conn.broken)?;
        let narrow = self.narrow?;
        let slowness = conn.slowness;
        let from = conn.end(side);
        let mut pieces = Vec::new();
        from.outbox.take(&mut pieces, usize::MAX, DRAIN_BYTES);
        if pieces.is_empty() {
            from.draining = false;
            return None;
        }
        let bytes = pieces.concat();
        let sent = now + Duration::from_secs(1) * bytes.len() as u32 / narrow.bytes_per_second as u32;
        let to = conn.end(side.other());
        let at = to.last_arrival.max(sent + Network::latency(&mut self.random, slowness));
        to.last_arrival = at;
        to.arriving.push_back((at, bytes));
        Some(vec![(at, Passage::Arrive(id, side.other())), (sent, Passage::Drain(id, side))])
    }

    /// What is under way from an end.
    pub(crate) fn unsent(&mut self, id: ConnId, side: Side) -> Option<Unsent> {
        let conn = self.conns.get_mut(&id)?;
        let waiting = conn.end(side).outbox.len();
        let bytes = waiting + conn.end(side.other()).arriving_bytes();
        Some(Unsent { from: conn.end(side).life, waiting, bytes })
    }

    /// What has arrived at an end by now.
    ///
    /// # Errors
    /// When a frame is not understood.
    pub(crate) fn arrive(&mut self, id: ConnId, side: Side, now: Duration) -> Result<Arrived, String> {
        if let Some(until) = self.held(id, side, now) {
            return Ok(Arrived::Held(until));
        }
        let random = &mut self.random;
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(Arrived::Nothing) };
        let slowness = conn.slowness;
        let end = conn.end(side);
        let (mut messages, mut beats) = (Vec::new(), Vec::new());
        while end.arriving.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, bytes)) = end.arriving.pop_front() else { break };
            let mut rest = &bytes[..];
            while !rest.is_empty() && end.open {
                let mut fill = end.inbox.take_fill();
                let room = rest.len().min(fill.buf.len() - fill.at);
                let count = if random.chance(80) { room } else { random.between(1, room as u64) as usize };
                fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                end.inbox.filled(fill, count);
                while let Some(message) = end.decoder.next(&mut end.inbox).map_err(|error| error.to_string())? {
                    if is_beat(&message) {
                        beats.extend(end.beats.pop_front());
                    }
                    messages.push(message);
                }
            }
        }
        if !end.open {
            return Ok(Arrived::Nothing);
        }
        Ok(Arrived::Messages(Arrivals { to: end.life, messages, beats, slowness }))
    }

    /// A connection breaks: what is on its way is lost, and each end learns of it at its own time.
    pub(crate) fn break_conn(&mut self, id: ConnId, notice: [Duration; 2], now: Duration) -> Coming {
        let Some(conn) = self.conns.get_mut(&id) else { return Vec::new() };
        conn.broken = true;
        let ends = [Side::Dialler, Side::Acceptor].into_iter().zip(notice);
        let learns = ends.map(|(side, after)| {
            conn.end(side).arriving.clear();
            (now + after, Passage::Closed(id, side))
        });
        learns.collect()
    }

    /// A connection over which nothing could be sent for too long is given up by the systems at its ends.
    pub(crate) fn time_out(&mut self, id: ConnId, now: Duration) -> Coming {
        if self.held(id, Side::Dialler, now).or(self.held(id, Side::Acceptor, now)).is_none() {
            return Vec::new();
        }
        let notice = [self.random.spread_millis(1, 3000), self.random.spread_millis(1, 3000)];
        self.break_conn(id, notice, now)
    }

    /// A process closes its end `key`.
    pub(crate) fn close(&mut self, key: ConnKey, now: Duration) -> Coming {
        end_of(key).map_or_else(Vec::new, |(id, side)| self.end_is_gone(id, side, now))
    }

    /// An end is gone, by its process's will or with it: the other end gets what was sent, or not, and then learns
    /// of it.
    pub(crate) fn end_is_gone(&mut self, id: ConnId, side: Side, now: Duration) -> Coming {
        let mut coming = Vec::new();
        let random = &mut self.random;
        let Some(conn) = self.conns.get_mut(&id) else { return coming };
        conn.end(side).open = false;
        conn.end(side).arriving.clear();
        if !conn.broken {
            conn.broken = true;
            let other = conn.end(side.other());
            if random.chance(40) {
                other.arriving.clear();
            }
            let notice = if random.chance(70) { random.micros(0, 1000) } else { random.spread_millis(1, 1000) };
            let at = now.max(other.last_arrival) + notice;
            let at = self.held(id, side.other(), now).unwrap_or(at).max(at);
            coming.push((at, Passage::Closed(id, side.other())));
        }
        self.forget_if_over(id);
        coming
    }

    /// An end learns that its connection has ended. Gives the process that has to be told.
    pub(crate) fn end_learns(&mut self, id: ConnId, side: Side) -> Option<Life> {
        let end = self.conns.get_mut(&id)?.end(side);
        let learner = std::mem::take(&mut end.open).then_some(end.life);
        self.forget_if_over(id);
        learner
    }

    /// All ends of a process are gone with it.
    pub(crate) fn ends_die(&mut self, life: Life, now: Duration) -> Coming {
        let mut ends = Vec::new();
        for (id, conn) in &mut self.conns {
            for side in [Side::Dialler, Side::Acceptor] {
                if conn.end(side).life == life {
                    ends.push((*id, side));
                }
            }
        }
        ends.into_iter().flat_map(|(id, side)| self.end_is_gone(id, side, now)).collect()
    }
}

fn is_beat(message: &Message) -> bool {
    matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_))
}

/// An end of a connection, by the name that its process has for it.
pub(crate) fn end_of(key: ConnKey) -> Option<(ConnId, Side)> {
    let side = if key.0.is_multiple_of(2) { Side::Dialler } else { Side::Acceptor };
    Some((ConnId((key.0 / 2).checked_sub(1)?), side))
}
