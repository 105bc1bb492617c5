//! Requests that may be sent again (docs/formats/idempotency.md): one that comes with a key is carried out once, and
//! whoever sends it again is told what was answered.
//!
//! A request claims its key before it is carried out, and each of its changes is made on the condition that the claim
//! stands. So when its node is too slow and another one has taken the key over, nothing of the first is applied.

use std::sync::atomic::Ordering;

use azekura_model::{
    AUDIT_PREFIX, EtcdError, IDEMPOTENCY_PREFIX, IDEMPOTENCY_RECORDS_MAX, IdempotencyRecord, KeptAnswer, KeyValue,
    MetaError, Txn, idempotency_end, idempotency_keys,
};
use tokio::time::Instant;

use super::{Attempt, Deed, MetaClient, OPERATION_TIMEOUT, Try};
use crate::etcd::TxnResponse;
use crate::time::unix_seconds;

/// So long a request may be carried out before another node may do so in its place, seconds: longer than any handler's
/// own patience.
const CLAIM_SECONDS: u64 = 40;
/// Records are counted with the first of a process, and after so many.
const TRIM_EVERY: u64 = 100;

/// A record of a request that is being carried out.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) key: String,
    /// As long as the record has this `mod_revision`, nobody else carries the request out.
    pub(super) revision: i64,
}

/// What is known of a request by its key.
#[derive(Clone, Debug, PartialEq)]
pub enum Claimed {
    /// It is to be carried out.
    Mine,
    /// Something else was asked with this key.
    Other(IdempotencyRecord),
    /// It is being carried out, or it was and its node has ended: not to be carried out by anybody else yet.
    Pending(IdempotencyRecord),
    /// It has changed something, and its node has ended before it answered.
    Unanswered(IdempotencyRecord),
    /// It was carried out.
    Answered(IdempotencyRecord, KeptAnswer),
    /// Its record can't be read: damaged, or of a version that writes it otherwise.
    Unreadable,
    /// There are too many such requests.
    Full,
}

/// What came of an attempt to claim.
enum Outcome {
    Claimed(Claim),
    Not(Box<Claimed>),
}

impl MetaClient {
    /// Claims the key whose hash is `hash` for what `deed` has asked: `asked` is the hash of that. `repeats`: what has
    /// changed something and was not answered may be carried out once more.
    ///
    /// # Errors
    /// When the configuration can't be reached.
    pub async fn claim(&self, deed: &Deed, hash: &str, asked: &str, repeats: bool) -> Result<Claimed, MetaError> {
        if !self.make_room().await? {
            return Ok(Claimed::Full);
        }
        let record = deed.record();
        let (now, audit) = (unix_seconds(), deed.name().to_owned());
        let record = &IdempotencyRecord {
            asked: asked.to_owned(),
            operation: record.operation.clone(),
            who: record.who.clone(),
            node: record.node.clone(),
            at: record.at.clone(),
            until: now + CLAIM_SECONDS,
            audit,
            answer: None,
            unknown: azekura_model::Unknown::default(),
        };
        let keys = &idempotency_keys(now, hash);
        let what = "the request's key";
        let attempt = |attempt| async move { self.try_claim(attempt, keys, record, repeats).await };
        Ok(match self.settle(what, attempt).await? {
            Outcome::Claimed(claim) => {
                deed.claimed(claim);
                Claimed::Mine
            }
            Outcome::Not(claimed) => *claimed,
        })
    }

    async fn try_claim(
        &self,
        Try { deadline, .. }: Try,
        keys: &[String; 3],
        record: &IdempotencyRecord,
        repeats: bool,
    ) -> Result<Attempt<Outcome>, MetaError> {
        let (values, _) = self.inner.etcd.get_all(keys, deadline).await?;
        let Some((key, kv)) = keys.iter().zip(values).find_map(|(key, kv)| Some((key, kv?))) else {
            let free = keys.iter().fold(Txn::new(), |txn, key| txn.when_absent(key));
            return self.put_claim(free, &keys[0], record).await;
        };
        let KeyValue { value, mod_revision, .. } = kv;
        let not = |claimed| Ok(Attempt::Done(Outcome::Not(Box::new(claimed))));
        let Ok(found) = serde_json::from_slice::<IdempotencyRecord>(&value) else { return not(Claimed::Unreadable) };
        if found.asked != record.asked {
            return not(Claimed::Other(found));
        }
        if let Some(answer) = found.answer.clone() {
            return not(Claimed::Answered(found, answer));
        }
        if found.audit == record.audit {
            // An earlier attempt of this request, whose answer was lost.
            return Ok(Attempt::Done(Outcome::Claimed(Claim { key: key.clone(), revision: mod_revision })));
        }
        if unix_seconds() < found.until {
            return not(Claimed::Pending(found));
        }
        let mut over = Txn::new().when_unchanged(key, mod_revision);
        if !repeats {
            let done = format!("{AUDIT_PREFIX}{}", found.audit);
            let (audited, _) = self.inner.etcd.get_all(std::slice::from_ref(&done), deadline).await?;
            if audited.into_iter().any(|record| record.is_some()) {
                return not(Claimed::Unanswered(found));
            }
            over = over.when_absent(&done);
        }
        self.put_claim(over, key, record).await
    }

