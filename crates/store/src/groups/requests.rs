//! Who asked for the writes that replay has committed, until the replication layer gives a note that names them.
//!
//! A crash may come before that note. So each checkpoint keeps the names: replay, which begins behind it, does not find
//! the writes any more, and a gateway may ask for one of them again.

use crate::checkpoint::Reader;
use azekura_base::{RequestId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Of each session the requests are named that lie less than this below its highest: a gateway's unanswered writes to a
/// group lie closer together (decision 0004), so the others will not come again.
pub const REPLAYED_REQUESTS_MAX: u64 = 1024;

const WORDS_MAX: usize = REPLAYED_REQUESTS_MAX as usize / 64;

/// See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    sessions: BTreeMap<SessionId, BTreeSet<RequestId>>,
}

impl Requests {
    /// Names a committed write.
    pub fn committed(&mut self, session: SessionId, request: RequestId) {
        let requests = self.sessions.entry(session).or_default();
        requests.insert(request);
        let highest = requests.last().map_or(0, |last| last.0);
        let lowest = RequestId((highest + 1).saturating_sub(REPLAYED_REQUESTS_MAX));
        while requests.first().is_some_and(|first| *first < lowest) {
            requests.pop_first();
        }
    }

    /// All names: by session, then by number.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, RequestId)> + '_ {
        self.sessions.iter().flat_map(|(session, requests)| requests.iter().map(|request| (*session, *request)))
    }

    /// Forgets all: a note names them.
    pub fn clear(&mut self) {
        self.sessions.clear();
    }

    /// The names as they are saved (docs/formats/map.md, "Root").
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.sessions.len() as u64).to_le_bytes());
        for (session, requests) in &self.sessions {
            let first = requests.first().map_or(0, |first| first.0);
            let mut words = Vec::new();
            for request in requests {
                let at = (request.0 - first) as usize;
                words.resize(words.len().max(at / 64 + 1), 0u64);
                words[at / 64] |= 1 << (at % 64);
            }
            for word in [session.0, first, words.len() as u64].iter().chain(&words) {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
}

impl Requests {
    /// What [`Requests::encode`] wrote; `None` when it is too short or names more than a session can have.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Requests> {
        let mut requests = Requests::default();
        for _ in 0..reader.u64()? {
            let (session, first) = (SessionId(reader.u64()?), reader.u64()?);
            let words = usize::try_from(reader.u64()?).ok().filter(|words| *words <= WORDS_MAX)?;
            for word in 0..words as u64 {
                let bits = reader.u64()?;
                for bit in (0..64).filter(|bit| bits & (1 << bit) != 0) {
                    requests.committed(session, RequestId(first.checked_add(word * 64 + bit)?));
                }
            }
        }
        Some(requests)
    }
}
