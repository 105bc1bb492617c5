//! The embedded configuration server: the etcd v3 API subset that Azekura uses, for one machine or a small lab, from a
//! redb database. Real etcd clients, `etcdctl` among them, work with it.
//!
//! What it is not: replicated. A cluster that must outlive a machine uses etcd itself.
//!
//! Life of a request: [`services`] and [`watch`] take it from gRPC; what reads is answered from the memory image
//! ([`state`]); what writes goes through the queue to the [`writer`] thread, which checks and executes it ([`check`],
//! [`execute`]), commits it
//! to the [`database`] together with what else waits, and only then lets it be seen and answered.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use crate::etcd::{
    kv_server::KVServer, lease_server::LeaseServer, maintenance_server::MaintenanceServer, watch_server::WatchServer,
};

mod check;
mod database;
mod error;
mod execute;
mod lease;
mod services;
mod state;

mod watch;
mod writer;

pub use error::ServerError;
use services::Services;
use writer::Writer;

/// Operations in a transaction, or conditions of it (etcd's default).
pub const TXN_OPERATIONS_MAX: usize = 128;
/// Bytes of a request's keys and values (etcd's default).
pub const REQUEST_BYTES_MAX: usize = 1_536 * 1024;
/// Changes kept for watches and for reads in the past; an eighth more before the oldest are dropped.
pub const HISTORY_CHANGES_MAX: usize = 16_384;
/// Events in one answer of a watch; a revision is never split, so one of more events makes a larger answer.
const WATCH_EVENTS_MAX: usize = 1_000;
/// Watches on one stream.
const WATCHES_PER_STREAM_MAX: usize = 1_024;
/// Answers queued on a stream before its producer waits for the client.
const STREAM_ANSWERS_MAX: usize = 16;
/// Writing requests waiting for the writer thread.
const QUEUE_REQUESTS_MAX: usize = 1_024;
/// Writing requests in one commit.
const BATCH_REQUESTS_MAX: usize = 128;
/// Memory of the database's page cache; everything hot is in the memory image anyway.
const CACHE_BYTES_MAX: usize = 4 << 20;
/// How often ended leases are looked for.
const LEASE_CHECK: Duration = Duration::from_millis(250);
/// Room in a gRPC message for what is not keys and values.
const MESSAGE_OVERHEAD_BYTES: usize = 512 * 1024;
/// How long a stopping server waits for its clients' streams to end.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// A running embedded server; stops when dropped, or with [`EmbeddedServer::stop`].
#[derive(Debug)]
pub struct EmbeddedServer {
    address: SocketAddr,
    path: PathBuf,
    stop: watch_channel::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EmbeddedServer {
    /// Opens (or makes) the database file `path` and serves it on `address`; port 0 takes a free one. Runs on the
    /// current tokio runtime.
    pub async fn start(path: &Path, address: SocketAddr) -> Result<EmbeddedServer, ServerError> {
        let bind = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let for_open = path.to_path_buf();
        let failed = |reason: String| ServerError::Database { path: path.to_path_buf(), reason };
        let opened = tokio::task::spawn_blocking(move || database::Database::open(&for_open, Instant::now())).await;
        let (database, state, leases) = opened.map_err(|error| failed(error.to_string()))??;
        let (writer, thread) = Writer::start(database, state, leases).map_err(|error| failed(error.to_string()))?;
        let (stop, stopping) = watch_channel::channel(false);

        let services = Services { writer: writer.clone(), stopping: stopping.clone() };
        let message_max = REQUEST_BYTES_MAX + MESSAGE_OVERHEAD_BYTES;
        let router = tonic::transport::Server::builder()
            .add_service(KVServer::new(services.clone()).max_decoding_message_size(message_max))
            .add_service(WatchServer::new(services.clone()))
            .add_service(LeaseServer::new(services.clone()))
            .add_service(MaintenanceServer::new(services));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut until_stop = stopping.clone();
        let serve = tokio::spawn(async move {
            let stop = async move { stopped(&mut until_stop).await };
            // Errors of single connections end those; the listener's own can't be helped here.
            let _ended = router.serve_with_incoming_shutdown(incoming, stop).await;
        });
        let expire = tokio::spawn(expire_leases(writer, stopping));
        Ok(EmbeddedServer { address, path: path.to_path_buf(), stop, tasks: vec![serve, expire], thread: Some(thread) })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends every stream, waits for requests in progress, and closes the database.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for mut task in self.tasks.drain(..) {
            if tokio::time::timeout(STOP_WAIT, &mut task).await.is_err() {
                task.abort();
            }
        }
        if let Some(thread) = self.thread.take() {
            // The thread ends when the last service is dropped, which happened above; it can't have panicked silently,
            // because every request after that would have failed.
            let _joined = tokio::time::timeout(STOP_WAIT, tokio::task::spawn_blocking(move || thread.join())).await;
        }
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Waits until the server is told to stop, or dropped.
async fn stopped(stopping: &mut watch_channel::Receiver<bool>) {
    drop(stopping.wait_for(|stop| *stop).await);
}

/// Revokes leases whose time is over. When this task itself was held up (a paused machine), so were the renewals, and
/// every lease gets the lost time back.
async fn expire_leases(writer: Writer, mut stopping: watch_channel::Receiver<bool>) {
    let mut last = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LEASE_CHECK) => {}
            () = stopped(&mut stopping) => return,
        }
        let now = Instant::now();
        let lost = now.duration_since(last).saturating_sub(LEASE_CHECK * 4);
        last = now;
        let expired = {
            let mut leases = writer.shared.leases();
            leases.extend_all(lost);
            leases.expired(now)
        };
        for id in expired {
            let revoke = move |execution: execute::Execution<'_>| {
                let over = execution.leases.get(id).is_some_and(|lease| lease.deadline <= Instant::now());
                if over { execution.revoke(id) } else { Ok(()) }
            };
            // A failed database is reported by every request; the lease is looked at again in the next round.
            let _outcome = writer.write(revoke).await;
        }
    }
}
