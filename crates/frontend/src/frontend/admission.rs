//! Requests that enter: in turn, as far as there is room for them, and as the limits of their volumes allow.

use super::{Context, Frontend, Owner};
use crate::limits::Limited;
use crate::request::Asked;
use azekura_gateway::VolumeView;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// True while a request of the connection waits for its turn, for room, or for the limits of its volume.
    #[must_use]
    pub fn waits_for_turn(&self, conn: K) -> bool {
        self.turns.is_waiting(conn)
    }

    /// Lets requests in, in turn, as long as the gateway has room for their volumes. False when none was, and the
    /// gateway has nothing new of those that take several steps either.
    pub fn admit(&mut self, cx: &mut Context<'_, K>) -> bool {
        self.feed_waiting(cx);
        self.leave_unsettled();
        self.throttle.begin_round();
        let mut admitted = std::mem::take(&mut self.has_stepped);
        if !self.turns.has_waiting() {
            return admitted;
        }
        self.turns.begin_round();
        while let Some((conn, limited)) = self.next_in_turn(cx) {
            self.submit_ready(conn, limited, cx);
            self.pump(conn, cx);
            admitted = true;
        }
        admitted
    }

    /// The connection whose request enters now: the next one whose volume has room; and the volume's limits. Requests
    /// of a volume that has its share of the gateway's memory under way wait, and those of no other volume wait behind
    /// them (decision 0018). So do those of a volume that has reached a limit of its own (0049), but not those that a
    /// fence of reservations waits for (0046): this node would lose the volume for a limit that may take half a minute.
    fn next_in_turn(&mut self, cx: &mut Context<'_, K>) -> Option<(K, Option<Limited>)> {
        let Frontend { turns, opened, throttle, heeding, .. } = self;
        let mut limited = None;
        let mut may_enter = |conn: K, view: &VolumeView| {
            limited = Limited::of(view);
            cx.backend.has_room(&view.name)
                && limited.is_none_or(|limited| {
                    throttle.lets_in(limited, cx.now) || {
                        let ready = cx.clients.client(conn).and_then(|client| client.ready.as_ref());
                        ready.is_some_and(|ready| heeding.waits_for(view.id, ready.era))
                    }
                })
        };
        let conn = turns.let_in(|conn| opened.get(&conn).is_none_or(|view| may_enter(conn, view)))?;
        Some((conn, limited))
    }

    fn submit_ready(&mut self, conn: K, limited: Option<Limited>, cx: &mut Context<'_, K>) {
        let Some(client) = cx.clients.client(conn) else { return self.turns.gone(conn) };
        let (Some(ready), Some((volume, attachment))) = (client.ready.take(), client.volume.clone()) else {
            return self.turns.gone(conn);
        };
        if let (Some(limited), Asked::Op(op)) = (limited, &ready.asked) {
            self.throttle.charge(limited, op, cx.now);
        }
        let opened = self.opened.get(&conn).filter(|_| ready.asked.is_write());
        let writes = opened.map(|view| (view.id, ready.era));
        self.attaching.begin(&volume, attachment);
        let waits = Some((conn, ready.tag, ready.memory_bytes));
        let (op, work) = match ready.asked {
            Asked::Op(op) => (Some(op), None),
            Asked::Work(work) => (None, Some(Box::new(work))),
        };
        let (volume_of, member, in_turn) = (Arc::clone(&volume), None, true);
        let owner = Owner::Client { waits, volume: volume_of, attachment, member, in_turn, writes, work };
        let id = self.running.insert(owner);
        match op {
            Some(op) => cx.backend.submit(id, &volume.volume, attachment, op),
            None => self.go_on_with(id, cx),
        }
    }

    /// Lets connections go on that have waited for memory.
    fn feed_waiting(&mut self, cx: &mut Context<'_, K>) {
        if !self.memory.has_waiting() {
            return;
        }
        // Small answers leave without an event.
        let holders: Vec<K> = self.memory.holders().collect();
        holders.into_iter().for_each(|conn| self.note_traffic(conn, cx));
        while let Some(conn) = self.memory.next(cx.now) {
            if let Some(client) = cx.clients.client(conn) {
                client.protocol().give_room();
            }
            self.pump(conn, cx);
        }
    }
    /// What a client has sent, and has taken of its answers, since the last look: to be told whenever either changes.
    pub fn note_traffic(&mut self, conn: K, cx: &mut Context<'_, K>) {
        let unsent = cx.clients.unsent_bytes(conn);
        self.memory.unsent(conn, unsent, cx.now);
        if let Some(client) = cx.clients.client(conn) {
            let received = client.protocol().inbox_mut().received_bytes();
            let new = received - std::mem::replace(&mut client.received_bytes, received);
            self.memory.moved(conn, new as usize);
        }
    }
}
