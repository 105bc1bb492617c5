//! A small etcd client: just what the cluster model needs, with several endpoints and clear errors.
//!
//! Reads are tried again on every endpoint until the deadline. A write is sent once: when its answer is lost nobody
//! knows whether it was executed, and only the caller can find out by reading ([`EtcdError::Uncertain`]).
//!
//! - `servers`: where they are, and by which files and users both ends are known; `cluster_tls`: the same by nodes'
//!   keys; `connector`: TLS.
//! - `session`: the user's token, and what etcd has against a request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura_model::{EtcdError, KeyValue};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use connector::{Connector, PlainConnector, Proof};
use servers::Address;
use session::{Line, Objection, Session, Ticket, line};

use crate::etcd::{
    CompactionRequest, DeleteRangeRequest, KVClient, LeaseClient, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest,
    RangeResponse, TxnResponse, prefix_end,
};

mod cluster_tls;
mod connector;
mod keep_alive;
mod servers;
mod session;
mod txn;
mod watcher;

pub use cluster_tls::{ClusterTls, KnownServers};
pub use connector::{Admission, admission};
pub use keep_alive::LeaseStream;
pub use servers::{Servers, ShownFiles, TlsFiles, User};
pub use txn::Txn;
pub use watcher::{WatchEnd, WatchStream};

/// Longest wait for the answer to one request on one endpoint.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// What is said of an endpoint that was silent.
const SILENCE: &str = "no answer in time";
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection ends when the server's machine has acknowledged nothing for so long of what was sent there (RFC 5482).
/// A dead machine says nothing; that of a slow server does.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(1);
/// An endpoint of which nothing was heard comes last for so long.
const SHUNNED_FOR: Duration = Duration::from_secs(10);
/// An idle connection is probed this often; etcd refuses probes more often than every 5 s.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// A probe without an answer ends the connection after this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// First pause before another try; doubles up to [`BACK_OFF_MAX`].
pub const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause before another try.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// Keys fetched with one request.
const PAGE_KEYS: i64 = 2_000;
/// Largest answer accepted: a page of keys, each as large as etcd lets it be, does not fit, but ours are small.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
struct Connection {
    url: String,
    channel: Channel,
    /// When it was last given up since nothing was heard of it.
    silent_at: Mutex<Option<Instant>>,
}

impl Connection {
    fn has_been_silent(&self) {
        *self.silent_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_shunned(&self) -> bool {
        let silent_at = *self.silent_at.lock().unwrap_or_else(PoisonError::into_inner);
        silent_at.is_some_and(|when| when.elapsed() < SHUNNED_FOR)
    }
}

/// Why an endpoint is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// It is there, and can't do what it is asked for, or not now.
    Unable,
    /// Nothing was heard of it.
    Silent,
}

impl Trouble {
    /// What a status that [`is_endpoint_trouble`] says of the endpoint: a server's own word has no cause here.
    fn of(status: &Status) -> Trouble {
        if std::error::Error::source(status).is_some() { Trouble::Silent } else { Trouble::Unable }
    }
}

/// A client of one etcd cluster, or of one embedded server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    connections: Arc<Vec<Connection>>,
    session: Arc<Session>,
    /// Counts changes of the endpoint in use; its remainder is the endpoint.
    turn: Arc<watch::Sender<usize>>,
}

/// Whether a status means that the endpoint, not the request, is the trouble.
fn is_endpoint_trouble(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal | Code::Aborted
    )
}

fn describe(status: &Status) -> String {
    // The transport's message ("transport error") says little; the innermost cause says it all.
    let mut cause: &dyn std::error::Error = status;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if std::ptr::addr_eq(cause, status as &dyn std::error::Error) {
        status.message().to_owned()
    } else {
        cause.to_string()
    }
}

fn refusal(status: &Status) -> EtcdError {
    if status.code() == Code::OutOfRange && status.message().contains("compacted") {
        return EtcdError::Compacted;
    }
    EtcdError::Refused(status.message().to_owned())
}

