//! The messages, written with prost's derive. Field names are etcd's; field numbers are its wire format.

use prost::{Enumeration, Message, Oneof};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// It was written.
    Put = 0,
    /// It was deleted; the event holds its key and the revision only.
    Delete = 1,
}

/// Order of a range's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// Ascending by key.
    None = 0,
    /// Ascending by the target.
    Ascend = 1,
    /// Descending by the target.
    Descend = 2,
}

/// What a range is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// The key.
    Key = 0,
    /// The count of changes.
    Version = 1,
    /// The revision of creation.
    Create = 2,
    /// The revision of the last change.
    Mod = 3,
    /// The value.
    Value = 4,
}

/// Relation that a condition wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    /// Equal.
    Equal = 0,
    /// The key's is greater.
    Greater = 1,
    /// The key's is less.
    Less = 2,
    /// Different.
    NotEqual = 3,
}

/// What a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// The count of changes; 0 for a missing key.
    Version = 0,
    /// The revision of creation; 0 for a missing key.
    Create = 1,
    /// The revision of the last change; 0 for a missing key.
    Mod = 2,
    /// The value; never holds for a missing key.
    Value = 3,
    /// The lease; 0 for none.
    Lease = 4,
}

/// Events that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum WatchFilter {
    /// Writes.
    NoPut = 0,
    /// Deletions.
    NoDelete = 1,
}

/// Names the server and the revision that an answer reflects.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseHeader {
    /// Cluster id.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// Member id.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// Revision; 0: the newest.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// Raft term.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A key with its value and its history counters (`mvccpb.KeyValue`).
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Revision of the creation.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Revision of the last change.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Count of changes since the creation (status: version of the server).
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// Bytes of the value.
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    /// Lease that the key belongs to; 0: none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// A change of one key (`mvccpb.Event`).
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Type.
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// Kv.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    /// The key before the change (requests: whether to answer it).
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

/// Reads the keys of a range.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// End of the range (exclusive); empty: the one key; `[0]`: to the last key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Most keys to answer; 0: all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Revision; 0: the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Sort order.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// Sort target.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// Serializable.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Keys only.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Count only.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    /// Min mod revision.
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
    /// Max mod revision.
    #[prost(int64, tag = "11")]
    pub max_mod_revision: i64,
    /// Min create revision.
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
    /// Max create revision.
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

/// The keys of a range; `more` when `limit` cut them, `count` without that cut.
#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Keys in the order asked for.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether `limit` cut the answer.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// Keys in the range, before `limit`.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// Writes one key.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Bytes of the value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// Lease that the key belongs to; 0: none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// The key before the change (requests: whether to answer it).
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    /// Ignore value.
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    /// Ignore lease.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// Answer to [`PutRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct PutResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The key before the change (requests: whether to answer it).
    #[prost(message, optional, tag = "2")]
    pub prev_kv: Option<KeyValue>,
}

/// Deletes the keys of a range.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// End of the range (exclusive); empty: the one key; `[0]`: to the last key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The key before the change (requests: whether to answer it).
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// Answer to [`DeleteRangeRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Deleted.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
    /// The deleted keys, if asked for.
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    /// Request.
    #[prost(oneof = "request_op::Request", tags = "1,2,3,4")]
    pub request: Option<request_op::Request>,
}

/// The answer to one operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    /// Response.
    #[prost(oneof = "response_op::Response", tags = "1,2,3,4")]
    pub response: Option<response_op::Response>,
}

/// One condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// Result.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// Target.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// Target union.
    #[prost(oneof = "compare::TargetUnion", tags = "4,5,6,7,8")]
    pub target_union: Option<compare::TargetUnion>,
    /// End of the range (exclusive); empty: the one key; `[0]`: to the last key.
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}

/// A transaction: `success` when every condition holds, else `failure`.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    /// Conditions.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// Operations when all conditions hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// Operations otherwise.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// Answer to [`TxnRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether all conditions held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// One answer an operation.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Drops history before a revision.
#[derive(Clone, PartialEq, Message)]
pub struct CompactionRequest {
    /// Revision; 0: the newest.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Physical.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

/// Answer to [`CompactionRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct CompactionResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// A message of the client on a watch stream.
#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    /// Request.
    #[prost(oneof = "watch_request::Request", tags = "1,2,3")]
    pub request: Option<watch_request::Request>,
}

