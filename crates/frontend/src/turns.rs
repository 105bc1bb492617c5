//! Whose request enters next: connections take turns, each with a few requests, and none takes more than its share of
//! the window while others wait (0017).

use crate::{TURN_BYTES_MAX, TURN_REQUESTS_MAX};
use std::collections::{BTreeMap, VecDeque};

/// What there is to be shared.
#[derive(Clone, Copy, Debug)]
pub struct TurnLimits {
    /// Requests that one connection may have under way, whatever the others do.
    pub connection_requests_max: usize,
    /// Requests that the gateway takes at a time. While others wait, a connection over its part of them stands back.
    pub window_requests: usize,
    /// And bytes.
    pub window_bytes: usize,
}

/// What a connection has under way, and wants.
#[derive(Debug, Default)]
struct Load {
    requests: usize,
    bytes: usize,
    /// The bytes of the request that is to enter next.
    wants: Option<usize>,
    /// It is in one of the queues.
    queued: bool,
    /// What it has let in during its present turn.
    turn_requests: u32,
    turn_bytes: usize,
}

impl Load {
    fn is_active(&self) -> bool {
        self.requests > 0 || self.wants.is_some()
    }

    fn turn_is_over(&self) -> bool {
        self.turn_requests >= TURN_REQUESTS_MAX || self.turn_bytes >= TURN_BYTES_MAX
    }
}

/// The order of connections' requests. Their owner calls [`Turns::begin_round`] when there is room, [`Turns::let_in`]
/// as long as there is, and submits the request of the connection that it names.
#[derive(Debug)]
pub struct Turns<K> {
    limits: TurnLimits,
    loads: BTreeMap<K, Load>,
    /// Connections that want to let a request in, in the order of their turns.
    ring: VecDeque<K>,
    /// Those that have more than their share under way: they are asked when all others have been.
    over_share: VecDeque<K>,
    /// Those for whose requests there was no room when it was their turn.
    no_room: VecDeque<K>,
    sharing: bool,
    /// Connections that have something under way or want to.
    active: usize,
    /// Whose turn it is.
    serving: Option<K>,
}

impl<K: Copy + Ord> Turns<K> {
    /// Nobody wants anything yet.
    #[must_use]
    pub fn new(limits: TurnLimits) -> Turns<K> {
        Turns {
            limits,
            loads: BTreeMap::new(),
            ring: VecDeque::new(),
            over_share: VecDeque::new(),
            no_room: VecDeque::new(),
            sharing: true,
            active: 0,
            serving: None,
        }
    }

    /// A connection has a request of so many bytes, and no other one that waits here.
    pub fn ask(&mut self, conn: K, bytes: usize) {
        let load = self.loads.entry(conn).or_default();
        let was_active = load.is_active();
        load.wants = Some(bytes);
        self.active += usize::from(!was_active);
        self.enqueue(conn);
    }

    fn enqueue(&mut self, conn: K) {
        let Some(load) = self.loads.get_mut(&conn) else { return };
        if load.queued || load.wants.is_none() || load.requests >= self.limits.connection_requests_max {
            return;
        }
        load.queued = true;
        if self.serving == Some(conn) && !load.turn_is_over() {
            self.ring.push_front(conn);
        } else {
            (load.turn_requests, load.turn_bytes) = (0, 0);
            self.ring.push_back(conn);
        }
    }

    /// True while somebody wants to let a request in.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ring.is_empty() || !self.over_share.is_empty() || !self.no_room.is_empty()
    }

    /// True while this connection's next request waits.
    #[must_use]
    pub fn is_waiting(&self, conn: K) -> bool {
        self.loads.get(&conn).is_some_and(|load| load.wants.is_some())
    }

    /// There is room: connections that stood back last time are asked again.
    pub fn begin_round(&mut self) {
        self.sharing = true;
        self.serving = None;
        for aside in [&mut self.over_share, &mut self.no_room] {
            while let Some(conn) = aside.pop_back() {
                self.ring.push_front(conn);
            }
        }
    }

    /// The connection whose request enters now. One for whose request there is no room, as `has_room` says, stands
    /// aside until the next round and is in nobody's way.
    pub fn let_in(&mut self, mut has_room: impl FnMut(K) -> bool) -> Option<K> {
        loop {
            let Some(conn) = self.ring.pop_front() else {
                if !std::mem::replace(&mut self.sharing, false) || self.over_share.is_empty() {
                    return None;
                }
                std::mem::swap(&mut self.ring, &mut self.over_share);
                continue;
            };
            let (requests_share, bytes_share) = self.share();
            let Some(load) = self.loads.get_mut(&conn) else { continue };
            if !has_room(conn) {
                self.no_room.push_back(conn);
                continue;
            }
            if self.sharing && (load.requests >= requests_share || load.bytes >= bytes_share) {
                self.over_share.push_back(conn);
                continue;
            }
            load.queued = false;
            let Some(bytes) = load.wants.take() else { continue };
            load.requests += 1;
            load.bytes += bytes;
            load.turn_requests += 1;
            load.turn_bytes += bytes;
            self.serving = Some(conn);
            return Some(conn);
        }
    }

    /// A connection's part of the window: requests, and bytes.
    fn share(&self) -> (usize, usize) {
        let active = self.active.max(1);
        ((self.limits.window_requests / active).max(1), (self.limits.window_bytes / active).max(1))
    }

    /// A request of so many bytes that had entered has been answered.
    pub fn ended(&mut self, conn: K, bytes: usize) {
        let Some(load) = self.loads.get_mut(&conn).filter(|load| load.is_active()) else { return };
        load.requests = load.requests.saturating_sub(1);
        load.bytes = load.bytes.saturating_sub(bytes);
        if load.is_active() {
            self.enqueue(conn);
        } else {
            self.active -= 1;
        }
    }

    /// The connection is gone, and with it what it wanted.
    pub fn gone(&mut self, conn: K) {
        if let Some(load) = self.loads.remove(&conn) {
            self.active -= usize::from(load.is_active());
            if load.queued {
                self.ring.retain(|other| *other != conn);
                self.over_share.retain(|other| *other != conn);
                self.no_room.retain(|other| *other != conn);
            }
        }
    }
}
