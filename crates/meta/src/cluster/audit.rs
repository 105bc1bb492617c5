//! The audit: a record goes along with each change that somebody asks for (docs/formats/audit.md).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azekura_model::{AUDIT_PREFIX, AUDIT_RECORDS_MAX, AuditRecord, EtcdError, MetaError, Txn, audit_key};
use tokio::time::Instant;

use super::idempotency::Claim;
use super::{MetaClient, OPERATION_TIMEOUT};
use crate::etcd::TxnResponse;

/// Records are counted with the first of a process, and after so many.
const TRIM_EVERY: u64 = 100;

/// What somebody has asked for: its record is written with whatever that changes.
#[derive(Clone, Debug)]
pub struct Deed(Arc<DeedState>);

#[derive(Debug)]
struct DeedState {
    key: String,
    record: AuditRecord,
    /// The revision of its last change; 0 before the first.
    revision: AtomicI64,
    /// It came with a key of its own: nothing is changed once somebody else carries it out.
    claim: OnceLock<Claim>,
}

impl Deed {
    /// Its record.
    #[must_use]
    pub fn record(&self) -> &AuditRecord {
        &self.0.record
    }

    /// What stands behind [`AUDIT_PREFIX`] in its record's key.
    pub(super) fn name(&self) -> &str {
        self.0.key.strip_prefix(AUDIT_PREFIX).unwrap_or_default()
    }

    /// By what nobody else carries it out, if it came with a key.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.0.claim.get()
    }

    /// From here on it changes something only while this claim stands.
    pub(super) fn claimed(&self, claim: Claim) {
        // A request has one key, so there is none before.
        drop(self.0.claim.set(claim));
    }

    /// The revision of the last change that it has made, as far as that is known.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        Some(self.0.revision.load(Ordering::Relaxed)).filter(|revision| *revision > 0)
    }
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// What stands behind [`AUDIT_PREFIX`] in its key.
    pub name: String,
    /// The record.
    pub record: AuditRecord,
    /// The revision of the change.
    pub revision: i64,
}

/// A page of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditPage {
    /// Those that can be read, the oldest first.
    pub records: Vec<Audited>,
    /// The names of those that can't: damaged, or of a version that writes them otherwise.
    pub unreadable: Vec<String>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}

impl MetaClient {
    /// This client on somebody's behalf: each of its changes brings this record along, under the same key.
    #[must_use]
    pub fn run_as(&self, record: AuditRecord) -> (MetaClient, Deed) {
        let random = getrandom::u64().unwrap_or_default();
        let (key, revision) = (audit_key(&record.at, random), AtomicI64::new(0));
        let deed = Deed(Arc::new(DeedState { key, record, revision, claim: OnceLock::new() }));
        (MetaClient { deed: Some(deed.clone()), ..self.clone() }, deed)
    }

    /// Executes a change once, with the record of whoever has asked for it.
    pub(super) async fn change(&self, txn: Txn, wait: Duration) -> Result<TxnResponse, EtcdError> {
        let Some(Deed(deed)) = self.deed.as_ref().filter(|_| !txn.writes().is_empty()) else {
            return self.inner.etcd.txn_within(wait, txn.into()).await;
        };
        let txn = match deed.claim.get() {
            Some(Claim { key, revision }) => txn.when_unchanged(key, *revision),
            None => txn,
        };
        let answer = self.inner.etcd.txn_within(wait, txn.put(&deed.key, &deed.record).into()).await?;
        self.recorded(deed, &answer);
        Ok(answer)
    }

    /// What somebody has asked for is done by something else than a change of the configuration: it has its record all
    /// the same.
    ///
    /// # Errors
    /// When the configuration can't be written.
    pub async fn record_deed(&self) -> Result<(), MetaError> {
        if let Some(Deed(deed)) = &self.deed {
            let answer = self.inner.etcd.txn(Txn::new().put(&deed.key, &deed.record).into()).await?;
            self.recorded(deed, &answer);
        }
        Ok(())
    }

