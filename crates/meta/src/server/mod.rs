//! The embedded configuration server: the etcd v3 API subset that Azekura uses, for one machine or a small lab, from a
//! redb database. Real etcd clients, `etcdctl` among them, work with it.
//!
//! It speaks TLS with nodes that its own database knows by their keys (`secured`, `admission`), or plain HTTP/2 with
//! everybody, as it is told.
//!
//! What it is not: replicated. A cluster that must outlive a machine uses etcd itself.
//!
//! Life of a request: `services` and `watch` take it from gRPC; what reads is answered from the memory image
//! (`state`); what writes goes through the queue to the `writer` thread, which checks and executes it (`check`,
//! `execute`), commits it to the `database` together with what else waits, and only then lets it be seen and
//! answered. Leases that nobody renews end in the same way (`expiry`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;

use crate::etcd::{
    kv_server::KVServer, lease_server::LeaseServer, maintenance_server::MaintenanceServer, watch_server::WatchServer,
};

mod admission;
mod batch;
mod check;
mod database;
mod error;
mod execute;
mod expiry;
mod lease;
mod limits;
mod range;
mod secured;
mod services;
mod state;
mod stopping;
mod watch;
mod writer;

pub use error::ServerError;
pub use limits::{HISTORY_CHANGES_MAX, REQUEST_BYTES_MAX, TXN_OPERATIONS_MAX};
pub use secured::ServerTls;

use admission::{Admission, Gate};
use limits::{MESSAGE_OVERHEAD_BYTES, STOP_WAIT};
use services::Services;
use stopping::Stop;
use writer::Writer;

use crate::stream::ReceiverStream;

/// Requests that a connection's client may have given up before they were looked at; with more the connection ends, and
/// all that is under way on it fails. After this process has stood still for a while, each group of a node may have
/// given one up.
const GIVEN_UP_MAX: usize = 4096;

/// A running embedded server; stops when dropped, or with [`EmbeddedServer::stop`].
///
/// # How it is driven
///
/// By its clients. [`EmbeddedServer::start`] opens the database and leaves behind a task that serves gRPC, a task that
/// ends leases whose time is over, and the writer's thread, which alone changes anything.
///
/// # States
///
/// ```text
///   a writing request:  queued ──► checked, executed in memory ──► on the disk with its batch ──► seen and answered
///                              └─► refused: nothing has changed
///   the server:         serving ──► stopping: streams end, requests in progress are waited for
///                       serving ──► failed: the database could not commit; every request is told so
/// ```
///
/// # What it costs
///
/// All keys and the last [`HISTORY_CHANGES_MAX`] changes (an eighth more at times) in memory, and on the disk. One
/// commit of the database for all requests that came while the one before was made, 128 at most. Who reads waits while
/// a commit is made, since nothing is seen before it is durable. A watch costs a place in the history, no queue.
#[derive(Debug)]
pub struct EmbeddedServer {
    address: SocketAddr,
    path: PathBuf,
    stop: Stop,
    tasks: Vec<JoinHandle<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EmbeddedServer {
    /// Opens (or makes) the database file `path` and serves it on `address`, in clear and to everybody; port 0 takes a
    /// free one. Runs on the current tokio runtime.
    ///
    /// # Errors
    /// When the database can't be used, or the address can't be listened on.
    pub async fn start(path: &Path, address: SocketAddr) -> Result<EmbeddedServer, ServerError> {
        EmbeddedServer::start_as(path, address, None).await
    }

    /// The same with TLS 1.3, to nodes alone that prove a key which the database knows.
    ///
    /// # Errors
    /// As [`EmbeddedServer::start`].
    pub async fn start_secured(
        path: &Path,
        address: SocketAddr,
        tls: ServerTls,
    ) -> Result<EmbeddedServer, ServerError> {
        EmbeddedServer::start_as(path, address, Some(tls)).await
    }

    async fn start_as(path: &Path, address: SocketAddr, tls: Option<ServerTls>) -> Result<EmbeddedServer, ServerError> {
        let bind = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let for_open = path.to_path_buf();
        let failed = |reason: String| ServerError::Database { path: path.to_path_buf(), reason };
        let opened = tokio::task::spawn_blocking(move || database::Database::open(&for_open, Instant::now())).await;
        let (database, state, leases) = opened.map_err(|error| failed(error.to_string()))??;
        let (writer, thread) = Writer::start(database, state, leases).map_err(|error| failed(error.to_string()))?;
        let (stop, stopping) = stopping::channel();

        let services = Services { writer: writer.clone(), stopping: stopping.clone() };
        let message_max = REQUEST_BYTES_MAX + MESSAGE_OVERHEAD_BYTES;
        let kv = KVServer::new(services.clone()).max_decoding_message_size(message_max);
        let keys = writer.shared.keys.subscribe();
        let admission = tls.as_ref().map(|tls| Admission::new(tls.own(), keys));
        let gate = Gate(admission.clone());
        let router = tonic::transport::Server::builder()
            .http2_max_pending_accept_reset_streams(Some(GIVEN_UP_MAX))
            .add_service(InterceptedService::new(kv, gate.clone()))
            .add_service(InterceptedService::new(WatchServer::new(services.clone()), gate.clone()))
            .add_service(InterceptedService::new(LeaseServer::new(services.clone()), gate.clone()))
            .add_service(InterceptedService::new(MaintenanceServer::new(services), gate));
        let mut until_stop = stopping.clone();
        let until = async move { until_stop.told().await };
        // Errors of single connections end those; the listener's own can't be helped here.
        let serve = match tls.zip(admission) {
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                tokio::spawn(async move { drop(router.serve_with_incoming_shutdown(incoming, until).await) })
            }
            Some((tls, admission)) => {
                let (arrived, connections) = mpsc::channel(1);
                tokio::spawn(async move {
                    let serve = router.serve_with_incoming_shutdown(ReceiverStream(connections), until);
                    tokio::select! {
                        _ended = serve => {}
                        () = secured::accept(listener, tls, admission, arrived) => {}
                    }
                })
            }
        };
        let expire = tokio::spawn(expiry::expire(writer, stopping));
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
        self.stop.tell();
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
        self.stop.tell();
    }
}
