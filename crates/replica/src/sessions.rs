//! Which writes of which gateway sessions are committed, so that a retried write is applied once.
//!
//! A session keeps the numbers of its unanswered writes within [`REQUESTS_MAX`] of each other, so remembering that
//! many of the latest committed ones is enough. Older numbers than the session's oldest unanswered one are forgotten
//! earlier.

use azekura_base::{RequestId, SessionId};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};

/// Committed writes remembered of one session; a gateway's window must not be larger.
pub(crate) const REQUESTS_MAX: usize = 1024;
/// Sessions remembered by one group; the one that has been quiet for longest goes first.
const SESSIONS_MAX: usize = 128;

#[derive(Debug, Default)]
struct Session {
    committed: BTreeSet<RequestId>,
    /// Requests before this one were answered.
    oldest: RequestId,
    last_used: u64,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    uses: u64,
}

impl Sessions {
    /// Remembers that `request` is committed and that requests before `oldest` will not come again.
    pub(crate) fn committed(&mut self, session: SessionId, request: RequestId, oldest: RequestId) {
        self.uses += 1;
        if !self.sessions.contains_key(&session) && self.sessions.len() == SESSIONS_MAX {
            let quietest = self.sessions.iter().min_by_key(|(_, s)| s.last_used).map(|(id, _)| *id);
            quietest.and_then(|id| self.sessions.remove(&id));
        }
        let entry = self.sessions.entry(session).or_default();
        entry.last_used = self.uses;
        entry.committed.insert(request);
        entry.oldest = entry.oldest.max(oldest);
        let oldest = entry.oldest;
        while entry.committed.first().is_some_and(|first| *first < oldest) || entry.committed.len() > REQUESTS_MAX {
            entry.committed.pop_first();
        }
    }

    pub(crate) fn is_committed(&self, session: SessionId, request: RequestId) -> bool {
        self.sessions.get(&session).is_some_and(|s| s.committed.contains(&request))
    }

    /// True when the session's gateway has had an answer to `request`: this is a duplicate that was long on its way, and
    /// may be older than what others have written since.
    pub(crate) fn is_past(&self, session: SessionId, request: RequestId) -> bool {
        self.sessions.get(&session).is_some_and(|s| request < s.oldest)
    }

    /// Bytes to keep with a checkpoint: count, then for each session its id, its oldest request that may come again, count
    /// and request numbers.
    pub(crate) fn to_note(&self) -> Bytes {
        self.to_note_within(usize::MAX)
    }

    /// As [`Sessions::to_note`], with the sessions that were used last and fit in `bytes`.
    pub(crate) fn to_note_within(&self, bytes: usize) -> Bytes {
        let mut latest: Vec<_> = self.sessions.iter().collect();
        latest.sort_by_key(|(_, session)| std::cmp::Reverse(session.last_used));
        let mut left = bytes.saturating_sub(4);
        latest.retain(|(_, session)| {
            let size = 20 + 8 * session.committed.len();
            let fits = size <= left;
            left -= if fits { size } else { 0 };
            fits
        });
        let mut note = BytesMut::new();
        note.put_u32_le(latest.len() as u32);
        for (id, session) in latest {
            note.put_u64_le(id.0);
            note.put_u64_le(session.oldest.0);
            note.put_u32_le(session.committed.len() as u32);
            session.committed.iter().for_each(|request| note.put_u64_le(request.0));
        }
        note.freeze()
    }

    /// What [`Sessions::to_note`] kept; `None` when the bytes are not such a note.
    pub(crate) fn from_note(mut note: &[u8]) -> Option<Sessions> {
        let mut sessions = Sessions::default();
        if note.is_empty() {
            return Some(sessions);
        }
        let count = note.try_get_u32_le().ok()?;
        for _ in 0..count {
            let id = SessionId(note.try_get_u64_le().ok()?);
            let oldest = RequestId(note.try_get_u64_le().ok()?);
            if sessions.sessions.len() == SESSIONS_MAX {
                return None;
            }
            sessions.uses += 1;
            let last_used = sessions.uses;
            sessions.sessions.insert(id, Session { committed: BTreeSet::new(), oldest, last_used });
            for _ in 0..note.try_get_u32_le().ok()? {
                sessions.committed(id, RequestId(note.try_get_u64_le().ok()?), RequestId(0));
            }
        }
        note.is_empty().then_some(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forgets_only_what_will_not_come_again() {
        let mut sessions = Sessions::default();
        (1..=10).for_each(|n| sessions.committed(SessionId(1), RequestId(n), RequestId(4)));
        assert!(!sessions.is_committed(SessionId(1), RequestId(3)));
        assert!((4..=10).all(|n| sessions.is_committed(SessionId(1), RequestId(n))));
        assert!(!sessions.is_committed(SessionId(2), RequestId(5)));
    }

    #[test]
    fn what_was_answered_is_past_even_after_a_checkpoint() {
        let mut sessions = Sessions::default();
        (1..=10).for_each(|n| sessions.committed(SessionId(1), RequestId(n), RequestId(n - n % 4)));
        let back = Sessions::from_note(&sessions.to_note()).unwrap();
        for sessions in [sessions, back] {
            assert!(sessions.is_past(SessionId(1), RequestId(7)) && !sessions.is_past(SessionId(1), RequestId(8)));
            assert!(!sessions.is_past(SessionId(2), RequestId(1)));
        }
    }

    #[test]
    fn the_quietest_session_goes_first() {
        let mut sessions = Sessions::default();
        (0..SESSIONS_MAX as u64).for_each(|n| sessions.committed(SessionId(n), RequestId(1), RequestId(1)));
        sessions.committed(SessionId(0), RequestId(2), RequestId(1));
        sessions.committed(SessionId(1 << 40), RequestId(1), RequestId(1));
        assert!(sessions.is_committed(SessionId(0), RequestId(1)));
        assert!(!sessions.is_committed(SessionId(1), RequestId(1)));
    }

    proptest! {
        #[test]
        fn a_note_comes_back_whole(ids in proptest::collection::vec((0u64..5, any::<u64>()), 0..100)) {
            let mut sessions = Sessions::default();
            ids.iter().for_each(|(s, r)| sessions.committed(SessionId(*s), RequestId(*r), RequestId(0)));
            let back = Sessions::from_note(&sessions.to_note()).unwrap();
            prop_assert!(ids.iter().all(|(s, r)| back.is_committed(SessionId(*s), RequestId(*r))));
        }

        #[test]
        fn a_damaged_note_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Sessions::from_note(&bytes);
        }
    }
}