impl EtcdClient {
    /// A client of these servers. Connects with the first request, to the server of this machine if there is one, else
    /// to any: so not all clients lose theirs with one machine. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When an address is none, or a file can't be used ([`EtcdError::Proof`]).
    pub fn new(servers: impl Into<Servers>) -> Result<EtcdClient, EtcdError> {
        let servers = servers.into();
        let addresses = servers.addresses()?;
        let any = || getrandom::u32().map_or(0, |random| random as usize % addresses.len());
        let first = addresses.iter().position(Address::is_of_this_machine).unwrap_or_else(any);
        let mut connections = Vec::with_capacity(addresses.len());
        for address in addresses {
            let url = address.url.clone();
            let endpoint = Endpoint::from_shared(url.clone())
                .map_err(|error| EtcdError::Endpoint { endpoint: url.clone(), reason: error.to_string() })?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(PROBE_INTERVAL)
                .keep_alive_timeout(PROBE_TIMEOUT)
                .keep_alive_while_idle(true);
            let channel = match (Proof::of(&servers), &address.name) {
                (Some(proof), Some(_)) => endpoint.connect_with_connector_lazy(Connector::new(address, proof)),
                _ => endpoint.connect_with_connector_lazy(PlainConnector::new(address)),
            };
            connections.push(Connection { url, channel, silent_at: Mutex::new(None) });
        }
        let (connections, session) = (Arc::new(connections), Arc::new(Session::new(servers.user)));
        Ok(EtcdClient { connections, session, turn: Arc::new(watch::Sender::new(first)) })
    }

    /// All endpoints, separated by commas.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.connections.iter().map(|connection| connection.url.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The endpoint in use, with the turn that chose it.
    fn current(&self) -> (usize, &Connection) {
        let turn = *self.turn.borrow();
        (turn, &self.connections[turn % self.connections.len()])
    }

    /// Goes to the next endpoint, unless somebody did so since `turn`. Streams on the former endpoint notice and
    /// reconnect; so do reads there, if nothing was heard of it.
    fn give_up(&self, turn: usize, trouble: Trouble) {
        if trouble == Trouble::Silent {
            self.connections[turn % self.connections.len()].has_been_silent();
        }
        self.turn.send_if_modified(|now| {
            let first = *now == turn;
            if first {
                *now = self.turn_after(turn);
            }
            first
        });
    }

    /// That of the next endpoint which is not shunned, or just of the next.
    fn turn_after(&self, turn: usize) -> usize {
        let count = self.connections.len();
        let mut others = (1..count).map(|steps| turn + steps);
        others.find(|turn| !self.connections[turn % count].is_shunned()).unwrap_or(turn + 1)
    }

    /// Comes back when somebody has given up the endpoint of this turn since nothing was heard of it.
    async fn until_silent(&self, turn: usize, connection: &Connection) {
        let mut turns = self.turn.subscribe();
        // The sender is this client's own, and not gone.
        turns.wait_for(|now| *now != turn).await.map(drop).unwrap_or_default();
        if !connection.is_shunned() {
            std::future::pending::<()>().await;
        }
    }

