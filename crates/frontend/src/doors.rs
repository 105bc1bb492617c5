//! How many clients there may be, and how long they may take to say what they want (0017).

use crate::HANDSHAKE_MAX;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client is to say something until then.
    Handshake(Duration),
    /// The client waits for this node to find something out.
    Answering,
    /// It has opened what it wants to use: it may be silent for as long as it likes.
    Open,
}

/// The connections of clients.
#[derive(Debug)]
pub struct Doors<K> {
    connections_max: usize,
    connections: BTreeMap<K, State>,
    handshakes: usize,
    /// No handshake's time is over before. Those that begin later have longer.
    look_at: Option<Duration>,
}

impl<K: Copy + Ord> Doors<K> {
    /// No connections yet, and at most `connections_max` at a time.
    #[must_use]
    pub fn new(connections_max: usize) -> Doors<K> {
        Doors { connections_max, connections: BTreeMap::new(), handshakes: 0, look_at: None }
    }

    /// A client has connected. False when there are too many, and the connection is to be closed.
    #[must_use]
    pub fn connect(&mut self, conn: K, now: Duration) -> bool {
        let has_room = self.connections.len() < self.connections_max;
        if has_room {
            self.set(conn, State::Handshake(now + HANDSHAKE_MAX));
        }
        has_room
    }

    fn set(&mut self, conn: K, state: State) {
        let before = self.connections.insert(conn, state);
        self.handshakes -= usize::from(matches!(before, Some(State::Handshake(_))));
        if let State::Handshake(until) = state {
            self.handshakes += 1;
            self.look_at.get_or_insert(until);
        }
    }

    /// The client has said something, and has to go on with its handshake.
    pub fn heard(&mut self, conn: K, now: Duration) {
        if self.connections.get(&conn).is_some_and(|state| *state == State::Answering) {
            self.set(conn, State::Handshake(now + HANDSHAKE_MAX));
        }
    }

    /// The client waits for this node: its time stands still.
    pub fn answering(&mut self, conn: K) {
        if self.connections.get(&conn).is_some_and(|state| *state != State::Open) {
            self.set(conn, State::Answering);
        }
    }

    /// The handshake is over.
    pub fn opened(&mut self, conn: K) {
        if self.connections.contains_key(&conn) {
            self.set(conn, State::Open);
        }
    }

    /// The connection has ended.
    pub fn gone(&mut self, conn: K) {
        let before = self.connections.remove(&conn);
        self.handshakes -= usize::from(matches!(before, Some(State::Handshake(_))));
    }

    /// The connections, in order.
    pub fn all(&self) -> impl Iterator<Item = K> {
        self.connections.keys().copied()
    }

    /// Connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The most connections at a time.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// The connections whose time for the handshake is over; each is named once.
    pub fn overdue(&mut self, now: Duration) -> Vec<K> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let (mut overdue, mut next) = (Vec::new(), None);
        for (conn, state) in &self.connections {
            match state {
                State::Handshake(until) if *until <= now => overdue.push(*conn),
                State::Handshake(until) => next = Some(next.map_or(*until, |next: Duration| next.min(*until))),
                _ => {}
            }
        }
        overdue.iter().for_each(|conn| self.set(*conn, State::Answering));
        self.look_at = next;
        overdue
    }

    /// When [`Doors::overdue`] is to be asked.
    #[must_use]
    pub fn next_overdue(&self) -> Option<Duration> {
        self.look_at.filter(|_| self.handshakes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut doors = Doors::new(2);
        assert!(doors.connect(1, SECOND) && doors.connect(2, SECOND));
        assert!(!doors.connect(3, SECOND));
        doors.gone(3);
        assert_eq!(doors.len(), 2);
        doors.gone(1);
        assert!(doors.connect(3, SECOND) && !doors.connect(4, SECOND));
    }

    #[test]
    fn only_who_has_to_say_something_is_overdue() {
        let mut doors = Doors::new(10);
        for conn in 1..=3 {
            assert!(doors.connect(conn, SECOND));
        }
        doors.opened(2);
        doors.answering(3);
        assert_eq!(doors.next_overdue(), Some(SECOND + HANDSHAKE_MAX));
        assert!(doors.overdue(HANDSHAKE_MAX).is_empty());
        assert_eq!(doors.overdue(SECOND + HANDSHAKE_MAX), [1]);
        assert!(doors.overdue(2 * HANDSHAKE_MAX).is_empty(), "each is named once");
        doors.gone(1);
        // The client has heard what it waited for, and says nothing more.
        doors.heard(3, 60 * SECOND);
        doors.heard(2, 60 * SECOND);
        assert_eq!(doors.next_overdue(), Some(60 * SECOND + HANDSHAKE_MAX));
        doors.heard(3, 65 * SECOND);
        assert_eq!(doors.overdue(70 * SECOND), [3], "bytes without a wish win no time");
        assert_eq!(doors.next_overdue(), None);
    }
}
