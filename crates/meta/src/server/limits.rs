//! The limits of the embedded server, all in one place.

use std::time::Duration;

/// Operations in a transaction, or conditions of it (etcd's default).
pub const TXN_OPERATIONS_MAX: usize = 128;
/// Bytes of a request's keys and values (etcd's default).
pub const REQUEST_BYTES_MAX: usize = 1_536 * 1024;
/// Changes kept for watches and for reads in the past; an eighth more before the oldest are dropped.
pub const HISTORY_CHANGES_MAX: usize = 16_384;
/// Events in one answer of a watch; a revision is never split, so one of more events makes a larger answer.
pub(super) const WATCH_EVENTS_MAX: usize = 1_000;
/// Watches on one stream.
pub(super) const WATCHES_PER_STREAM_MAX: usize = 1_024;
/// Answers queued on a stream before its producer waits for the client.
pub(super) const STREAM_ANSWERS_MAX: usize = 16;
/// Writing requests waiting for the writer thread.
pub(super) const QUEUE_REQUESTS_MAX: usize = 1_024;
/// Writing requests in one commit.
pub(super) const BATCH_REQUESTS_MAX: usize = 128;
/// Memory of the database's page cache; everything hot is in the memory image anyway.
pub(super) const CACHE_BYTES_MAX: usize = 4 << 20;
/// How often ended leases are looked for.
pub(super) const LEASE_CHECK: Duration = Duration::from_millis(250);
/// Room in a gRPC message for what is not keys and values.
pub(super) const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;
/// Connections to a server that speaks TLS which have not proved a node's key, at most: more are closed.
pub(super) const STRANGERS_MAX: usize = 256;
/// Longest time for that, and at a stranger's for the end of the connection.
pub(super) const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// People are told of strangers that were refused at most so often.
pub(super) const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Pause when no connection can be accepted, because there are no descriptors.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a stopping server waits for its clients' streams to end.
pub(super) const STOP_WAIT: Duration = Duration::from_secs(2);