/// Starts a watch on a range, from a revision (0: from now).
#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    /// First key of the range, or the key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// End of the range (exclusive); empty: the one key; `[0]`: to the last key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Start revision.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Progress notify.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// Filters.
    #[prost(enumeration = "WatchFilter", repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// The key before the change (requests: whether to answer it).
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    /// Watch on this stream.
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
    /// Fragment.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// Ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCancelRequest {
    /// Watch on this stream.
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// Asks for an empty answer that tells the current revision.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WatchProgressRequest {}

/// A message of the server on a watch stream.
#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Watch on this stream.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// Created.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// Canceled.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Compact revision.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Cancel reason.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Fragment.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    /// Changes, oldest first.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// Makes a lease of `ttl` seconds; `id` 0 lets the server choose.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantRequest {
    /// Time to live, seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// Lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// Answer to [`LeaseGrantRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct LeaseGrantResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live, seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Error.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseRevokeRequest {
    /// Lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Answer to [`LeaseRevokeRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct LeaseRevokeResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Restarts a lease's time.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseKeepAliveRequest {
    /// Lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Answer to [`LeaseKeepAliveRequest`]; `ttl` 0 says that the lease is gone.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseKeepAliveResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live, seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// Asks for a lease's remaining time, and its keys.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseTimeToLiveRequest {
    /// Lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Keys of the lease (request: whether to answer them).
    #[prost(bool, tag = "2")]
    pub keys: bool,
}

/// Answer to [`LeaseTimeToLiveRequest`]; `ttl` is -1 for an unknown lease.
#[derive(Clone, PartialEq, Message)]
pub struct LeaseTimeToLiveResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live, seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Granted ttl.
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
    /// Keys of the lease (request: whether to answer them).
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub keys: Vec<Vec<u8>>,
}

/// Asks for all leases.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LeaseLeasesRequest {}

/// One lease of [`LeaseLeasesResponse`].
#[derive(Clone, PartialEq, Message)]
pub struct LeaseStatus {
    /// Lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Answer to [`LeaseLeasesRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct LeaseLeasesResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// All leases.
    #[prost(message, repeated, tag = "2")]
    pub leases: Vec<LeaseStatus>,
}

/// Asks a server how it is.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct StatusRequest {}

/// Answer to [`StatusRequest`].
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// Server and revision.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Count of changes since the creation (status: version of the server).
    #[prost(string, tag = "2")]
    pub version: String,
    /// Db size.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// Leader.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Raft index.
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    /// Raft term.
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    /// Raft applied index.
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    /// Errors.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Db size in use.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
}

/// Choice of [`RequestOp`].
pub mod request_op {
    use super::*;

    /// The operation.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Request {
        /// Read a range.
        #[prost(message, tag = "1")]
        Range(RangeRequest),
        /// Write a key.
        #[prost(message, tag = "2")]
        Put(PutRequest),
        /// Delete a range.
        #[prost(message, tag = "3")]
        DeleteRange(DeleteRangeRequest),
        /// A nested transaction.
        #[prost(message, tag = "4")]
        Txn(TxnRequest),
    }
}

/// Choice of [`ResponseOp`].
pub mod response_op {
    use super::*;

    /// The answer.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Response {
        /// To a range.
        #[prost(message, tag = "1")]
        Range(RangeResponse),
        /// To a put.
        #[prost(message, tag = "2")]
        Put(PutResponse),
        /// To a deletion.
        #[prost(message, tag = "3")]
        DeleteRange(DeleteRangeResponse),
        /// To a nested transaction.
        #[prost(message, tag = "4")]
        Txn(TxnResponse),
    }
}

/// Choice of [`Compare`].
pub mod compare {
    use super::*;

    /// The value to compare with.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum TargetUnion {
        /// For [`CompareTarget::Version`].
        #[prost(int64, tag = "4")]
        Version(i64),
        /// For [`CompareTarget::Create`].
        #[prost(int64, tag = "5")]
        CreateRevision(i64),
        /// For [`CompareTarget::Mod`].
        #[prost(int64, tag = "6")]
        ModRevision(i64),
        /// For [`CompareTarget::Value`].
        #[prost(bytes = "vec", tag = "7")]
        Value(Vec<u8>),
        /// For [`CompareTarget::Lease`].
        #[prost(int64, tag = "8")]
        Lease(i64),
    }
}

/// Choice of [`WatchRequest`].
pub mod watch_request {
    use super::*;

    /// The message.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Request {
        /// Start a watch.
        #[prost(message, tag = "1")]
        Create(WatchCreateRequest),
        /// End a watch.
        #[prost(message, tag = "2")]
        Cancel(WatchCancelRequest),
        /// Ask for progress.
        #[prost(message, tag = "3")]
        Progress(WatchProgressRequest),
    }
}
