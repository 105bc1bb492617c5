//! Executes writing requests on the memory image: checks everything first, then applies, so that a refused request
//! changes nothing.

use std::sync::Arc;
use std::time::Instant;

use super::batch::Batch;
use super::check;
use super::error::RequestError;
use super::lease::{Leases, TTL_MAX};
use super::range::KeyRange;
use super::state::{Change, State};
use crate::etcd::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, KeyValue, PutRequest, PutResponse,
    RangeRequest, ResponseOp, TxnRequest, TxnResponse, compare::TargetUnion, request_op::Request,
    response_op::Response,
};

/// The state while one request executes.
pub struct Execution<'a> {
    /// The memory image.
    pub state: &'a mut State,
    /// The leases.
    pub leases: &'a mut Leases,
    /// Where changes are noted for the database.
    pub batch: &'a mut Batch,
    /// Changes of this request so far.
    changes: u32,
}

impl<'a> Execution<'a> {
    /// Starts a request.
    pub fn new(state: &'a mut State, leases: &'a mut Leases, batch: &'a mut Batch) -> Execution<'a> {
        Execution { state, leases, batch, changes: 0 }
    }

    /// Executes a transaction (etcd API, "Transaction").
    pub fn txn(mut self, request: &TxnRequest) -> Result<TxnResponse, RequestError> {
        check::txn(request)?;
        let plan = self.plan(request)?;
        self.check_plan(&plan)?;
        let mut response = self.apply_plan(&plan)?;
        set_header(&mut response, self.state);
        Ok(response)
    }

    /// Executes a single put.
    pub fn put(mut self, request: &PutRequest) -> Result<PutResponse, RequestError> {
        check::put(request)?;
        self.check_put_lease(request)?;
        self.check_put_kept(request)?;
        let mut response = self.apply_put(request);
        response.header = self.state.header();
        Ok(response)
    }

    /// Executes a single deletion.
    pub fn delete_range(mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, RequestError> {
        if request.key.is_empty() {
            return Err(RequestError::EmptyKey);
        }
        let mut response = self.apply_delete(request);
        response.header = self.state.header();
        Ok(response)
    }

    /// Makes a lease.
    pub fn grant(self, id: i64, ttl: i64, now: Instant) -> Result<(), RequestError> {
        if ttl > TTL_MAX {
            return Err(RequestError::LeaseTooLong);
        }
        if self.leases.get(id).is_some() {
            return Err(RequestError::LeaseExists);
        }
        self.leases.insert(id, ttl, now);
        self.batch.leases.push((id, Some(ttl)));
        Ok(())
    }

    /// Ends a lease and deletes its keys in one revision.
    pub fn revoke(mut self, id: i64) -> Result<(), RequestError> {
        let lease = self.leases.remove(id).ok_or(RequestError::LeaseNotFound)?;
        self.batch.leases.push((id, None));
        for key in lease.keys {
            self.remove(&key);
        }
        Ok(())
    }

    /// Drops history before a revision.
    pub fn compact(self, revision: i64) -> Result<(), RequestError> {
        self.state.compact(revision)?;
        self.batch.compacted = Some(revision);
        Ok(())
    }

    fn plan<'r>(&self, request: &'r TxnRequest) -> Result<Plan<'r>, RequestError> {
        let mut succeeded = true;
        for condition in &request.compare {
            succeeded &= self.holds(condition)?;
        }
        let chosen = if succeeded { &request.success } else { &request.failure };
        let mut steps = Vec::with_capacity(chosen.len());
        for operation in chosen {
            steps.push(match &operation.request {
                Some(Request::Range(request)) => Step::Range(request),
                Some(Request::Put(request)) => Step::Put(request),
                Some(Request::DeleteRange(request)) => Step::DeleteRange(request),
                Some(Request::Txn(request)) => Step::Txn(self.plan(request)?),
                None => return Err(RequestError::Malformed("an operation without a request")),
            });
        }
        Ok(Plan { succeeded, steps })
    }

