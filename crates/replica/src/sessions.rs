//! Which writes of which gateways are committed, so that a retried write is applied once.
//!
//! A gateway numbers its writes to a group from 1 and keeps those without an answer within [`WINDOW`] of each other, so
//! a group need remember no more than [`WINDOW`] numbers (decision 0004). A session is one shard's gateway in a
//! process of a node: when a later process of the node has written, through whichever shard, the earlier one has
//! ended, and what still comes from the earlier one is refused. So a group remembers one session for each shard of the
//! latest process of each node, and forgets none by age or by number (decision 0018).
//!
//! Sessions of a node that has left the cluster for good are forgotten, and what still comes from that node is refused.
//! Whoever orders writes knows the configuration up to its own claim at least. What such a copy has forgotten, its
//! process forgot by itself; what its former process forgot, or the primary that brought the copy up to date, was gone
//! by an earlier revision than the claim's. So the copy knows of every node of which sessions are missing here, and
//! orders nothing of such a node (0018).

use crate::roll::NodeRoll;
use azekura_base::{Endpoint, RequestId, SessionId, Shard};
use azekura_wire::NOTE_SIZE_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Numbers of a session's unanswered writes lie within this many of each other.
pub(crate) const WINDOW: u64 = 1024;
/// Shards of nodes whose sessions one group remembers; writes of further ones are asked to come again.
pub const SESSIONS_MAX: usize = 4096;
/// The layout of a note.
const NOTE_VERSION: u8 = 2;
/// Bytes of a note before the first session.
const NOTE_HEAD: usize = 5;
/// Bytes of one session in a note at most.
const NOTE_SESSION_MAX: usize = 17 + 8 * WORDS_MAX;
/// Words of 64 numbers that the window may touch.
const WORDS_MAX: usize = WINDOW as usize / 64 + 1;

// Each write of the tail may be the first of another shard.
const _: () =
    assert!(NOTE_HEAD + (SESSIONS_MAX + crate::limits::PENDING_WRITES_MAX) * NOTE_SESSION_MAX <= NOTE_SIZE_MAX);

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
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: BTreeMap<Endpoint, Session>,
    /// So many are remembered.
    limit: usize,
    roll: Arc<NodeRoll>,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { sessions: BTreeMap::new(), limit: SESSIONS_MAX, roll: Arc::default() }
    }
}

