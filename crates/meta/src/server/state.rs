//! The server's memory image: the newest version of every key, a bounded history of changes, and how to read both.
//!
//! A revision counts transactions that changed something, as in etcd; all changes of a transaction share it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::error::RequestError;
use super::limits::HISTORY_CHANGES_MAX;
use super::range::KeyRange;
use crate::etcd::{Event, EventType, KeyValue, RangeRequest, RangeResponse, ResponseHeader, SortOrder, SortTarget};

/// One change of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Revision of the transaction.
    pub revision: i64,
    /// Position inside the transaction.
    pub position: u32,
    /// The key.
    pub key: Vec<u8>,
    /// The key-value after the change; `None`: deleted.
    pub after: Option<Arc<KeyValue>>,
    /// The key-value before it; `None`: there was none.
    pub before: Option<Arc<KeyValue>>,
}

impl Change {
    /// The change as etcd's event.
    #[must_use]
    pub fn event(&self, with_before: bool) -> Event {
        let (kind, kv) = match &self.after {
            Some(kv) => (EventType::Put, KeyValue::clone(kv)),
            None => {
                let kv = KeyValue { key: self.key.clone(), mod_revision: self.revision, ..KeyValue::default() };
                (EventType::Delete, kv)
            }
        };
        let prev_kv = if with_before { self.before.as_deref().cloned() } else { None };
        Event { r#type: kind.into(), kv: Some(kv), prev_kv }
    }
}

/// The memory image.
#[derive(Debug, Default)]
pub struct State {
    /// Names this server in every answer.
    pub cluster_id: u64,
    /// The newest revision; 1 before the first change.
    pub revision: i64,
    /// History before this revision is gone.
    pub compacted: i64,
    /// The newest version of every key.
    pub keys: BTreeMap<Vec<u8>, Arc<KeyValue>>,
    /// Changes at [`State::compacted`] and later, oldest first.
    pub history: VecDeque<Arc<Change>>,
    /// Set when the database failed: this image is then ahead of the disk, and nothing is answered from it.
    pub failure: Option<String>,
}

impl State {
    /// The header of an answer made now.
    #[must_use]
    pub fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.cluster_id ^ 1,
            revision: self.revision,
            raft_term: 1,
        })
    }

    /// An error when the database has failed.
    pub fn check_failure(&self) -> Result<(), RequestError> {
        self.failure.as_ref().map_or(Ok(()), |why| Err(RequestError::Failed(why.clone())))
    }

    /// The newest key-values of a range, ascending by key.
    pub fn scan<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<KeyValue>> + 'a {
        range.bounds().into_iter().flat_map(|bounds| self.keys.range::<[u8], _>(bounds)).map(|(_, kv)| kv)
    }

    /// The key-values of a range as they were at `revision`, ascending by key.
    fn scan_at(&self, range: &KeyRange, revision: i64) -> Result<Vec<Arc<KeyValue>>, RequestError> {
        if revision > self.revision {
            return Err(RequestError::FutureRevision);
        }
        if revision < self.compacted {
            return Err(RequestError::Compacted);
        }
        let mut keys: BTreeMap<&[u8], &Arc<KeyValue>> = self.scan(range).map(|kv| (kv.key.as_slice(), kv)).collect();
        for change in self.history.iter().rev().take_while(|change| change.revision > revision) {
            if !range.contains(&change.key) {
                continue;
            }
            match &change.before {
                Some(kv) => keys.insert(&change.key, kv),
                None => keys.remove(change.key.as_slice()),
            };
        }
        Ok(keys.into_values().cloned().collect())
    }

    /// Answers a range request (etcd API, "Range").
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, RequestError> {
        if request.key.is_empty() {
            return Err(RequestError::EmptyKey);
        }
        self.check_failure()?;
        let range = KeyRange::new(request.key.clone(), request.range_end.clone());
        let mut found: Vec<Arc<KeyValue>> = if request.revision > 0 && request.revision != self.revision {
            self.scan_at(&range, request.revision)?
        } else {
            self.scan(&range).cloned().collect()
        };
        let count = found.len() as i64;
        if request.count_only {
            return Ok(RangeResponse { header: self.header(), kvs: Vec::new(), more: false, count });
        }
        let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
        found.retain(|kv| {
            within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
                && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
        });
        match request.sort_target() {
            SortTarget::Key => {}
            SortTarget::Version => found.sort_by_key(|kv| kv.version),
            SortTarget::Create => found.sort_by_key(|kv| kv.create_revision),
            SortTarget::Mod => found.sort_by_key(|kv| kv.mod_revision),
            SortTarget::Value => found.sort_by(|a, b| a.value.cmp(&b.value)),
        }
        if request.sort_order() == SortOrder::Descend {
            found.reverse();
        }
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let kvs = found
            .iter()
            .map(|kv| {
                let mut kv = KeyValue::clone(kv);
                if request.keys_only {
                    kv.value.clear();
                }
                kv
            })
            .collect();
        Ok(RangeResponse { header: self.header(), kvs, more, count })
    }

    /// The changes at `revision` and later, oldest first.
    pub fn changes_from(&self, revision: i64) -> Result<impl Iterator<Item = &Arc<Change>> + '_, RequestError> {
        self.check_failure()?;
        if revision < self.compacted {
            return Err(RequestError::Compacted);
        }
        let start = self.history.partition_point(|change| change.revision < revision);
        Ok(self.history.range(start..))
    }

    /// Drops history before `revision`.
    pub fn compact(&mut self, revision: i64) -> Result<(), RequestError> {
        if revision <= self.compacted {
            return Err(RequestError::Compacted);
        }
        if revision > self.revision {
            return Err(RequestError::FutureRevision);
        }
        self.compacted = revision;
        let keep = self.history.partition_point(|change| change.revision < revision);
        self.history.drain(..keep);
        Ok(())
    }

    /// The revision to compact to when the history has grown an eighth beyond its bound.
    #[must_use]
    pub fn compaction_due(&self) -> Option<i64> {
        if self.history.len() <= HISTORY_CHANGES_MAX + HISTORY_CHANGES_MAX / 8 {
            return None;
        }
        let revision = self.history[self.history.len() - HISTORY_CHANGES_MAX].revision;
        (revision > self.compacted).then_some(revision)
    }
}