    /// Asks once, with what shows who asks.
    async fn ask<T, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        connection: &Connection,
        until: Instant,
        request: impl FnOnce(Line) -> F + Send,
    ) -> Result<T, Objection> {
        let asked = async {
            let ticket = self.session.ticket(&connection.url, &connection.channel).await?;
            match request(line(&connection.channel, &ticket)).await {
                Ok(answer) => Ok(answer),
                Err(status) => Err(self.object(connection, &ticket, &status).await),
            }
        };
        tokio::time::timeout_at(until, asked).await.unwrap_or(Err(Objection::Silence))
    }

    /// What a status means; a token that it is about is not shown again.
    async fn object(&self, connection: &Connection, ticket: &Ticket, status: &Status) -> Objection {
        let objection = self.session.objection(&connection.url, status);
        if matches!(objection, Objection::Ticket(_)) {
            self.session.spent(ticket).await;
        }
        objection
    }

    /// Tries a read until it is answered or refused, or the deadline is over.
    async fn read<T, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        deadline: Instant,
        mut request: impl FnMut(Line) -> F + Send,
    ) -> Result<T, EtcdError> {
        let mut pause = BACK_OFF_MIN;
        // Says more than that nothing came in the rest of the time.
        let mut heard = None;
        loop {
            let (turn, connection) = self.current();
            let until = deadline.min(Instant::now() + REQUEST_TIMEOUT);
            let asked = tokio::select! {
                asked = self.ask(connection, until, &mut request) => asked,
                () = self.until_silent(turn, connection) => Err(Objection::Silence),
            };
            let reason = match asked {
                Ok(answer) => return Ok(answer),
                Err(Objection::Final(error)) => return Err(error),
                Err(Objection::Ticket(reason)) => reason,
                Err(Objection::Endpoint(reason, trouble)) => {
                    self.give_up(turn, trouble);
                    reason
                }
                Err(Objection::Silence) => {
                    self.give_up(turn, Trouble::Silent);
                    heard.take().unwrap_or_else(|| SILENCE.to_owned())
                }
            };
            if Instant::now() + pause >= deadline {
                return Err(EtcdError::Unreachable { endpoints: self.endpoints(), reason });
            }
            heard = Some(reason);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
    }

    /// Sends a write once: once more only if it was not executed for want of a token that counts. An endpoint that has
    /// said nothing of it for less than [`REQUEST_TIMEOUT`] may be slow, and is kept.
    async fn write<T, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        wait: Duration,
        mut request: impl FnMut(Line) -> F + Send,
    ) -> Result<T, EtcdError> {
        let (turn, connection) = self.current();
        let until = Instant::now() + wait;
        let mut outcome = self.ask(connection, until, &mut request).await;
        if let Err(Objection::Ticket(_)) = outcome {
            outcome = self.ask(connection, until, &mut request).await;
        }
        outcome.map_err(|objection| match objection {
            Objection::Final(error) => error,
            Objection::Ticket(reason) => EtcdError::Denied { endpoint: connection.url.clone(), reason },
            Objection::Endpoint(reason, trouble) => {
                self.give_up(turn, trouble);
                EtcdError::Uncertain { endpoint: connection.url.clone(), reason }
            }
            Objection::Silence => {
                if wait >= REQUEST_TIMEOUT {
                    self.give_up(turn, Trouble::Silent);
                }
                EtcdError::Uncertain { endpoint: connection.url.clone(), reason: SILENCE.to_owned() }
            }
        })
    }

    /// All keys that start with `prefix` as of one revision, and that revision. Each page of them may take so long: of
    /// a large configuration a slow line never brings all within the time for one.
    pub async fn range_prefix(&self, prefix: &str, page_wait: Duration) -> Result<(Vec<KeyValue>, i64), EtcdError> {
        let end = prefix_end(prefix.as_bytes());
        let mut start = prefix.as_bytes().to_vec();
        let mut revision = 0;
        let mut found = Vec::new();
        loop {
            let request = RangeRequest {
                key: start.clone(),
                range_end: end.clone(),
                limit: PAGE_KEYS,
                revision,
                ..RangeRequest::default()
            };
            let page = self
                .read(Instant::now() + page_wait, |line| {
                    let request = request.clone();
                    async move { Ok(kv(line).range(request).await?.into_inner()) }
                })
                .await?;
            if revision == 0 {
                revision = page.header.as_ref().map_or(0, |header| header.revision);
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            found.extend(page.kvs.into_iter().map(KeyValue::from));
            match last {
                Some(key) if page.more => {
                    start = key;
                    start.push(0);
                }
                _ => return Ok((found, revision)),
            }
        }
    }

    /// At most `limit` keys from `start` up to `end`, exclusive, with their values.
    pub async fn range_page(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<KeyValue>, EtcdError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let page = RangeRequest { key: start.into(), range_end: end.into(), limit, ..RangeRequest::default() };
        Ok(self.range(page, deadline).await?.kvs.into_iter().map(KeyValue::from).collect())
    }

    /// The name of the key that comes after `skip` others, of those that start with `prefix`; `None`: there is none.
    pub async fn key_at(&self, prefix: &str, skip: usize, deadline: Instant) -> Result<Option<Vec<u8>>, EtcdError> {
        let limit = i64::try_from(skip + 1).unwrap_or(i64::MAX);
        let (key, range_end) = (prefix.into(), prefix_end(prefix.as_bytes()));
        let page = RangeRequest { key, range_end, limit, keys_only: true, ..RangeRequest::default() };
        Ok(self.range(page, deadline).await?.kvs.into_iter().nth(skip).map(|kv| kv.key))
    }

    /// How many keys start with `prefix`.
    pub async fn count(&self, prefix: &str, deadline: Instant) -> Result<usize, EtcdError> {
        let (key, range_end) = (prefix.into(), prefix_end(prefix.as_bytes()));
        let all = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
        Ok(usize::try_from(self.range(all, deadline).await?.count).unwrap_or(0))
    }

    async fn range(&self, request: RangeRequest, deadline: Instant) -> Result<RangeResponse, EtcdError> {
        self.read(deadline, |line| {
            let request = request.clone();
            async move { Ok(kv(line).range(request).await?.into_inner()) }
        })
        .await
    }

    /// Several keys as of one revision, in the order asked for (at most 128), and that revision.
    pub async fn get_all(&self, keys: &[String], deadline: Instant) -> Result<(Vec<Option<KeyValue>>, i64), EtcdError> {
        let mut txn = Txn::new();
        for key in keys {
            txn = txn.get(key);
        }
        let request = txn.into_request();
        let answer = self
            .read(deadline, |line| {
                let request = request.clone();
                async move { Ok(kv(line).txn(request).await?.into_inner()) }
            })
            .await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        Ok((txn::first_key_values(answer), revision))
    }

    /// Executes a transaction once; the answer says whether its conditions held.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResponse, EtcdError> {
        self.txn_within(REQUEST_TIMEOUT, txn).await
    }

    /// The same, with a wait of its own: for whoever can find out what became of the transaction. etcd says nothing for
    /// seven seconds of what its leader took along when that died.
    pub async fn txn_within(&self, wait: Duration, txn: Txn) -> Result<TxnResponse, EtcdError> {
        let request = txn.into_request();
        self.write(wait, |line| {
            let request = request.clone();
            async move { Ok(kv(line).txn(request).await?.into_inner()) }
        })
        .await
    }

    /// Deletes the keys from `start` up to `end`, exclusive.
    pub async fn delete_range(&self, start: &str, end: &[u8]) -> Result<(), EtcdError> {
        let request = DeleteRangeRequest { key: start.into(), range_end: end.to_vec(), prev_kv: false };
        self.write(REQUEST_TIMEOUT, |line| {
            let request = request.clone();
            async move { Ok(kv(line).delete_range(request).await?.into_inner()) }
        })
        .await
        .map(|_| ())
    }

    /// Deletes one key, whether it is there or not.
    pub async fn delete(&self, key: &str) -> Result<(), EtcdError> {
        let request = DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() };
        self.write(REQUEST_TIMEOUT, |line| {
            let request = request.clone();
            async move { Ok(kv(line).delete_range(request).await?.into_inner()) }
        })
        .await
        .map(|_| ())
    }

    /// Drops history before a revision.
    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision, physical: false };
        self.write(REQUEST_TIMEOUT, |line| {
            let request = request.clone();
            async move { Ok(kv(line).compact(request).await?.into_inner()) }
        })
        .await
        .map(|_| ())
    }

    /// Makes a lease and returns its id. A lost answer leaves a lease that ends by itself.
    pub async fn grant(&self, ttl_seconds: i64) -> Result<i64, EtcdError> {
        let request = || LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let answer = self
            .write(REQUEST_TIMEOUT, |line| async move {
                Ok(LeaseClient::new(line).lease_grant(request()).await?.into_inner())
            })
            .await?;
        Ok(answer.id)
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let request = || LeaseRevokeRequest { id: lease };
        self.write(REQUEST_TIMEOUT, |line| async move {
            Ok(LeaseClient::new(line).lease_revoke(request()).await?.into_inner())
        })
        .await
        .map(|_| ())
    }
}

fn kv(line: Line) -> KVClient<Line> {
    KVClient::new(line).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// A stream's request that etcd is to end when its member loses the leader, instead of staying silent.
fn require_leader<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    request
}

#[cfg(test)]
mod tests;
