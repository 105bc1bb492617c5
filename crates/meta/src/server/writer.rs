//! The one place that changes the state: a thread that executes writing requests in order, commits them to the
//! database in groups, and answers only what is on the disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{RwLock, mpsc, oneshot, watch};

use super::admission::{Keys, concerns, keys_in};
use super::batch::Batch;
use super::database::Database;
use super::error::RequestError;
use super::execute::Execution;
use super::lease::Leases;
use super::limits::{BATCH_REQUESTS_MAX, QUEUE_REQUESTS_MAX};
use super::state::State;

/// Executes one request and returns what sends its answer, or its failure to reach the disk.
type Job = Box<dyn FnOnce(&mut State, &mut Leases, &mut Batch) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), RequestError>) + Send>;

/// State shared by the writer thread and the gRPC services.
#[derive(Debug)]
pub struct Shared {
    /// The memory image. The writer holds its lock through the commit, so a reader sees durable changes only.
    pub state: RwLock<State>,
    /// The leases; a lock of its own, so that renewals don't wait for the disk.
    leases: Mutex<Leases>,
    /// Newest durable revision, for the watches.
    pub revision: watch::Sender<i64>,
    /// The keys of all nodes, for whoever lets in nodes alone. Who is told that a record has changed finds that here.
    pub keys: watch::Sender<Keys>,
    /// Bytes of the database file after the last commit.
    pub size: std::sync::atomic::AtomicU64,
}

impl Shared {
    /// The leases, locked; never held across an await or a commit.
    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands requests to the writer thread.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: mpsc::Sender<Job>,
    /// The state to read.
    pub shared: Arc<Shared>,
}

impl Writer {
    /// Starts the thread. It ends when every `Writer` is dropped, and then closes the database.
    pub fn start(
        database: Database,
        state: State,
        leases: Leases,
    ) -> std::io::Result<(Writer, std::thread::JoinHandle<()>)> {
        let (queue, jobs) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let revision = watch::Sender::new(state.revision);
        let size = database.size().into();
        let keys = watch::Sender::new(keys_in(&state));
        let shared = Arc::new(Shared { state: RwLock::new(state), leases: Mutex::new(leases), revision, keys, size });
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("azekura-config".into())
            .spawn(move || run(&database, &for_thread, jobs))?;
        Ok((Writer { queue, shared }, thread))
    }

    /// Executes a request; returns its answer when its changes are on the disk.
    pub async fn write<T: Send + 'static>(
        &self,
        request: impl FnOnce(Execution<'_>) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |state, leases, batch| {
            let outcome = request(Execution::new(state, leases, batch));
            // A client that is gone needs no answer.
            Box::new(move |committed| drop(answer.send(committed.and(outcome))))
        });
        let stopped = || RequestError::Failed("the server is stopping".into());
        self.queue.send(job).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

fn run(database: &Database, shared: &Shared, mut jobs: mpsc::Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        let mut group = vec![first];
        while group.len() < BATCH_REQUESTS_MAX {
            let Ok(job) = jobs.try_recv() else { break };
            group.push(job);
        }
        let mut state = shared.state.blocking_write();
        let mut batch = Batch::default();
        let mut answers = Vec::with_capacity(group.len());
        {
            let mut leases = shared.leases();
            for job in group {
                answers.push(job(&mut state, &mut leases, &mut batch));
            }
        }
        if let Some(revision) = state.compaction_due() {
            // The revision lies inside the history, so this can't be refused.
            if state.compact(revision).is_ok() {
                batch.compacted = Some(revision);
            }
        }
        if state.failure.is_none() && !batch.is_empty() {
            if let Err(error) = database.commit(&batch, state.revision) {
                state.failure = Some(error.to_string());
            }
            shared.size.store(database.size(), std::sync::atomic::Ordering::Relaxed);
        }
        let committed = state.check_failure();
        if committed.is_ok() && batch.changes.iter().any(|change| concerns(&change.key)) {
            shared.keys.send_replace(keys_in(&state));
        }
        let revision = state.revision;
        drop(state);
        // Also after a failure: the watches then find it and end.
        shared.revision.send_if_modified(|last| std::mem::replace(last, revision) != revision);
        for answer in answers {
            answer(committed.clone());
        }
    }
}
