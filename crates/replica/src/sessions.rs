//! Which writes of which gateways are committed, so that a retried write is applied once.
//!
//! A gateway numbers its writes to a group from 1 and keeps those without an answer within [`WINDOW`] of each other, so
//! a group need remember no more than [`WINDOW`] numbers (decision 0004). A session is a process of a node: when a
//! later process of the node has written, the earlier one has ended, and what still comes from the earlier one is
//! refused. So a group remembers one session for each node that has ever written to it, and forgets none by age or by
//! number (decision 0018).

use azekura_base::{NodeId, RequestId, SessionId};
use azekura_wire::NOTE_SIZE_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Numbers of a session's unanswered writes lie within this many of each other.
pub(crate) const WINDOW: u64 = 1024;
/// Nodes whose sessions one group remembers; writes of further nodes are asked to come again.
const SESSIONS_MAX: usize = 4096;
/// The layout of a note.
const NOTE_VERSION: u8 = 2;
/// Bytes of a note before the first session.
const NOTE_HEAD: usize = 5;
/// Bytes of one session in a note at most.
const NOTE_SESSION_MAX: usize = 17 + 8 * WORDS_MAX;
/// Words of 64 numbers that the window may touch.
const WORDS_MAX: usize = WINDOW as usize / 64 + 1;

// Each write of the tail may be the first of another node.
const _: () = assert!(NOTE_HEAD + (SESSIONS_MAX + crate::PENDING_WRITES_MAX) * NOTE_SESSION_MAX <= NOTE_SIZE_MAX);

#[derive(Debug)]
struct Session {
    id: SessionId,
    /// Writes before this one were answered, or given up.
    oldest: u64,
    /// A bit for each committed number, from the word that `oldest` is in.
    words: VecDeque<u64>,
}

impl Session {
    fn new(id: SessionId) -> Session {
        Session { id, oldest: 0, words: VecDeque::new() }
    }

    /// Writes before `oldest` will not come again.
    fn raise(&mut self, oldest: u64) {
        if oldest > self.oldest {
            let words = (oldest / 64 - self.oldest / 64).min(self.words.len() as u64);
            self.words.drain(..words as usize);
            self.oldest = oldest;
        }
    }

    fn committed(&mut self, number: u64, oldest: u64) {
        self.raise(oldest.min(number).max(number.saturating_sub(WINDOW - 1)));
        if number >= self.oldest {
            let word = (number / 64 - self.oldest / 64) as usize;
            self.words.resize(self.words.len().max(word + 1), 0);
            self.words[word] |= 1 << (number % 64);
        }
    }

    fn has(&self, number: u64) -> bool {
        let word = (number / 64).checked_sub(self.oldest / 64).and_then(|word| self.words.get(word as usize));
        number >= self.oldest && word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<NodeId, Session>,
}

impl Sessions {
    /// Remembers that `request` is committed and that requests before `oldest` will not come again.
    pub(crate) fn committed(&mut self, session: SessionId, request: RequestId, oldest: RequestId) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_sessions() {
            self.sessions.retain(|node, _| *node == session.node());
        }
        let entry = self.sessions.entry(session.node()).or_insert_with(|| Session::new(session));
        if entry.id < session {
            *entry = Session::new(session);
        }
        if entry.id == session {
            entry.committed(request.0, oldest.0);
        }
    }

    /// The session's gateway says that nobody waits for writes before `oldest`.
    pub(crate) fn heard(&mut self, session: SessionId, oldest: RequestId) {
        if let Some(entry) = self.sessions.get_mut(&session.node()).filter(|entry| entry.id == session) {
            entry.raise(oldest.0);
        }
    }

