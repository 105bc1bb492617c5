//! Reconcilers: each compares what the configuration wants with what is, and does the next step towards it. They run
//! on the node that leads the control plane. A step may stop anywhere and is taken again by the next leader.

use std::sync::Arc;
use std::time::Duration;

use azekura_meta::{MetaClient, Model};
use tokio::sync::watch;

mod tombstones;

/// Pause between two rounds, so that many changes at once make one round.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

/// Runs the reconcilers whenever the model changes while this node leads; ends with its task.
pub async fn run(meta: MetaClient, mut leads: watch::Receiver<bool>) {
    let mut models = meta.watch_model();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let model: Arc<Model> = models.borrow_and_update().clone();
        let pause = match tombstones::reconcile(&meta, &model).await {
            Ok(()) => ROUND_PAUSE,
            Err(error) => {
                tracing::warn!("removing deleted layers: {error}");
                FAILURE_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
        // A failed round is taken again at the next change or, without one, at the latest after this time.
        let changed = tokio::time::timeout(Duration::from_secs(30), models.changed());
        tokio::select! {
            outcome = changed => if matches!(outcome, Ok(Err(_))) { return },
            outcome = leads.changed() => if outcome.is_err() { return },
        }
    }
}
