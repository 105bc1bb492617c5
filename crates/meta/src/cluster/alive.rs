//! Keys that live as long as their holder: a node's sign of life, and the leadership of the control plane.

use std::sync::Arc;
use std::time::Duration;

use azekura_base::NodeId;
use azekura_model::transitions::alive::{Claim, LIFE_TTL_SECONDS};
use azekura_model::{EtcdError, Model};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::MetaClient;
use crate::client::{EtcdClient, LeaseStream, Txn};
use crate::time::now_rfc3339;

/// Renewals are sent this often.
const RENEW_INTERVAL: Duration = Duration::from_millis(1_500);
/// An answer to a renewal is waited for this long before another endpoint is tried.
const RENEW_WAIT: Duration = Duration::from_millis(1_000);
/// The holder stops counting on the key this long after its last renewal: before the server may give it away.
const HOLD_TIME: Duration = Duration::from_millis(4_000);
/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A key that is held, or being regained, until this is dropped or released.
#[derive(Debug)]
pub struct LeaseHold {
    held: watch::Receiver<bool>,
    lease: Arc<watch::Sender<i64>>,
    task: JoinHandle<()>,
    etcd: EtcdClient,
}

impl LeaseHold {
    /// Whether the key is held: true only while no other client can have it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Follows [`LeaseHold::is_held`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.held.clone()
    }

    /// Gives the key up at once, instead of letting its time run out.
    pub async fn release(self) {
        self.task.abort();
        let lease = *self.lease.borrow();
        if lease != 0 {
            // If it can't be told now, the time runs out.
            let _outcome = self.etcd.revoke(lease).await;
        }
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MetaClient {
    /// Keeps the node's sign of life until the answer is dropped or released; it comes back by itself after the
    /// server was away.
    #[must_use]
    pub fn keep_alive(&self, node: NodeId) -> LeaseHold {
        self.hold(Claim::Alive(node))
    }

    /// Stands for leader until the answer is dropped or released. [`LeaseHold::is_held`]: this node leads.
    #[must_use]
    pub fn campaign(&self, node: NodeId) -> LeaseHold {
        self.hold(Claim::Leader(node))
    }

    fn hold(&self, claim: Claim) -> LeaseHold {
        let (held_sender, held) = watch::channel(false);
        let lease = Arc::new(watch::Sender::new(0));
        let etcd = self.inner.etcd.clone();
        let holder = Holder {
            etcd: etcd.clone(),
            model: self.inner.model.clone(),
            claim,
            held: held_sender,
            lease: Arc::clone(&lease),
        };
        LeaseHold { held, lease, task: tokio::spawn(holder.run()), etcd }
    }
}

struct Holder {
    etcd: EtcdClient,
    model: watch::Receiver<Arc<Model>>,
    claim: Claim,
    held: watch::Sender<bool>,
    lease: Arc<watch::Sender<i64>>,
}

impl Holder {
    async fn run(mut self) {
        loop {
            // The client is gone when the model's sender is; then nobody can need the key.
            let claim = self.claim;
            if self.model.wait_for(|model| !claim.is_taken(model)).await.is_err() {
                return;
            }
            if let Ok(Some((lease, mod_revision, since))) = self.acquire().await {
                self.lease.send_replace(lease);
                self.held.send_replace(true);
                self.keep(lease, mod_revision, since).await;
                self.held.send_replace(false);
                self.lease.send_replace(0);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Takes the key with a new lease; `None`: somebody else has it. Also answers its revision and when the lease's
    /// time began, at the latest.
    async fn acquire(&self) -> Result<Option<(i64, i64, Instant)>, EtcdError> {
        let since = Instant::now();
        let lease = self.etcd.grant(LIFE_TTL_SECONDS).await?;
        let (key, value) = (self.claim.key().to_string(), self.claim.value(&now_rfc3339()));
        let answer = self.etcd.txn(Txn::from(self.claim.conditions()).put_leased(&key, value, lease)).await?;
        if !answer.succeeded {
            let _left_to_end = self.etcd.revoke(lease).await;
            return Ok(None);
        }
        Ok(Some((lease, answer.header.map_or(0, |header| header.revision), since)))
    }

    /// Renews the lease until it, or its key, is lost.
    async fn keep(&mut self, lease: i64, mod_revision: i64, since: Instant) {
        let mut renewed = since;
        let mut stream: Option<LeaseStream> = None;
        loop {
            let sent = Instant::now();
            let alive = match &mut stream {
                Some(open) => open.renew(RENEW_WAIT).await.map(Some),
                None => match self.etcd.keep_alive(lease, RENEW_WAIT).await {
                    Ok(Some(open)) => {
                        stream = Some(open);
                        Ok(Some(true))
                    }
                    Ok(None) => Ok(Some(false)),
                    Err(error) => Err(error),
                },
            };
            let wait = match alive {
                Ok(Some(true)) => {
                    renewed = sent;
                    RENEW_INTERVAL
                }
                Ok(_) => return,
                Err(_) => {
                    stream = None;
                    RETRY_PAUSE
                }
            };
            let lost = self.claim.is_lost(&self.model.borrow(), mod_revision);
            if lost || renewed.elapsed() + wait >= HOLD_TIME {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }
}