    fn get(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session.node()).filter(|entry| entry.id == session)
    }

    pub(crate) fn is_committed(&self, session: SessionId, request: RequestId) -> bool {
        self.get(session).is_some_and(|entry| entry.has(request.0))
    }

    /// True when the session's gateway has had an answer to `request`, or has given it up: this is a duplicate that was
    /// long on its way, and may be older than what others have written since.
    pub(crate) fn is_past(&self, session: SessionId, request: RequestId) -> bool {
        self.get(session).is_some_and(|entry| request.0 < entry.oldest)
    }

    /// True when a later process of the session's node has written: this one has ended.
    pub(crate) fn has_ended(&self, session: SessionId) -> bool {
        self.sessions.get(&session.node()).is_some_and(|entry| session < entry.id)
    }

    /// True when the session's writes can be remembered.
    pub(crate) fn has_room_for(&self, session: SessionId) -> bool {
        self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&session.node())
    }

    /// Bytes to keep with a checkpoint, and for a copy that learns (docs/formats/map.md): at most [`NOTE_SIZE_MAX`].
    pub(crate) fn to_note(&self) -> Bytes {
        let mut note = BytesMut::with_capacity(NOTE_HEAD + self.sessions.len() * 33);
        note.put_u8(NOTE_VERSION);
        note.put_u32_le(self.sessions.len() as u32);
        for session in self.sessions.values() {
            note.put_u64_le(session.id.0);
            note.put_u64_le(session.oldest);
            note.put_u8(session.words.len() as u8);
            session.words.iter().for_each(|word| note.put_u64_le(*word));
        }
        note.freeze()
    }

    /// What [`Sessions::to_note`] kept; `None` when the bytes are not such a note.
    pub(crate) fn from_note(mut note: &[u8]) -> Option<Sessions> {
        let mut sessions = Sessions::default();
        if note.is_empty() {
            return Some(sessions);
        }
        if note.try_get_u8().ok()? != NOTE_VERSION {
            return None;
        }
        for _ in 0..note.try_get_u32_le().ok()? {
            let id = SessionId(note.try_get_u64_le().ok()?);
            let oldest = note.try_get_u64_le().ok()?;
            let count = usize::from(note.try_get_u8().ok()?);
            if count > WORDS_MAX {
                return None;
            }
            let words: Option<VecDeque<u64>> = (0..count).map(|_| note.try_get_u64_le().ok()).collect();
            sessions.sessions.insert(id.node(), Session { id, oldest, words: words? });
        }
        note.is_empty().then_some(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn session(node: u32, incarnation: u64) -> SessionId {
        SessionId::new(NodeId(node), incarnation)
    }

    #[test]
    fn forgets_only_what_will_not_come_again() {
        let (mut sessions, one) = (Sessions::default(), session(1, 1));
        (1..=10).for_each(|n| sessions.committed(one, RequestId(n), RequestId(4)));
        assert!(!sessions.is_committed(one, RequestId(3)));
        assert!((4..=10).all(|n| sessions.is_committed(one, RequestId(n))));
        assert!(!sessions.is_committed(session(2, 1), RequestId(5)));
    }

    #[test]
    fn what_was_answered_is_past_even_after_a_checkpoint() {
        let (mut sessions, one) = (Sessions::default(), session(1, 1));
        (1..=10).for_each(|n| sessions.committed(one, RequestId(n), RequestId(n - n % 4)));
        let back = Sessions::from_note(&sessions.to_note()).unwrap();
        for mut sessions in [sessions, back] {
            assert!(sessions.is_past(one, RequestId(7)) && !sessions.is_past(one, RequestId(8)));
            assert!(!sessions.is_past(session(2, 1), RequestId(1)));
            sessions.heard(one, RequestId(10));
            assert!(sessions.is_past(one, RequestId(9)) && sessions.is_committed(one, RequestId(10)));
        }
    }

    #[test]
    fn no_number_of_other_gateways_makes_one_forgotten() {
        let mut sessions = Sessions::default();
        for node in 0..SESSIONS_MAX as u32 {
            assert!(sessions.has_room_for(session(node, 1)));
            sessions.committed(session(node, 1), RequestId(9), RequestId(7));
        }
        let full = (0..2000).map(|n| (session(5, 1), RequestId(10 + n)));
        full.for_each(|(session, request)| sessions.committed(session, request, request));
        assert!(!sessions.has_room_for(session(1 << 20, 1)) && sessions.has_room_for(session(5, 2)));
        let back = Sessions::from_note(&sessions.to_note()).unwrap();
        for sessions in [sessions, back] {
            assert!(sessions.is_committed(session(0, 1), RequestId(9)));
            assert!(sessions.is_past(session(0, 1), RequestId(6)));
        }
    }

    #[test]
    fn a_later_process_ends_the_earlier_ones_of_its_node() {
        let mut sessions = Sessions::default();
        sessions.committed(session(1, 4), RequestId(9), RequestId(9));
        sessions.committed(session(1, 5), RequestId(1), RequestId(1));
        sessions.committed(session(1, 4), RequestId(10), RequestId(9));
        assert!(sessions.has_ended(session(1, 4)) && !sessions.has_ended(session(1, 5)));
        assert!(!sessions.has_ended(session(2, 1)));
        assert!(sessions.is_committed(session(1, 5), RequestId(1)) && !sessions.is_past(session(1, 5), RequestId(9)));
    }

    proptest! {
        /// Against a set of numbers: whatever the order of commits inside the window.
        #[test]
        fn numbers_in_the_window_are_known_exactly(picks in proptest::collection::vec(0usize..40, 0..3000)) {
            let (mut sessions, one) = (Sessions::default(), session(1, 1));
            let (mut last, mut unanswered, mut all) = (0, BTreeSet::new(), BTreeSet::new());
            for pick in picks {
                while unanswered.len() < 40 && unanswered.first().is_none_or(|first| last + 1 - first < WINDOW) {
                    last += 1;
                    unanswered.insert(last);
                }
                // Mostly the latest, so that the oldest stays behind.
                let at = unanswered.len() - 1 - pick.min(unanswered.len() - 1);
                let number = *unanswered.iter().nth(at).unwrap();
                let oldest = *unanswered.first().unwrap();
                sessions.committed(one, RequestId(number), RequestId(oldest));
                unanswered.remove(&number);
                all.insert(number);
            }
            let back = Sessions::from_note(&sessions.to_note()).unwrap();
            for sessions in [sessions, back] {
                for number in unanswered.iter().copied().chain(last + 1..last + 100) {
                    prop_assert!(!sessions.is_committed(one, RequestId(number)));
                    prop_assert!(!sessions.is_past(one, RequestId(number)), "{} is not answered", number);
                }
                for number in all.iter().copied() {
                    let (id, oldest) = (RequestId(number), unanswered.first().copied().unwrap_or(last));
                    prop_assert!(sessions.is_committed(one, id) || (number < oldest && sessions.is_past(one, id)));
                }
            }
        }

        #[test]
        fn a_note_comes_back_whole(ids in proptest::collection::vec((0u32..5, 0u64..1000), 0..100)) {
            let mut sessions = Sessions::default();
            ids.iter().for_each(|(s, r)| sessions.committed(session(*s, 1), RequestId(*r), RequestId(0)));
            let back = Sessions::from_note(&sessions.to_note()).unwrap();
            prop_assert!(ids.iter().all(|(s, r)| back.is_committed(session(*s, 1), RequestId(*r))));
            prop_assert_eq!(back.to_note(), sessions.to_note());
        }

        #[test]
        fn a_damaged_note_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), n in any::<u64>()) {
            let bytes = [&[NOTE_VERSION, 1, 0, 0, 0], &bytes[..]].concat();
            if let Some(mut sessions) = Sessions::from_note(&bytes) {
                let Some(id) = sessions.sessions.values().next().map(|session| session.id) else { return Ok(()) };
                sessions.committed(id, RequestId(n), RequestId(n / 2));
                let _ = (sessions.is_committed(id, RequestId(n)), sessions.is_past(id, RequestId(n)));
            }
        }
    }
}