    /// Writes a claim, if what `txn` asks for is so.
    async fn put_claim(&self, txn: Txn, key: &str, record: &IdempotencyRecord) -> Result<Attempt<Outcome>, MetaError> {
        let answer: TxnResponse = self.inner.etcd.txn(txn.put(key, record).into()).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        let claim = Claim { key: key.to_owned(), revision };
        Ok(if answer.succeeded { Attempt::Done(Outcome::Claimed(claim)) } else { Attempt::Conflict })
    }

    /// Whether there is room for one more; deletes those that are too old.
    async fn make_room(&self) -> Result<bool, MetaError> {
        let turn = self.inner.claims.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIM_EVERY);
        if turn || self.inner.claims_full.load(Ordering::Relaxed) {
            let etcd = &self.inner.etcd;
            etcd.delete_range(IDEMPOTENCY_PREFIX, idempotency_end(unix_seconds()).as_bytes()).await?;
            let count = etcd.count(IDEMPOTENCY_PREFIX, Instant::now() + OPERATION_TIMEOUT).await?;
            self.inner.claims_full.store(count >= IDEMPOTENCY_RECORDS_MAX, Ordering::Relaxed);
        }
        Ok(!self.inner.claims_full.load(Ordering::Relaxed))
    }

    /// Keeps what was answered to a deed that has a claim. When that fails, or somebody else has taken the key over,
    /// the request counts as one that was not answered.
    ///
    /// # Errors
    /// When the configuration can't be reached.
    pub async fn keep_answer(&self, deed: &Deed, answer: KeptAnswer) -> Result<(), MetaError> {
        let Some(Claim { key, revision }) = deed.claim() else { return Ok(()) };
        let (values, _) =
            self.inner.etcd.get_all(std::slice::from_ref(key), Instant::now() + OPERATION_TIMEOUT).await?;
        let found = values.into_iter().flatten().find(|kv| kv.mod_revision == *revision);
        let record = found.and_then(|kv| serde_json::from_slice::<IdempotencyRecord>(&kv.value).ok());
        if let Some(record) = record {
            let record = IdempotencyRecord { answer: Some(answer), ..record };
            let txn = Txn::new().when_unchanged(key, *revision).put(key, &record);
            self.inner.etcd.txn(txn.into()).await?;
        }
        Ok(())
    }

    /// Gives the key of a deed back, which has changed nothing: the request may be carried out anew at once.
    ///
    /// # Errors
    /// When the configuration can't be reached.
    pub async fn give_key_back(&self, deed: &Deed) -> Result<(), EtcdError> {
        let Some(Claim { key, revision }) = deed.claim() else { return Ok(()) };
        self.inner.etcd.txn(Txn::new().when_unchanged(key, *revision).delete(key).into()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Txn as Sent;
    use crate::cluster::testing::{moves, record, start};
    use azekura_model::{audit_time, encode};

    /// The record under a hash, and its key.
    async fn found(meta: &MetaClient, hash: &str) -> Option<(String, IdempotencyRecord)> {
        let keys = idempotency_keys(unix_seconds(), hash);
        let (values, _) = meta.inner.etcd.get_all(&keys, Instant::now() + OPERATION_TIMEOUT).await.unwrap();
        let (key, kv) = keys.into_iter().zip(values).find_map(|(key, kv)| Some((key, kv?)))?;
        Some((key, serde_json::from_slice(&kv.value).unwrap()))
    }

    /// As if the node that has claimed this had ended some time ago.
    async fn age(meta: &MetaClient, hash: &str) {
        let (key, record) = found(meta, hash).await.unwrap();
        let record = IdempotencyRecord { until: unix_seconds() - 1, ..record };
        meta.inner.etcd.txn(Sent::new().put(&key, encode(&record))).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_asked_again_is_answered_again() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let (client, deed) = meta.run_as(record(1));
        assert_eq!(client.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Mine);
        let (_, again) = meta.run_as(record(2));
        assert!(matches!(meta.claim(&again, "h", "a", false).await.unwrap(), Claimed::Pending(_)));
        assert!(matches!(meta.claim(&again, "h", "b", false).await.unwrap(), Claimed::Other(_)));
        client.change_settings(moves(3)).await.unwrap();
        let answer = KeptAnswer { status: 200, body: serde_json::json!({ "a": 1 }), left_out: false };
        client.keep_answer(&deed, answer.clone()).await.unwrap();
        let Claimed::Answered(known, kept) = meta.claim(&again, "h", "a", false).await.unwrap() else { panic!() };
        assert_eq!((kept, known.who.as_str(), known.at), (answer, "ann", audit_time(1, 0)));
        assert!(matches!(meta.claim(&again, "h", "b", false).await.unwrap(), Claimed::Other(_)));
        // What was refused is not kept: it may be asked anew.
        let (client, deed) = meta.run_as(record(3));
        assert_eq!(client.claim(&deed, "i", "a", false).await.unwrap(), Claimed::Mine);
        client.give_key_back(&deed).await.unwrap();
        assert_eq!((found(&meta, "i").await, found(&meta, "h").await.is_some()), (None, true));
        let (client, deed) = meta.run_as(record(4));
        assert_eq!(client.claim(&deed, "i", "b", false).await.unwrap(), Claimed::Mine);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_changed_once_another_node_has_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let (slow, deed) = meta.run_as(record(1));
        assert_eq!(slow.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Mine);
        age(&meta, "h").await;
        let (client, other) = meta.run_as(record(2));
        assert_eq!(client.claim(&other, "h", "a", false).await.unwrap(), Claimed::Mine);
        let late = slow.change_settings(moves(9));
        let late = tokio::time::timeout(std::time::Duration::from_millis(300), late).await;
        assert!(late.is_err() || late.is_ok_and(|changed| changed.is_err()), "it goes on trying, or is refused");
        slow.keep_answer(&deed, KeptAnswer { status: 200, body: serde_json::Value::Null, left_out: false })
            .await
            .unwrap();
        slow.give_key_back(&deed).await.unwrap();
        let (_, record) = found(&meta, "h").await.unwrap();
        assert_eq!((record.answer, record.audit.as_str()), (None, other.name()), "the other's claim stands");
        assert_ne!(meta.model().settings().moves_at_once, 9);
        client.change_settings(moves(4)).await.unwrap();
        assert_eq!(meta.audit("", 9).await.unwrap().records.len(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_has_changed_something_is_only_repeated_where_that_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let (client, deed) = meta.run_as(record(1));
        assert_eq!(client.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Mine);
        client.change_settings(moves(3)).await.unwrap();
        age(&meta, "h").await;
        let (client, deed) = meta.run_as(record(2));
        assert!(matches!(client.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Unanswered(_)));
        assert_eq!(client.claim(&deed, "h", "a", true).await.unwrap(), Claimed::Mine);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn they_are_bounded_and_the_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, meta) = start(&folder).await;
        let put = |sent: Sent, key: String| sent.put(&key, b"{}".to_vec());
        let now = unix_seconds();
        let old: Vec<String> = (0..5).map(|day| idempotency_keys(now - (2 + day) * 86_400, "old")[0].clone()).collect();
        meta.inner.etcd.txn(old.into_iter().fold(Sent::new(), put)).await.unwrap();
        for part in (0..IDEMPOTENCY_RECORDS_MAX).collect::<Vec<_>>().chunks(120) {
            let keys = part.iter().map(|number| idempotency_keys(now, &format!("k{number}"))[0].clone());
            meta.inner.etcd.txn(keys.fold(Sent::new(), put)).await.unwrap();
        }
        let (client, deed) = meta.run_as(record(1));
        for _ in 0..2 {
            assert_eq!(client.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Full);
        }
        let left = meta.inner.etcd.count(IDEMPOTENCY_PREFIX, Instant::now() + OPERATION_TIMEOUT).await.unwrap();
        assert_eq!(left, IDEMPOTENCY_RECORDS_MAX, "those of the days before yesterday are gone");
        meta.inner.etcd.delete(&idempotency_keys(now, "k7")[0]).await.unwrap();
        assert_eq!(client.claim(&deed, "h", "a", false).await.unwrap(), Claimed::Mine);
        let (_, other) = meta.run_as(record(2));
        assert_eq!(meta.claim(&other, "k8", "a", false).await.unwrap(), Claimed::Unreadable);
    }
}
