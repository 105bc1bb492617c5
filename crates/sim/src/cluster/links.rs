//! The cluster's side of the network: processes dial, send, close and are told what arrives.

use crate::cluster::events::Event;
use crate::cluster::keys::LIAR;
use crate::cluster::observer::OBSERVER;
use crate::cluster::{Cluster, Scene};
use crate::kernel::network::{Arrivals, Arrived, Coming, ConnId, Passage, Side, end_of, key_of};
use crate::kernel::process::Life;
use crate::kernel::rings::{Item, is_ring};
use crate::plan::{LINK_BYTES_MAX, Lie};
use crate::report::Invariant;
use azekura_base::{Endpoint, NodeId};
use azekura_node::ConnKey;
use azekura_wire::Message;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// What comes on connections, as the network has it.
    pub(crate) fn expect(&mut self, coming: Coming) {
        coming.into_iter().for_each(|(at, passage)| self.queue.push(at, Event::Link(passage)));
    }

    /// Something comes on a connection.
    pub(crate) fn pass(&mut self, passage: Passage) {
        match passage {
            Passage::Arrive(conn, side) => self.arrive(conn, side),
            Passage::Drain(conn, side) => {
                if let Some(coming) = self.network.drain(conn, side, self.now) {
                    self.expect(coming);
                    self.outbox_grew(conn, side);
                }
            }
            Passage::Closed(conn, side) => {
                if let Some(life) = self.network.end_learns(conn, side) {
                    self.tell(life, |node| node.closed(key_of(conn, side)));
                }
            }
            Passage::TimeOut(conn) => {
                let coming = self.network.time_out(conn, self.now);
                self.expect(coming);
            }
        }
    }

    /// A process dials a shard.
    pub(crate) fn dial(&mut self, from: Life, to: Endpoint) {
        let delay = self.network.dial_time();
        self.queue.push(self.now + delay, Event::Dialled { from, to });
    }

    /// A dialled shard is reached, or found absent. All shards of a node have one address: its first one accepts, and
    /// hands the connection over.
    pub(crate) fn dialled(&mut self, from: Life, to: Endpoint) {
        let delay = self.network.dial_time();
        if self.network.is_cut(from.node, to.node, self.now) {
            // Nobody answers; the system gives up at some time.
            let delay = self.network.dial_patience();
            self.queue.push(self.now + delay, Event::Unreachable { from, to, refused: false });
            return;
        }
        if let Some(conn) = self.dialled_liar(from, to.node) {
            self.queue.push(self.now + delay, Event::Connected { from, to, conn });
            return;
        }
        let Some(first) = self.process_on(to.node) else {
            self.queue.push(self.now + delay, Event::Unreachable { from, to, refused: true });
            return;
        };
        let target = self.life_of(to);
        if let Some(until) = self.stalled(first).max(target.and_then(|target| self.stalled(target))) {
            self.queue.push(until, Event::Dialled { from, to });
            return;
        }
        let conn = self.network.connect(from, target.unwrap_or(first));
        self.queue.push(self.now + delay, Event::Connected { from, to, conn });
        self.prove_both(conn, from, target.unwrap_or(first));
        let proof = self.proof(key_of(conn, Side::Acceptor));
        match target {
            Some(target) => self.tell(target, |node| node.accepted(key_of(conn, Side::Acceptor), proof)),
            // Its first shard finds that there is no such one.
            None => self.close(key_of(conn, Side::Acceptor)),
        }
        if !self.is_alive(from) {
            let coming = self.network.end_is_gone(conn, Side::Dialler, self.now);
            self.expect(coming);
        }
    }

    /// The dialling side is told of its connection, unless it has ended before.
    pub(crate) fn conn_stands(&mut self, from: Life, to: Endpoint, conn: ConnId) {
        let open = self.network.is_open(conn, Side::Dialler);
        let listens = self.process_on(to.node).is_some();
        let proof = self.proof(key_of(conn, Side::Dialler));
        self.tell(from, |node| match open {
            true => node.connected(to, key_of(conn, Side::Dialler), proof),
            false => node.connect_failed(to, !listens),
        });
    }

    /// A shard joins another one of its process.
    pub(crate) fn join(&mut self, from: Life, to: Endpoint) {
        let Some(target) = self.life_of(to) else { return };
        let (conn, at) = self.rings.join(from, target, self.now);
        self.queue.push(at, Event::Ring(conn, Side::Acceptor));
        self.tell(from, |node| node.connected_local(to, key_of(conn, Side::Dialler)));
    }

    /// Something comes to an end of a connection inside a process.
    pub(crate) fn ring(&mut self, conn: ConnId, side: Side) {
        let Some((life, item)) = self.rings.take(conn, side, self.now) else { return };
        let key = key_of(conn, side);
        self.tell(life, |node| match item {
            Item::Joined => node.accepted_local(key),
            Item::Message(message) => node.received(key, message),
            Item::Closed => node.closed(key),
        });
    }

    fn put_in_ring(&mut self, conn: ConnId, side: Side, message: Message) {
        let Some(at) = self.rings.send(conn, side, message, self.now) else { return };
        self.trace.step(self.now, conn.0 << 32 ^ at.as_nanos() as u64, || format!("{conn:?}: out at {at:?}"));
        self.queue.push(at, Event::Ring(conn, side.other()));
    }

    /// A process sends a message on its end `key`.
    pub(crate) fn send(&mut self, key: ConnKey, message: &Message) {
        let Some((id, side)) = end_of(key) else { return };
        if is_ring(id) {
            return self.put_in_ring(id, side, message.clone());
        }
        self.send_from(id, side, message);
    }

    /// A message is sent from an end.
    pub(crate) fn send_from(&mut self, id: ConnId, side: Side, message: &Message) {
        let behind_data = self.plan.lie == Some(Lie::HeartbeatsBehindData);
        let Some(sent) = self.network.send(id, side, message, self.now, behind_data) else { return };
        self.trace.step(self.now, u64::from(sent.sum.0) ^ (id.0 << 32), || format!("send {}", describe(message)));
        self.expect(sent.coming);
        if sent.waits {
            self.outbox_grew(id, side);
        }
    }

    /// What waits at an end has changed: its process is told, and it must not be too much.
    fn outbox_grew(&mut self, id: ConnId, side: Side) {
        let Some(unsent) = self.network.unsent(id, side) else { return };
        let (life, bytes) = (unsent.from, unsent.bytes);
        if bytes > LINK_BYTES_MAX {
            let what = format!("{bytes} bytes are on their way from {life:?} on {id:?}");
            return self.violate(Invariant::Bounded, what);
        }
        if let Some(at) = self.loop_of_mut(life) {
            at.node.unsent(key_of(id, side), unsent.waiting);
        }
    }

    /// Bytes arrive at an end.
    fn arrive(&mut self, id: ConnId, side: Side) {
        let Arrivals { to, messages, beats, slowness } = match self.network.arrive(id, side, self.now) {
            Ok(Arrived::Messages(arrivals)) => arrivals,
            Ok(Arrived::Nothing) => return,
            Ok(Arrived::Held(until)) => return self.queue.push(until, Event::Link(Passage::Arrive(id, side))),
            Err(error) => return self.violate(Invariant::Protocol, format!("a frame was not understood: {error}")),
        };
        beats.into_iter().for_each(|sent| S::heartbeat_came(self, to, sent, slowness));
        for message in messages {
            if to == OBSERVER {
                self.observed.push(message);
                continue;
            }
            if to == LIAR {
                self.liar_hears(id, side, &message);
                continue;
            }
            self.tell(to, |node| node.received(key_of(id, side), message));
        }
    }

    /// Nothing gets from one node to another until then. Their systems may give up connections meanwhile.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId, until: Duration) {
        self.trace.step(self.now, u64::from(from.0) << 32 | u64::from(to.0), || {
            format!("nothing gets from {from:?} to {to:?} until {:.3}", until.as_secs_f64())
        });
        self.network.cut(from, to, until);
        for conn in self.network.between(from, to) {
            if self.random.chance(50) {
                let patience = self.random.spread_millis(500, 10_000);
                self.queue.push(self.now + patience, Event::Link(Passage::TimeOut(conn)));
            }
        }
    }

    /// A link is slower than others, so many times, until it is replaced.
    pub(crate) fn slow_down(&mut self, conn: ConnId, times: u32) {
        self.network.slow_down(conn, times);
    }

    /// A connection breaks, and each end learns of it at its own time.
    pub(crate) fn break_conn(&mut self, id: ConnId, notice: [Duration; 2]) {
        let coming = self.network.break_conn(id, notice, self.now);
        self.expect(coming);
    }

    /// A process closes its end `key`.
    pub(crate) fn close(&mut self, key: ConnKey) {
        if let Some((id, side)) = end_of(key).filter(|(id, _)| is_ring(*id)) {
            let notices = self.rings.close(id, side, self.now);
            return notices.into_iter().for_each(|at| self.queue.push(at, Event::Ring(id, side.other())));
        }
        let coming = self.network.close(key, self.now);
        self.expect(coming);
    }

    /// All links are whole again.
    pub(crate) fn heal_links(&mut self) {
        let coming = self.network.heal(self.now);
        self.expect(coming);
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