    /// Whether the condition holds for every key of its range; a missing single key counts as version 0.
    fn holds(&self, condition: &Compare) -> Result<bool, RequestError> {
        let result =
            CompareResult::try_from(condition.result).map_err(|_| RequestError::Malformed("compare result"))?;
        let target =
            CompareTarget::try_from(condition.target).map_err(|_| RequestError::Malformed("compare target"))?;
        let range = KeyRange::new(condition.key.clone(), condition.range_end.clone());
        let mut found = self.state.scan(&range).peekable();
        if found.peek().is_none() {
            if target == CompareTarget::Value {
                return Ok(false);
            }
            return Ok(holds_for(&KeyValue::default(), condition, result, target));
        }
        Ok(found.all(|kv| holds_for(kv, condition, result, target)))
    }

    /// Checks what a decided transaction would do against the state: its puts first, then its reads, as etcd does.
    fn check_plan(&self, plan: &Plan<'_>) -> Result<(), RequestError> {
        self.check_puts(plan)?;
        self.check_reads(plan)
    }

    fn check_puts(&self, plan: &Plan<'_>) -> Result<(), RequestError> {
        for step in &plan.steps {
            match step {
                Step::Put(request) => {
                    self.check_put_kept(request)?;
                    self.check_put_lease(request)?;
                }
                Step::Txn(plan) => self.check_puts(plan)?,
                Step::Range(_) | Step::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    fn check_reads(&self, plan: &Plan<'_>) -> Result<(), RequestError> {
        for step in &plan.steps {
            match step {
                Step::Range(request) if request.revision > self.state.revision => {
                    return Err(RequestError::FutureRevision);
                }
                Step::Range(request) if request.revision > 0 && request.revision < self.state.compacted => {
                    return Err(RequestError::Compacted);
                }
                Step::Txn(plan) => self.check_reads(plan)?,
                Step::Range(_) | Step::Put(_) | Step::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    fn check_put_lease(&self, request: &PutRequest) -> Result<(), RequestError> {
        let missing = request.lease != 0 && self.leases.get(request.lease).is_none();
        if missing { Err(RequestError::LeaseNotFound) } else { Ok(()) }
    }

    fn check_put_kept(&self, request: &PutRequest) -> Result<(), RequestError> {
        let keeps = request.ignore_value || request.ignore_lease;
        let missing = keeps && !self.state.keys.contains_key(&request.key);
        if missing { Err(RequestError::KeyNotFound) } else { Ok(()) }
    }

    fn apply_plan(&mut self, plan: &Plan<'_>) -> Result<TxnResponse, RequestError> {
        let mut responses = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let response = match step {
                Step::Range(request) => Response::Range(self.state.range(request)?),
                Step::Put(request) => Response::Put(self.apply_put(request)),
                Step::DeleteRange(request) => Response::DeleteRange(self.apply_delete(request)),
                Step::Txn(plan) => Response::Txn(self.apply_plan(plan)?),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        Ok(TxnResponse { header: None, succeeded: plan.succeeded, responses })
    }

    fn apply_put(&mut self, request: &PutRequest) -> PutResponse {
        let before = self.state.keys.get(&request.key).cloned();
        let revision = self.next_revision();
        let kept = before.as_deref();
        let after = KeyValue {
            key: request.key.clone(),
            create_revision: kept.map_or(revision, |kv| kv.create_revision),
            mod_revision: revision,
            version: kept.map_or(0, |kv| kv.version) + 1,
            value: match kept {
                Some(kv) if request.ignore_value => kv.value.clone(),
                _ => request.value.clone(),
            },
            lease: match kept {
                Some(kv) if request.ignore_lease => kv.lease,
                _ => request.lease,
            },
        };
        self.leases.move_key(&request.key, kept.map_or(0, |kv| kv.lease), after.lease);
        let after = Arc::new(after);
        self.state.keys.insert(request.key.clone(), Arc::clone(&after));
        let prev_kv = if request.prev_kv { kept.cloned() } else { None };
        self.note(request.key.clone(), Some(after), before);
        PutResponse { header: None, prev_kv }
    }

    fn apply_delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let range = KeyRange::new(request.key.clone(), request.range_end.clone());
        let found: Vec<Arc<KeyValue>> = self.state.scan(&range).cloned().collect();
        for kv in &found {
            self.leases.move_key(&kv.key, kv.lease, 0);
            self.remove(&kv.key);
        }
        let prev_kvs = if request.prev_kv { found.iter().map(|kv| KeyValue::clone(kv)).collect() } else { Vec::new() };
        DeleteRangeResponse { header: None, deleted: found.len() as i64, prev_kvs }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(before) = self.state.keys.remove(key) {
            self.next_revision();
            self.note(key.to_vec(), None, Some(before));
        }
    }

    /// The revision of this request's changes; the first change of a request takes it.
    fn next_revision(&mut self) -> i64 {
        if self.changes == 0 {
            self.state.revision += 1;
        }
        self.state.revision
    }

    /// What a key was before this request, when it changes the key for the second time: to others, a transaction is one
    /// change.
    fn before_request(&self, before: Option<Arc<KeyValue>>) -> Option<Arc<KeyValue>> {
        let own = before.as_ref().filter(|kv| self.changes > 0 && kv.mod_revision == self.state.revision);
        let Some(own) = own else { return before };
        // The batch ends with this request's changes.
        let others = self.batch.changes.len() - self.changes as usize;
        let first = self.batch.changes[others..].iter().find(|change| change.key == own.key);
        first.and_then(|change| change.before.clone())
    }

    fn note(&mut self, key: Vec<u8>, after: Option<Arc<KeyValue>>, before: Option<Arc<KeyValue>>) {
        let before = self.before_request(before);
        let change = Arc::new(Change { revision: self.state.revision, position: self.changes, key, after, before });
        self.changes += 1;
        self.state.history.push_back(Arc::clone(&change));
        self.batch.changes.push(change);
    }
}

/// A transaction with its branches decided. etcd decides nested conditions before it writes anything, and so do we.
struct Plan<'r> {
    succeeded: bool,
    steps: Vec<Step<'r>>,
}

enum Step<'r> {
    Range(&'r RangeRequest),
    Put(&'r PutRequest),
    DeleteRange(&'r DeleteRangeRequest),
    Txn(Plan<'r>),
}

fn set_header(response: &mut TxnResponse, state: &State) {
    response.header = state.header();
    for operation in &mut response.responses {
        match &mut operation.response {
            Some(Response::Range(answer)) => answer.header = state.header(),
            Some(Response::Put(answer)) => answer.header = state.header(),
            Some(Response::DeleteRange(answer)) => answer.header = state.header(),
            Some(Response::Txn(answer)) => set_header(answer, state),
            None => {}
        }
    }
}

fn holds_for(kv: &KeyValue, condition: &Compare, result: CompareResult, target: CompareTarget) -> bool {
    use std::cmp::Ordering;
    let ordering = match (target, &condition.target_union) {
        // A condition without a value compares with zero, protobuf's default.
        (CompareTarget::Version, Some(TargetUnion::Version(value))) => kv.version.cmp(value),
        (CompareTarget::Version, _) => kv.version.cmp(&0),
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(value))) => kv.create_revision.cmp(value),
        (CompareTarget::Create, _) => kv.create_revision.cmp(&0),
        (CompareTarget::Mod, Some(TargetUnion::ModRevision(value))) => kv.mod_revision.cmp(value),
        (CompareTarget::Mod, _) => kv.mod_revision.cmp(&0),
        (CompareTarget::Value, Some(TargetUnion::Value(value))) => kv.value.cmp(value),
        (CompareTarget::Value, _) => kv.value.as_slice().cmp(&[]),
        (CompareTarget::Lease, Some(TargetUnion::Lease(value))) => kv.lease.cmp(value),
        (CompareTarget::Lease, _) => kv.lease.cmp(&0),
    };
    match result {
        CompareResult::Equal => ordering == Ordering::Equal,
        CompareResult::Greater => ordering == Ordering::Greater,
        CompareResult::Less => ordering == Ordering::Less,
        CompareResult::NotEqual => ordering != Ordering::Equal,
    }
}
