//! The leader's background work: what `azekura_plans` says is to be done next. It runs on the node that leads the
//! control plane. A round may stop anywhere; what is left of it is planned again, by whoever leads then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::transitions::cuts::VolumeCut;
use azekura_model::{MetaError, Model, RemovalStep, SnapshotOrigin};
use azekura_plans::layers::LayerPlan;
use azekura_plans::{Leader, Moment, Plan, cuts};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::attachments::FREEZE_WAIT;
use crate::snapshots::{Snapshots, name_of_time};

/// Pause between two rounds, so that many changes at once make one round.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// A round is taken at the latest after this time, whether or not anything has changed.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

// Whoever makes a snapshot has given up before the leader calls it off.
const _: () = assert!(cuts::PATIENCE.as_secs() > FREEZE_WAIT.as_secs());

/// One node's time as the leader.
struct Leadership {
    meta: MetaClient,
    snapshots: Snapshots,
    leader: Leader,
    begun: Instant,
    /// Snapshots of protected volumes that are being made.
    making: JoinSet<(String, Result<(), MetaError>)>,
}

/// Does what is to be done whenever the model changes while this node leads; ends with its task.
pub async fn run(meta: MetaClient, mut leads: watch::Receiver<bool>, snapshots: Snapshots) {
    let mut models = meta.watch_model();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let mut leadership = Leadership::new(meta.clone(), snapshots.clone());
        while *leads.borrow() {
            let model: Arc<Model> = models.borrow_and_update().clone();
            let all_done = leadership.round(&model).await;
            tokio::time::sleep(if all_done { ROUND_PAUSE } else { FAILURE_PAUSE }).await;
            // A failed round is taken again at the next change or, without one, at the latest after the interval.
            let interval = leadership.now().elapsed + ROUND_INTERVAL;
            let due = leadership.leader.next(&model, leadership.now()).unwrap_or(interval).min(interval);
            let changed = tokio::time::timeout_at(leadership.begun + due, models.changed());
            tokio::select! {
                outcome = changed => if matches!(outcome, Ok(Err(_))) { return },
                outcome = leads.changed() => if outcome.is_err() { return },
            }
        }
    }
}

impl Leadership {
    fn new(meta: MetaClient, snapshots: Snapshots) -> Leadership {
        Leadership { meta, snapshots, leader: Leader::default(), begun: Instant::now(), making: JoinSet::new() }
    }

    fn now(&self) -> Moment {
        Moment { elapsed: self.begun.elapsed(), unix_seconds: unix_seconds() }
    }

    /// Does what is to be done now; false when something of it has failed, which holds up nothing of another subject.
    async fn round(&mut self, model: &Arc<Model>) -> bool {
        let now = self.now();
        while let Some(made) = self.making.try_join_next() {
            let Ok((volume, outcome)) = made else { continue };
            self.leader.made(&volume, outcome.is_err(), now.unix_seconds);
            if let Err(error) = outcome {
                tracing::warn!(volume, "protection of volume {volume}: {error}");
            }
        }
        let round = self.leader.step(model, now);
        round.snapshots.into_iter().for_each(|volume| self.begin_snapshot(volume, now.unix_seconds));
        let mut failed: BTreeSet<&str> = BTreeSet::new();
        let mut moved = [0; 3];
        for plan in &round.plans {
            let subject = plan.subject();
            if failed.contains(subject) {
                continue;
            }
            tell_begin(plan);
            let taken = self.meta.run_known(subject, model, |records| plan.transition(model, records)).await;
            match (taken, plan) {
                (Ok((true, _)), Plan::Move(done)) => moved[done.reason as usize] += 1,
                (Ok((true, _)), done) => tell_done(done),
                (Ok((false, _)), _) => {}
                (Err(error), _) => {
                    tell_failed(plan, &error);
                    failed.insert(subject);
                }
            }
        }
        tell_moved(moved);
        if !failed.is_empty() {
            self.leader.look_again();
        }
        failed.is_empty()
    }

    /// Makes a protected volume's snapshot.
    fn begin_snapshot(&mut self, volume: String, now: u64) {
        let snapshots = self.snapshots.clone();
        self.making.spawn(async move {
            let cut = VolumeCut::snapshot(&volume, &name_of_time("", now), SnapshotOrigin::Schedule);
            let outcome = match snapshots.cut(&[cut]).await {
                // A person was here in the same second.
                Ok(_) | Err(MetaError::Exists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            (volume, outcome)
        });
    }
}

/// Tells of what is about to be done, and what people should hear of even if it fails.
fn tell_begin(plan: &Plan) {
    match plan {
        Plan::CallOff(cut) => {
            let names = cut.volumes.join(", ");
            tracing::warn!(volume = names, "a snapshot of {names} is called off: nobody has finished it");
        }
        Plan::AdoptLayer(layer) => tracing::warn!(
            layer = %layer.id,
            "layer {} is on devices, and nothing in the configuration says whose it is: it stays",
            layer.id
        ),
        Plan::Layer(LayerPlan::Begin(layer, end)) => {
            tracing::debug!(layer = %layer, "layer {layer} is not needed any more: {end:?}");
        }
        _ => {}
    }
}

/// Tells of what could not be done.
fn tell_failed(plan: &Plan, error: &MetaError) {
    let (mut group, mut device, mut layer, mut peer) = (None, None, None, None);
    match plan {
        Plan::Reopen(record, _) | Plan::Removal(RemovalStep::Group(record, _)) => group = Some(record.id),
        Plan::Move(wanted) => group = Some(wanted.group),
        Plan::AdoptLayer(record) => layer = Some(record.id),
        Plan::Layer(LayerPlan::Remove(id) | LayerPlan::Begin(id, _)) => layer = Some(*id),
        Plan::Removal(RemovalStep::Device(id)) => device = Some(*id),
        Plan::Removal(RemovalStep::Node(id)) => peer = Some(*id),
        _ => {}
    }
    tracing::warn!(
        group = group.map(tracing::field::display),
        device = device.map(tracing::field::display),
        layer = layer.map(tracing::field::display),
        peer = peer.map(tracing::field::display),
        "{}: {error}",
        plan.subject()
    );
}

/// Tells of what has been done.
fn tell_done(plan: &Plan) {
    match plan {
        Plan::EndRestoration => tracing::info!("the configuration was restored, and all groups are open again"),
        Plan::Layer(LayerPlan::Remove(layer)) => {
            tracing::debug!(layer = %layer, "layer {layer} is gone from every device");
        }
        Plan::Removal(RemovalStep::Node(node)) => tracing::info!(peer = %node, "node {node} is removed"),
        Plan::Removal(RemovalStep::Device(device)) => tracing::info!(device = %device, "device {device} is removed"),
        _ => {}
    }
}

/// Tells how many groups move, by their reasons.
fn tell_moved([repaired, drained, balanced]: [usize; 3]) {
    if repaired > 0 {
        tracing::info!(
            "{repaired} groups get new homes for copies of nodes that stay away or devices that have failed"
        );
    }
    if drained + balanced > 0 {
        tracing::debug!("{drained} groups leave drained devices, {balanced} move for balance");
    }
}
