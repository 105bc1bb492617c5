//! The simulated network: connections that keep order, take their time, and break.
//!
//! Messages go through the real encoder and decoder, in random cuts. The links of one node may have a bandwidth: then
//! what is sent waits in a real outbox, as in a real node, and heartbeats go ahead there.

use crate::Invariant;
use crate::events::{Event, Life};
use crate::faults::Cuts;
use crate::plan::{LINK_BYTES_MAX, Lie};
use crate::random::Random;
use crate::world::World;
use azekura_base::{Endpoint, Inbox, NodeId, Outbox};
use azekura_node::ConnKey;
use azekura_wire::{Decoder, Message, encode};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A narrow link takes about so much at once.
const DRAIN_BYTES: usize = 16 << 10;
/// Over a narrow link a heartbeat is behind no more than this: what the link has begun to take, and what comes before
/// the next border.
const BEAT_BEHIND_BYTES: u64 = 224 << 10;
/// And it takes so much time besides.
const BEAT_DELAY_MAX: Duration = Duration::from_millis(50);
/// The longest time of a link that is not slowed down.
const SLOWEST: Duration = Duration::from_millis(5);

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

fn end_of(key: ConnKey) -> Option<(ConnId, Side)> {
    let side = if key.0.is_multiple_of(2) { Side::Dialler } else { Side::Acceptor };
    Some((ConnId((key.0 / 2).checked_sub(1)?), side))
}

/// One end, and the bytes on their way to it.
pub(crate) struct End {
    pub(crate) life: Life,
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
pub(crate) struct Conn {
    ends: [End; 2],
    /// Nothing gets through any more; the ends may not know.
    broken: bool,
    /// Everything takes this many times as long.
    slowness: u32,
}

impl Conn {
    pub(crate) fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[usize::from(side == Side::Acceptor)]
    }
}

/// All connections.
pub(crate) struct Network {
    conns: BTreeMap<ConnId, Conn>,
    made: u64,
    random: Random,
    /// Directions in which nothing gets through now.
    pub(crate) cuts: Cuts,
    /// A node whose links have a bandwidth.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Most bytes that ever waited in one outbox.
    pub(crate) outbox_bytes_max: usize,
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
        Network {
            conns: BTreeMap::new(),
            made: 0,
            random,
            cuts: Cuts::default(),
            narrow,
            messages: 0,
            bytes: 0,
            outbox_bytes_max: 0,
        }
    }

    pub(crate) fn connect(&mut self, dialler: Life, acceptor: Life) -> ConnId {
        let id = ConnId(self.made);
        self.made += 1;
        let ends = [End::new(dialler), End::new(acceptor)];
        self.conns.insert(id, Conn { ends, broken: false, slowness: 1 });
        id
    }

    pub(crate) fn get(&mut self, conn: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&conn)
    }

    /// The connections that carry something.
    pub(crate) fn whole(&self) -> Vec<ConnId> {
        let whole = |conn: &&ConnId| self.conns[conn].ends.iter().all(|end| end.open) && !self.conns[conn].broken;
        self.conns.keys().filter(whole).copied().collect()
    }

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
}

/// The pseudo-node that looks at copies when a run is over.
pub(crate) const OBSERVER: Life = Life { node: NodeId(u32::MAX), incarnation: 1 };

impl World {
    /// A process dials a node.
    pub(crate) fn dial(&mut self, from: Life, to: NodeId) {
        let delay = Network::latency(&mut self.network.random, 1);
        self.queue.push(self.now + delay, Event::Dialled { from, to });
    }

    pub(crate) fn dialled(&mut self, from: Life, to: NodeId) {
        let delay = Network::latency(&mut self.network.random, 1);
        if self.network.cuts.between(from.node, to, self.now) {
            // Nobody answers; the system gives up at some time.
            let delay = self.network.random.spread_millis(100, 4000);
            self.queue.push(self.now + delay, Event::Unreachable { from, to });
            return;
        }
        let Some(target) = self.life_of(to) else {
            self.queue.push(self.now + delay, Event::Unreachable { from, to });
            return;
        };
        if let Some(until) = self.stalled(target) {
            self.queue.push(until, Event::Dialled { from, to });
            return;
        }
        let conn = self.network.connect(from, target);
        self.queue.push(self.now + delay, Event::Connected { from, to, conn });
        self.tell(target, |node| node.accepted(key_of(conn, Side::Acceptor)));
        if self.life_of(from.node) != Some(from) {
            self.end_is_gone(conn, Side::Dialler);
        }
    }

    /// The dialling side is told of its connection, unless it has ended before.
    pub(crate) fn conn_stands(&mut self, from: Life, to: NodeId, conn: ConnId) {
        let open = self.network.get(conn).is_some_and(|conn| conn.end(Side::Dialler).open);
        self.tell(from, |node| match open {
            true => node.connected(Endpoint::first(to), key_of(conn, Side::Dialler)),
            false => node.connect_failed(Endpoint::first(to), true),
        });
    }