    fn recorded(&self, deed: &DeedState, answer: &TxnResponse) {
        if !answer.succeeded {
            return;
        }
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        let first = deed.revision.swap(revision, Ordering::Relaxed) == 0;
        if first && self.inner.audited.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIM_EVERY) {
            let client = self.clone();
            // If that fails, the next count makes up for it.
            tokio::spawn(async move { drop(client.trim_audit(AUDIT_RECORDS_MAX).await) });
        }
    }

    /// Deletes the oldest records, so that `most` stay. Several nodes may do so at once: each deletes what is older
    /// than the newest that it has counted.
    pub(super) async fn trim_audit(&self, most: usize) -> Result<(), MetaError> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let excess = self.inner.etcd.count(AUDIT_PREFIX, deadline).await?.saturating_sub(most);
        if excess > 0 {
            // Of those that were counted, `most` are not older than this one.
            if let Some(first) = self.inner.etcd.key_at(AUDIT_PREFIX, excess, deadline).await? {
                self.inner.etcd.delete_range(AUDIT_PREFIX, &first).await?;
            }
        }
        Ok(())
    }

    /// At most `limit` records whose keys stand behind `after` (a time, or a record's name).
    pub async fn audit(&self, after: &str, limit: usize) -> Result<AuditPage, MetaError> {
        // The first name that is greater.
        let start = format!("{AUDIT_PREFIX}{after}\0");
        let end = AUDIT_PREFIX.trim_end_matches('/').to_owned() + "0";
        let found = self.inner.etcd.range_page(&start, &end, limit, Instant::now() + OPERATION_TIMEOUT).await?;
        let name = |key: &[u8]| String::from_utf8_lossy(key.get(AUDIT_PREFIX.len()..).unwrap_or_default()).into_owned();
        let next = found.last().filter(|_| found.len() >= limit).map(|kv| name(&kv.key));
        let mut page = AuditPage { next, ..AuditPage::default() };
        for kv in &found {
            let (name, revision) = (name(&kv.key), kv.mod_revision);
            match serde_json::from_slice(&kv.value) {
                Ok(record) => page.records.push(Audited { name, record, revision }),
                Err(_) => page.unreadable.push(name),
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Txn as Sent;
    use crate::cluster::testing::{moves, record, start};
    use azekura_model::audit_time;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_has_its_record_and_what_is_refused_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let (client, deed) = meta.run_as(record(1));
        client.change_settings(moves(0)).await.unwrap_err();
        assert_eq!((deed.revision(), meta.audit("", 9).await.unwrap()), (None, AuditPage::default()));
        client.change_settings(moves(3)).await.unwrap();
        let AuditPage { records: found, next, .. } = meta.audit("", 9).await.unwrap();
        let settings = meta.model_at(deed.revision().unwrap()).await.unwrap().settings.clone().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].record, found[0].revision, next), (&record(1), settings.mod_revision, None));
        assert_eq!(deed.revision(), Some(settings.mod_revision), "it was written by the change itself");
        // Of several changes of one request, the last one counts; nothing that is done already is one.
        client.change_settings(moves(4)).await.unwrap();
        client.change_settings(moves(4)).await.unwrap();
        let again = meta.audit("", 9).await.unwrap().records;
        assert_eq!((again.len(), again[0].revision), (1, deed.revision().unwrap()));
        assert!(again[0].revision > found[0].revision);
        meta.change_settings(moves(5)).await.unwrap();
        assert_eq!(meta.audit("", 9).await.unwrap().records, again, "what nodes do by themselves is nobody's deed");
        assert!(meta.model().keys.keys().all(|key| !key.contains("audit")), "nodes do not keep it");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_record_that_can_not_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let (good, bad) = (audit_key(&audit_time(1, 0), 7), audit_key(&audit_time(2, 0), 7));
        let put = Sent::new().put(&good, azekura_model::encode(&record(1))).put(&bad, b"{}".to_vec());
        meta.inner.etcd.txn(put).await.unwrap();
        let AuditPage { records, unreadable, next } = meta.audit("", 2).await.unwrap();
        assert_eq!((records.len(), unreadable.len()), (1, 1));
        assert_eq!((format!("{AUDIT_PREFIX}{}", unreadable[0]), next.as_deref()), (bad, Some(unreadable[0].as_str())));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_oldest_go_and_pages_have_all() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let all = AUDIT_RECORDS_MAX + 250;
        for part in (0..all as u64).collect::<Vec<_>>().chunks(120) {
            let put = |sent: Sent, second: &u64| {
                sent.put(&audit_key(&audit_time(*second, 0), 7), azekura_model::encode(&record(*second)))
            };
            meta.inner.etcd.txn(part.iter().fold(Sent::new(), put)).await.unwrap();
        }
        // The first change of this process counts.
        let (client, _) = meta.run_as(record(all as u64));
        client.change_settings(moves(3)).await.unwrap();
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        while meta.inner.etcd.count(AUDIT_PREFIX, deadline).await.unwrap() != AUDIT_RECORDS_MAX {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let AuditPage { records, next, .. } = meta.audit(&after, 999).await.unwrap();
            found.extend(records.into_iter().map(|audited| audited.record.at));
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        let kept: Vec<String> = (251..=all as u64).map(|second| audit_time(second, 0)).collect();
        assert_eq!(found, kept);
        let page = meta.audit(&audit_time(all as u64 - 1, 0), 9).await.unwrap().records;
        assert_eq!(page.len(), 2, "from a time on");
        meta.trim_audit(AUDIT_RECORDS_MAX).await.unwrap();
        assert_eq!(meta.inner.etcd.count(AUDIT_PREFIX, deadline).await.unwrap(), AUDIT_RECORDS_MAX);
    }
}
