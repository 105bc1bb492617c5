//! What can be said against a request without looking at the state. As in etcd, every field is checked before the
//! first look at keys that are written twice.

use std::collections::BTreeSet;

use super::error::RequestError;
use super::limits::{REQUEST_BYTES_MAX, TXN_OPERATIONS_MAX};
use super::range::KeyRange;
use crate::etcd::{PutRequest, RequestOp, TxnRequest, request_op::Request};

/// Checks a transaction.
pub(super) fn txn(request: &TxnRequest) -> Result<(), RequestError> {
    let bytes = fields(request)?;
    if bytes > REQUEST_BYTES_MAX {
        return Err(RequestError::TooLarge);
    }
    branch(&request.success)?;
    branch(&request.failure)?;
    Ok(())
}

/// Checks a put.
pub(super) fn put(request: &PutRequest) -> Result<(), RequestError> {
    if request.key.is_empty() {
        return Err(RequestError::EmptyKey);
    }
    if request.key.len() + request.value.len() > REQUEST_BYTES_MAX {
        return Err(RequestError::TooLarge);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(RequestError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(RequestError::LeaseProvided);
    }
    Ok(())
}

/// Checks the fields of a transaction and of those inside it; the bytes that it could write.
fn fields(request: &TxnRequest) -> Result<usize, RequestError> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    if longest > TXN_OPERATIONS_MAX {
        return Err(RequestError::TooManyOperations);
    }
    if request.compare.iter().any(|condition| condition.key.is_empty()) {
        return Err(RequestError::EmptyKey);
    }
    let mut bytes = 0;
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            None => return Err(RequestError::Malformed("an operation without a request")),
            Some(Request::Range(range)) if range.key.is_empty() => return Err(RequestError::EmptyKey),
            Some(Request::DeleteRange(range)) if range.key.is_empty() => return Err(RequestError::EmptyKey),
            Some(Request::Range(_) | Request::DeleteRange(_)) => {}
            Some(Request::Put(request)) => {
                put(request)?;
                bytes += request.key.len() + request.value.len();
            }
            Some(Request::Txn(request)) => bytes += fields(request)?,
        }
    }
    Ok(bytes)
}

/// The keys that a branch of a transaction may write, its nested transactions' with them.
#[derive(Default)]
struct Written {
    puts: BTreeSet<Vec<u8>>,
    deletions: Vec<KeyRange>,
}

impl Written {
    fn put(&mut self, key: &[u8], also_allowed: &BTreeSet<Vec<u8>>) -> Result<(), RequestError> {
        let twice = self.puts.contains(key) && !also_allowed.contains(key);
        if twice || self.deletions.iter().any(|range| range.contains(key)) {
            return Err(RequestError::DuplicateKey);
        }
        self.puts.insert(key.to_vec());
        Ok(())
    }
}

/// Checks that a branch writes no key twice. The branches of a nested transaction exclude each other: each may write
/// what the other writes.
fn branch(operations: &[RequestOp]) -> Result<Written, RequestError> {
    let mut written = Written::default();
    let none = BTreeSet::new();
    for operation in operations {
        if let Some(Request::DeleteRange(request)) = &operation.request {
            written.deletions.push(KeyRange::new(request.key.clone(), request.range_end.clone()));
        }
    }
    for operation in operations {
        if let Some(Request::Txn(request)) = &operation.request {
            let (success, failure) = (branch(&request.success)?, branch(&request.failure)?);
            for key in &success.puts {
                written.put(key, &none)?;
            }
            for key in &failure.puts {
                written.put(key, &success.puts)?;
            }
            written.deletions.extend(success.deletions);
            written.deletions.extend(failure.deletions);
        }
    }
    for operation in operations {
        if let Some(Request::Put(request)) = &operation.request {
            written.put(&request.key, &none)?;
        }
    }
    Ok(written)
}
