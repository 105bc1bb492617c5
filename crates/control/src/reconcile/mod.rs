//! Reconcilers: each compares what the configuration wants with what is, and does the next step towards it. They run
//! on the node that leads the control plane. A step may stop anywhere and is taken again by the next leader.

use std::sync::Arc;
use std::time::Duration;

use azekura_meta::{MetaClient, MetaError, Model};
use tokio::sync::watch;
use tokio::time::Instant;

mod rehome;
mod tombstones;

/// Pause between two rounds, so that many changes at once make one round.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// A round is taken at the latest after this time, whether or not anything has changed.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// Runs the reconcilers whenever the model changes while this node leads; ends with its task.
pub async fn run(meta: MetaClient, mut leads: watch::Receiver<bool>) {
    let mut models = meta.watch_model();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let mut absences = rehome::Absences::default();
        while *leads.borrow() {
            let model: Arc<Model> = models.borrow_and_update().clone();
            let outcome = round(&meta, &model, &mut absences).await;
            tokio::time::sleep(if outcome.is_ok() { ROUND_PAUSE } else { FAILURE_PAUSE }).await;
            // A failed round is taken again at the next change or, without one, at the latest after the interval.
            let now = Instant::now();
            let due = absences.next(rehome::patience(&model), now).unwrap_or(now + ROUND_INTERVAL);
            let changed = tokio::time::timeout_at(due.min(now + ROUND_INTERVAL), models.changed());
            tokio::select! {
                outcome = changed => if matches!(outcome, Ok(Err(_))) { return },
                outcome = leads.changed() => if outcome.is_err() { return },
            }
        }
    }
}

/// One step of every reconciler; one that fails does not hold up the others.
async fn round(meta: &MetaClient, model: &Model, absences: &mut rehome::Absences) -> Result<(), MetaError> {
    let layers = tombstones::reconcile(meta, model).await;
    if let Err(error) = &layers {
        tracing::warn!("removing deleted layers: {error}");
    }
    let groups = rehome::reconcile(meta, model, absences, Instant::now()).await;
    if let Err(error) = &groups {
        tracing::warn!("giving groups new homes: {error}");
    }
    layers.and(groups)
}
