//! Reconcilers: each compares what the configuration wants with what is, and does the next step towards it. They run
//! on the node that leads the control plane. A step may stop anywhere and is taken again by the next leader.

use std::sync::Arc;
use std::time::Duration;

use azekura_meta::MetaClient;
use azekura_model::{MetaError, Model};

use crate::snapshots::Snapshots;
use tokio::sync::watch;
use tokio::time::Instant;

mod cuts;
mod layers;
mod protection;
mod rehome;
mod removal;

/// Pause between two rounds, so that many changes at once make one round.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// A round is taken at the latest after this time, whether or not anything has changed.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// What this leader has seen, and what it has begun. A new leader begins anew.
struct Leader {
    absences: rehome::Absences,
    cuts: cuts::Seen,
    protection: protection::Protector,
}

/// Runs the reconcilers whenever the model changes while this node leads; ends with its task.
pub async fn run(meta: MetaClient, mut leads: watch::Receiver<bool>, snapshots: Snapshots) {
    let mut models = meta.watch_model();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let mut leader = Leader {
            absences: rehome::Absences::default(),
            cuts: cuts::Seen::default(),
            protection: protection::Protector::new(meta.clone(), snapshots.clone()),
        };
        while *leads.borrow() {
            let model: Arc<Model> = models.borrow_and_update().clone();
            let outcome = round(&meta, &model, &mut leader).await;
            tokio::time::sleep(if outcome.is_ok() { ROUND_PAUSE } else { FAILURE_PAUSE }).await;
            // A failed round is taken again at the next change or, without one, at the latest after the interval.
            let now = Instant::now();
            let due =
                [leader.absences.next(rehome::patience(&model), now), leader.cuts.next(), leader.protection.next(now)];
            let due = due.into_iter().flatten().min().unwrap_or(now + ROUND_INTERVAL);
            let changed = tokio::time::timeout_at(due.min(now + ROUND_INTERVAL), models.changed());
            tokio::select! {
                outcome = changed => if matches!(outcome, Ok(Err(_))) { return },
                outcome = leads.changed() => if outcome.is_err() { return },
            }
        }
    }
}

/// One step of every reconciler; one that fails does not hold up the others.
async fn round(meta: &MetaClient, model: &Arc<Model>, leader: &mut Leader) -> Result<(), MetaError> {
    let now = Instant::now();
    let steps = [
        ("calling snapshots off", leader.cuts.reconcile(meta, model, now).await),
        ("making and thinning snapshots", leader.protection.reconcile(model).await),
        ("opening groups after a restore", crate::restored::reconcile(meta, model).await),
        ("removing layers", layers::reconcile(meta, model).await),
        ("removing nodes and devices", removal::reconcile(meta, model).await),
        ("giving groups new homes", rehome::reconcile(meta, model, &mut leader.absences, now).await),
    ];
    let mut all = Ok(());
    for (what, outcome) in steps {
        if let Err(error) = &outcome {
            tracing::warn!("{what}: {error}");
        }
        all = all.and(outcome);
    }
    all
}