    /// A process sends a message on its end `key`.
    pub(crate) fn send(&mut self, key: ConnKey, message: &Message) {
        let Some((id, side)) = end_of(key) else { return };
        self.send_from(id, side, message);
    }

    pub(crate) fn send_from(&mut self, id: ConnId, side: Side, message: &Message) {
        let now = self.now;
        let Network { conns, random, messages, narrow, bytes: sent, .. } = &mut self.network;
        let Some(conn) = conns.get_mut(&id).filter(|conn| !conn.broken) else { return };
        if !conn.end(side).open {
            return;
        }
        let mut out = Outbox::new();
        encode(message, &mut out);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        let mut bytes = pieces.concat();
        *messages += 1;
        *sent += bytes.len() as u64;
        let sum = azekura_base::checksum(&bytes);
        self.trace.step(now, u64::from(sum.0) ^ (id.0 << 32), || format!("send {}", describe(message)));
        let urgent = matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_));
        if narrow.is_some_and(|narrow| conn.ends.iter().any(|end| end.life.node == narrow.node)) {
            if urgent {
                conn.end(side.other()).beats.push_back(now);
            }
            let from = conn.end(side);
            if self.plan.lie == Some(Lie::HeartbeatsBehindData) {
                from.outbox.put(&bytes);
                from.outbox.end_frame();
            } else {
                encode(message, &mut from.outbox);
            }
            if !std::mem::replace(&mut from.draining, true) {
                self.queue.push(now, Event::Drain(id, side));
            }
            return self.outbox_grew(id, side);
        }
        let mut at = now + Network::latency(random, conn.slowness);
        let to = conn.end(side.other());
        while !bytes.is_empty() {
            at = at.max(to.last_arrival);
            to.last_arrival = at;
            let cut = if random.chance(80) { bytes.len() } else { random.between(1, bytes.len() as u64) as usize };
            let rest = bytes.split_off(cut);
            to.arriving.push_back((at, bytes));
            self.queue.push(at, Event::Arrive(id, side.other()));
            bytes = rest;
            at += random.micros(0, 50);
        }
    }

    /// A narrow link takes some of what waits at an end.
    pub(crate) fn drain(&mut self, id: ConnId, side: Side) {
        let now = self.now;
        let Network { conns, random, narrow, .. } = &mut self.network;
        let (Some(conn), Some(narrow)) = (conns.get_mut(&id).filter(|conn| !conn.broken), *narrow) else { return };
        let slowness = conn.slowness;
        let from = conn.end(side);
        let mut pieces = Vec::new();
        from.outbox.take(&mut pieces, usize::MAX, DRAIN_BYTES);
        if pieces.is_empty() {
            from.draining = false;
            return;
        }
        let bytes = pieces.concat();
        let sent = now + Duration::from_secs(1) * bytes.len() as u32 / narrow.bytes_per_second as u32;
        let to = conn.end(side.other());
        let at = to.last_arrival.max(sent + Network::latency(random, slowness));
        to.last_arrival = at;
        to.arriving.push_back((at, bytes));
        self.queue.push(at, Event::Arrive(id, side.other()));
        self.queue.push(sent, Event::Drain(id, side));
        self.outbox_grew(id, side);
    }

    /// What waits at an end has changed: its process is told, and it must not be too much.
    fn outbox_grew(&mut self, id: ConnId, side: Side) {
        let Some(conn) = self.network.get(id) else { return };
        let unsent = conn.end(side).outbox.len();
        let bytes = unsent + conn.end(side.other()).arriving_bytes();
        let life = conn.end(side).life;
        self.network.outbox_bytes_max = self.network.outbox_bytes_max.max(bytes);
        if bytes > LINK_BYTES_MAX {
            let what = format!("{bytes} bytes are on their way from {life:?} on {id:?}");
            return self.violate(Invariant::Bounded, what);
        }
        if self.life_of(life.node) == Some(life)
            && let Some(node) = self.machines.get_mut(&life.node).and_then(|machine| machine.node.as_mut())
        {
            node.unsent(key_of(id, side), unsent);
        }
    }

    /// A heartbeat has come over a narrow link: it was not held up by data.
    fn check_beat(&mut self, life: Life, sent: Duration, slowness: u32) {
        let Some(narrow) = self.network.narrow else { return };
        let time = self.now.saturating_sub(sent);
        let behind = Duration::from_micros(BEAT_BEHIND_BYTES * 1_000_000 / narrow.bytes_per_second);
        if time > behind + BEAT_DELAY_MAX + SLOWEST * slowness {
            self.violate(Invariant::Bounded, format!("a heartbeat to {life:?} took {time:?}"));
        }
    }

    /// Bytes arrive at an end.
    pub(crate) fn arrive(&mut self, id: ConnId, side: Side) {
        let now = self.now;
        if let Some(until) = self.network.held(id, side, now) {
            self.queue.push(until, Event::Arrive(id, side));
            return;
        }
        let Network { conns, random, .. } = &mut self.network;
        let slowness = conns.get(&id).map_or(1, |conn| conn.slowness);
        let Some(end) = conns.get_mut(&id).map(|conn| conn.end(side)) else { return };
        let mut messages = Vec::new();
        let mut beats = Vec::new();
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
                loop {
                    match end.decoder.next(&mut end.inbox) {
                        Ok(Some(message)) => {
                            if matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_)) {
                                beats.extend(end.beats.pop_front());
                            }
                            messages.push(message);
                        }
                        Ok(None) => break,
                        Err(error) => {
                            self.violate(crate::Invariant::Protocol, format!("a frame was not understood: {error}"));
                            return;
                        }
                    }
                }
            }
        }
        if !end.open {
            return;
        }
        let life = end.life;
        beats.into_iter().for_each(|sent| self.check_beat(life, sent, slowness));
        for message in messages {
            if life == OBSERVER {
                self.observed.push(message);
                continue;
            }
            self.tell(life, |node| node.received(key_of(id, side), message));
        }
    }

    /// A connection breaks: what is on its way is lost, and each end learns of it at its own time.
    pub(crate) fn break_conn(&mut self, id: ConnId, notice: [Duration; 2]) {
        let now = self.now;
        let Some(conn) = self.network.get(id) else { return };
        conn.broken = true;
        for (side, after) in [Side::Dialler, Side::Acceptor].into_iter().zip(notice) {
            conn.end(side).arriving.clear();
            self.queue.push(now + after, Event::Closed(id, side));
        }
    }

    /// A connection over which nothing could be sent for too long is given up by the systems at its ends.
    pub(crate) fn time_out(&mut self, id: ConnId) {
        let now = self.now;
        if self.network.held(id, Side::Dialler, now).or(self.network.held(id, Side::Acceptor, now)).is_none() {
            return;
        }
        let random = &mut self.network.random;
        let notice = [random.spread_millis(1, 3000), random.spread_millis(1, 3000)];
        self.break_conn(id, notice);
    }

    /// A process closes its end `key`.
    pub(crate) fn close(&mut self, key: ConnKey) {
        if let Some((id, side)) = end_of(key) {
            self.end_is_gone(id, side);
        }
    }

    /// An end is gone, by its process's will or with it: the other end gets what was sent, or not, and then learns
    /// of it.
    pub(crate) fn end_is_gone(&mut self, id: ConnId, side: Side) {
        let now = self.now;
        let Network { conns, random, .. } = &mut self.network;
        let Some(conn) = conns.get_mut(&id) else { return };
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
            let at = self.network.held(id, side.other(), now).unwrap_or(at).max(at);
            self.queue.push(at, Event::Closed(id, side.other()));
        }
        self.network.forget_if_over(id);
    }

    /// An end learns that its connection has ended.
    pub(crate) fn end_learns(&mut self, id: ConnId, side: Side) {
        let Some(conn) = self.network.get(id) else { return };
        let end = conn.end(side);
        if std::mem::take(&mut end.open) {
            let life = end.life;
            self.tell(life, |node| node.closed(key_of(id, side)));
        }
        self.network.forget_if_over(id);
    }

    /// All ends of a process are gone with it.
    pub(crate) fn ends_die(&mut self, life: Life) {
        let mut ends = Vec::new();
        for (id, conn) in &mut self.network.conns {
            for side in [Side::Dialler, Side::Acceptor] {
                if conn.end(side).life == life {
                    ends.push((*id, side));
                }
            }
        }
        ends.into_iter().for_each(|(id, side)| self.end_is_gone(id, side));
    }
}

/// A message in a few words.
pub(crate) fn describe(message: &Message) -> String {
    match message {
        Message::Write(m) => format!(
            "write {:?} {:?} {:?} {:?} {}+{} oldest {:?}",
            m.session, m.request, m.pg, m.chunk, m.offset, m.len, m.oldest
        ),
        Message::WriteDone(m) => format!("write done {:?} {:?}", m.request, m.result),
        Message::Read(m) => format!("read {:?} {:?} {:?}", m.request, m.pg, m.range),
        Message::ReadDone(m) => match &m.result {
            Ok(extents) => format!("read done {:?} {} extents", m.request, extents.len()),
            Err(status) => format!("read done {:?} {status}", m.request),
        },
        other => match other.prepared() {
            Some((device, write)) => format!("prepare {device:?} {write:?}").to_lowercase(),
            None => format!("{other:?}").to_lowercase(),
        },
    }
}
