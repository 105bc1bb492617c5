//! Building a transaction: conditions on keys' revisions, and writes when all of them hold.

use azekura_model::{Condition, KeyValue, Write};

use crate::etcd::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    TxnResponse, compare::TargetUnion, prefix_end, request_op::Request, response_op::Response,
};

/// A transaction under construction.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    request: TxnRequest,
}

impl Txn {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Txn {
        Txn::default()
    }

    /// Only if the key is so.
    #[must_use]
    pub fn when(mut self, key: &str, condition: Condition) -> Txn {
        let mod_revision = match condition {
            // etcd's word for a key that is not there.
            Condition::Absent => 0,
            Condition::Unchanged(mod_revision) => mod_revision,
        };
        self.request.compare.push(Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key.into(),
            target_union: Some(TargetUnion::ModRevision(mod_revision)),
            range_end: Vec::new(),
        });
        self
    }

    /// Writes a key.
    #[must_use]
    pub fn put(self, key: &str, value: Vec<u8>) -> Txn {
        self.put_leased(key, value, 0)
    }

    /// Writes a key that ends with a lease.
    #[must_use]
    pub fn put_leased(self, key: &str, value: Vec<u8>, lease: i64) -> Txn {
        self.then(Request::Put(PutRequest { key: key.into(), value, lease, ..PutRequest::default() }))
    }

    /// Reads a key.
    #[must_use]
    pub fn get(self, key: &str) -> Txn {
        self.then(Request::Range(RangeRequest { key: key.into(), ..RangeRequest::default() }))
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(self, key: &str) -> Txn {
        self.then(Request::DeleteRange(DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() }))
    }

    /// Deletes every key that starts with `prefix`.
    #[must_use]
    pub fn delete_prefix(self, prefix: &str) -> Txn {
        let range_end = prefix_end(prefix.as_bytes());
        self.then(Request::DeleteRange(DeleteRangeRequest { key: prefix.into(), range_end, prev_kv: false }))
    }

    fn then(mut self, request: Request) -> Txn {
        self.request.success.push(RequestOp { request: Some(request) });
        self
    }

    /// The request to send.
    #[must_use]
    pub fn into_request(self) -> TxnRequest {
        self.request
    }
}

impl From<azekura_model::Txn> for Txn {
    fn from(txn: azekura_model::Txn) -> Txn {
        let sent = txn.conditions().iter().fold(Txn::new(), |sent, (key, condition)| sent.when(key, *condition));
        txn.writes().iter().fold(sent, |sent, write| match write {
            Write::Put(key, value) => sent.put(key, value.clone()),
            Write::Delete(key) => sent.delete(key),
            Write::DeletePrefix(prefix) => sent.delete_prefix(prefix),
        })
    }
}

/// The first key-value of each read of a transaction.
pub(super) fn first_key_values(answer: TxnResponse) -> Vec<Option<KeyValue>> {
    answer
        .responses
        .into_iter()
        .filter_map(|operation| match operation.response {
            Some(Response::Range(range)) => Some(range.kvs.into_iter().next().map(Into::into)),
            _ => None,
        })
        .collect()
}