impl Sessions {
    /// Remembers so many, and no more than [`SESSIONS_MAX`].
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(SESSIONS_MAX);
    }

    /// Forgets the sessions of nodes that are gone, from now on.
    pub(crate) fn follow(&mut self, roll: Arc<NodeRoll>) {
        self.roll = roll;
        let roll = &self.roll;
        self.sessions.retain(|endpoint, _| !roll.is_gone(endpoint.node));
    }

    /// What `other` remembers, instead of what is remembered here.
    pub(crate) fn replace(&mut self, other: Sessions) {
        self.sessions = other.sessions;
        self.follow(self.roll.clone());
    }

    /// How many are remembered.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Remembers that `request` is committed and that requests before `oldest` will not come again.
    pub(crate) fn committed(&mut self, session: SessionId, request: RequestId, oldest: RequestId) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_sessions() {
            self.sessions.retain(|endpoint, _| *endpoint == session.endpoint());
        }
        if let Some(entry) = self.get_mut(session) {
            entry.committed(request.0, oldest.0);
        } else if !self.has_ended(session) {
            self.end_before(session);
            let entry = self.sessions.entry(session.endpoint()).or_insert_with(|| Session::new(session));
            entry.committed(request.0, oldest.0);
        }
    }

    /// A session has begun: earlier processes of its node have ended.
    fn end_before(&mut self, session: SessionId) {
        let is_before = |entry: &Session| entry.id.incarnation() < session.incarnation();
        let ended = self.sessions.range(shards_of(session)).filter(|(_, entry)| is_before(entry));
        let ended: Vec<Endpoint> = ended.map(|(endpoint, _)| *endpoint).collect();
        ended.iter().for_each(|endpoint| drop(self.sessions.remove(endpoint)));
    }

    /// The session's gateway says that nobody waits for writes before `oldest`.
    pub(crate) fn heard(&mut self, session: SessionId, oldest: RequestId) {
        if let Some(entry) = self.get_mut(session) {
            entry.raise(oldest.0);
        }
    }

    fn get(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session.endpoint()).filter(|entry| entry.id == session)
    }

    fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&session.endpoint()).filter(|entry| entry.id == session)
    }

    /// The sessions of a session's node.
    fn of_node(&self, session: SessionId) -> impl Iterator<Item = &Session> {
        self.sessions.range(shards_of(session)).map(|(_, entry)| entry)
    }

    pub(crate) fn is_committed(&self, session: SessionId, request: RequestId) -> bool {
        self.get(session).is_some_and(|entry| entry.has(request.0))
    }

    /// True when the session's gateway has had an answer to `request`, or has given it up: the write is a duplicate
    /// that was long on its way, and may be older than what others have written since.
    pub(crate) fn is_past(&self, session: SessionId, request: RequestId) -> bool {
        self.get(session).is_some_and(|entry| request.0 < entry.oldest)
    }

    /// True when a later process of the session's node has written, or the node is gone: this session has ended.
    pub(crate) fn has_ended(&self, session: SessionId) -> bool {
        self.is_gone(session) || self.of_node(session).any(|entry| session.incarnation() < entry.id.incarnation())
    }

    /// True when the session's node has left the cluster.
    fn is_gone(&self, session: SessionId) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::lets_the_gone_write() {
            return false;
        }
        self.roll.is_gone(session.endpoint().node)
    }

    /// True when the session's writes can be remembered.
    pub(crate) fn has_room_for(&self, session: SessionId) -> bool {
        let replaces = |entry: &Session| entry.id == session || entry.id.incarnation() < session.incarnation();
        self.sessions.len() < self.limit || self.of_node(session).any(replaces)
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
            sessions.sessions.insert(id.endpoint(), Session { id, oldest, words: words? });
        }
        note.is_empty().then_some(sessions)
    }
}

/// All shards of the session's node.
fn shards_of(session: SessionId) -> RangeInclusive<Endpoint> {
    let node = session.endpoint().node;
    Endpoint { node, shard: Shard(0) }..=Endpoint { node, shard: Shard(u8::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::NodeId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn session(node: u32, incarnation: u64) -> SessionId {
        session_of(node, 0, incarnation)
    }

    fn session_of(node: u32, shard: u8, incarnation: u64) -> SessionId {
        SessionId::new(Endpoint { node: NodeId(node), shard: Shard(shard) }, incarnation)
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

    #[test]
    fn shards_of_one_process_are_remembered_side_by_side() {
        let (first, second) = (session_of(1, 0, 4), session_of(1, 1, 4));
        let mut sessions = Sessions::default();
        sessions.committed(second, RequestId(1), RequestId(1));
        sessions.committed(first, RequestId(9), RequestId(9));
        let back = Sessions::from_note(&sessions.to_note()).unwrap();
        for sessions in [sessions, back] {
            assert!(sessions.is_committed(second, RequestId(1)) && !sessions.is_past(second, RequestId(8)));
            assert!(sessions.is_committed(first, RequestId(9)) && !sessions.is_committed(first, RequestId(1)));
            assert!(!sessions.has_ended(first) && !sessions.has_ended(second));
        }
    }

    #[test]
    fn a_later_process_ends_the_earlier_ones_of_all_shards() {
        let mut sessions = Sessions::default();
        (0..4).for_each(|shard| sessions.committed(session_of(1, shard, 4), RequestId(9), RequestId(9)));
        sessions.committed(session_of(2, 1, 4), RequestId(9), RequestId(9));
        // The node has fewer shards now.
        sessions.committed(session_of(1, 0, 5), RequestId(1), RequestId(1));
        sessions.committed(session_of(1, 3, 4), RequestId(10), RequestId(9));
        assert!((0..4).all(|shard| sessions.has_ended(session_of(1, shard, 4))));
        assert!(!sessions.has_ended(session_of(1, 3, 5)) && !sessions.has_ended(session_of(2, 1, 4)));
        assert_eq!(sessions.sessions.len(), 2, "the rest can't come again");
    }

    #[test]
    fn shards_count_against_the_limit_and_make_room_for_the_next_process() {
        let mut sessions = Sessions::default();
        for node in 0..SESSIONS_MAX as u32 / 4 {
            (0..4).for_each(|shard| sessions.committed(session_of(node, shard, 1), RequestId(1), RequestId(1)));
        }
        assert!(sessions.has_room_for(session_of(5, 3, 1)) && !sessions.has_room_for(session_of(5, 4, 1)));
        assert!(!sessions.has_room_for(session_of(1 << 20, 0, 1)) && sessions.has_room_for(session_of(5, 7, 2)));
        assert!(sessions.to_note().len() <= NOTE_SIZE_MAX);
    }

    fn roll(next: u64, nodes: &[u32]) -> Arc<NodeRoll> {
        Arc::new(NodeRoll::new(next, nodes.iter().copied().map(NodeId).collect()))
    }

    #[test]
    fn who_has_left_the_cluster_is_forgotten_and_not_learnt_anew() {
        let mut sessions = Sessions::default();
        let note_of_another = {
            (1..4).for_each(|node| sessions.committed(session(node, 7), RequestId(9), RequestId(9)));
            sessions.to_note()
        };
        sessions.follow(roll(4, &[1, 3]));
        assert_eq!(sessions.count(), 2);
        // What a write of its in the log would make known, and what another copy knows.
        sessions.committed(session(2, 7), RequestId(10), RequestId(9));
        sessions.committed(session(2, 8), RequestId(1), RequestId(1));
        assert_eq!(sessions.count(), 2);
        sessions.replace(Sessions::from_note(&note_of_another).unwrap());
        assert_eq!(sessions.count(), 2);
        assert!(sessions.has_ended(session(2, 7)) && sessions.has_ended(session(2, 8)));
        assert!(!sessions.has_ended(session(1, 7)) && sessions.is_committed(session(3, 7), RequestId(9)));
    }

    #[test]
    fn who_is_not_known_yet_has_not_left() {
        let mut sessions = Sessions::default();
        sessions.follow(roll(4, &[1, 3]));
        sessions.committed(session(4, 1), RequestId(9), RequestId(9));
        sessions.follow(roll(4, &[1]));
        assert!(!sessions.has_ended(session(4, 1)) && sessions.is_committed(session(4, 1), RequestId(9)));
        sessions.follow(roll(5, &[1, 4]));
        assert!(sessions.is_committed(session(4, 1), RequestId(9)));
    }

    #[test]
    fn who_leaves_makes_room() {
        let mut sessions = Sessions::default();
        sessions.set_limit(3);
        sessions.follow(roll(5, &[1, 2, 3, 4]));
        (1..4).for_each(|node| sessions.committed(session(node, 1), RequestId(1), RequestId(1)));
        assert!(!sessions.has_room_for(session(4, 1)) && sessions.has_room_for(session(3, 2)));
        sessions.follow(roll(5, &[1, 3, 4]));
        assert!(sessions.has_room_for(session(4, 1)));
        sessions.replace(Sessions::from_note(&sessions.to_note()).unwrap());
        sessions.committed(session(4, 1), RequestId(1), RequestId(1));
        assert!(!sessions.has_room_for(session(5, 1)), "the limit stays");
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
                // Mostly the latest write is answered, so that the oldest stays behind.
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
        fn a_note_comes_back_whole(ids in proptest::collection::vec((0u32..5, 0u8..3, 0u64..1000), 0..100)) {
            let mut sessions = Sessions::default();
            let ids: Vec<_> = ids.into_iter().map(|(n, s, r)| (session_of(n, s, 1), RequestId(r))).collect();
            ids.iter().for_each(|(session, request)| sessions.committed(*session, *request, RequestId(0)));
            let back = Sessions::from_note(&sessions.to_note()).unwrap();
            prop_assert!(ids.iter().all(|(session, request)| back.is_committed(*session, *request)));
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
