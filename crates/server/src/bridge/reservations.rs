//! Reservations: what sessions ask of them is carried out, all shards are told how they stand, and others are told when
//! all shards heed that (docs/decisions/0046-reservations.md).

use crate::driver::commands::{AllReservations, Command};
use crate::driver::messages::Handles;
use azekura_base::{NodeId, Shard, VolumeId};
use azekura_control::Reserver;
use azekura_control::reservations::{Asked, Told};
use azekura_frontend::{ReservationAnswer, ReservationRequest, Reservations};
use azekura_meta::MetaClient;
use azekura_model::{MetaError, Model, ReservationsRecord, Versioned};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A client hears that it is to ask again when this node does not know within this time how things stand.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// Pause before a confirmation is tried again that the configuration server did not take.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What was made of a record; of none where it can't be read.
type Made = (Option<Arc<Versioned<ReservationsRecord>>>, Arc<Reservations>);

/// Makes what shards are told of reservations. What has not changed is not made anew.
#[derive(Default)]
pub struct ReservationViews {
    made: BTreeMap<VolumeId, Made>,
    is_offered: bool,
}

impl ReservationViews {
    /// What shards are to be told; `None` where they know. Nothing is offered to clients as long as there are nodes
    /// that would let everybody write.
    pub fn news(&mut self, model: &Model) -> Option<Arc<AllReservations>> {
        let known = &self.made;
        let of = |id: VolumeId, record: Option<&Arc<Versioned<ReservationsRecord>>>| {
            let is_same = |made: &&Made| match (&made.0, record) {
                (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                (None, None) => true,
                _ => false,
            };
            let make =
                || Arc::new(record.map_or_else(Reservations::closed, |record| Reservations::of(record.record.clone())));
            let now = known.get(&id).filter(is_same).map_or_else(make, |(_, now)| Arc::clone(now));
            (id, (record.cloned(), now))
        };
        let readable = model.reservations.iter().map(|(id, record)| of(*id, Some(record)));
        let made: BTreeMap<VolumeId, Made> =
            readable.chain(model.unread_reservations().map(|id| of(id, None))).collect();
        let is_offered = self.is_offered || !made.is_empty() || model.ignoring_reservations().is_empty();
        let same = made.len() == known.len()
            && made.iter().zip(known).all(|((id, (_, now)), (other, (_, was)))| id == other && Arc::ptr_eq(now, was));
        let is_news = is_offered && !(same && self.is_offered);
        (self.made, self.is_offered) = (made, is_offered);
        is_news.then(|| Arc::new(self.made.iter().map(|(id, (_, now))| (*id, Arc::clone(now))).collect()))
    }
}

/// For each volume, up to which change each shard heeds its reservations.
type Heeded = BTreeMap<VolumeId, BTreeMap<Shard, u64>>;

/// The reservations of this process's clients.
pub struct ReservationKeeper {
    reserver: Reserver,
    client: MetaClient,
    shards: Handles,
    /// Up to which revision the data plane has been told of the configuration.
    configured: watch::Receiver<u64>,
    heeded: watch::Sender<Heeded>,
}

impl ReservationKeeper {
    /// A keeper that carries out by `reserver`. `configured` follows the revision of the configuration that all shards
    /// have been told last.
    pub fn new(
        reserver: Reserver,
        client: MetaClient,
        shards: Handles,
        configured: watch::Receiver<u64>,
    ) -> ReservationKeeper {
        ReservationKeeper { reserver, client, shards, configured, heeded: watch::Sender::default() }
    }

    /// A shard heeds all changes of a volume's reservations up to this one.
    pub fn heeds(&self, shard: Shard, volume: VolumeId, number: u64) {
        self.heeded.send_modify(|heeded| {
            heeded.entry(volume).or_default().insert(shard, number);
        });
    }

    /// A client of a shard asks something, and is answered by this token.
    pub fn asked(&self, shard: Shard, token: u64, volume: Arc<str>, id: VolumeId, request: ReservationRequest) {
        let (reserver, client, shards) = (self.reserver.clone(), self.client.clone(), self.shards.clone());
        let configured = self.configured.clone();
        tokio::spawn(async move {
            let asked = match request {
                ReservationRequest::Read => Asked::Read,
                ReservationRequest::Change { from, command } => Asked::Change(from, command),
            };
            let told = match reserver.ask(&volume, id, &asked).await {
                Ok(told) => until_known(&client, configured, told.revision).await.map(|()| told),
                Err(error) => Err(error),
            };
            shards.send(shard, Command::Reserved(token, answer(&volume, told)));
        });
    }

    /// Confirms in the configuration what this process (node and incarnation) heeds, for those who wait for that; ends
    /// with its task.
    pub fn confirm_what_is_heeded(&self, process: (NodeId, u64)) -> impl Future<Output = ()> + Send + use<> {
        let (client, count, mut heeded) = (self.client.clone(), self.shards.count(), self.heeded.subscribe());
        async move {
            let mut models = client.watch_model();
            loop {
                let model = models.borrow_and_update().clone();
                let due = due(&model, &heeded.borrow_and_update(), count, process);
                let mut has_failed = false;
                for (name, id, number) in due {
                    match client.heed_reservations(&name, id, process, number).await {
                        Ok(()) | Err(MetaError::NotFound { .. }) => {}
                        Err(error) => {
                            tracing::warn!(volume = %name, "can't confirm the reservation of volume {name}: {error}");
                            has_failed = true;
                        }
                    }
                }
                let again = async {
                    match has_failed {
                        true => tokio::time::sleep(RETRY_PAUSE).await,
                        false => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = models.changed() => if changed.is_err() { return },
                    changed = heeded.changed() => if changed.is_err() { return },
                    () = again => {}
                }
            }
        }
    }
}

/// What is to be confirmed: volumes of which somebody waits for a process, whose shards all heed the change.
fn due(model: &Model, heeded: &Heeded, shards: usize, process: (NodeId, u64)) -> Vec<(String, VolumeId, u64)> {
    let waiting = model.reservations.iter().filter_map(|(id, record)| {
        let due = record.fence_due?;
        let mine = model.attachments.get(id)?.of_process(process);
        let by_shard = heeded.get(id).filter(|by_shard| by_shard.len() == shards)?;
        let number = by_shard.values().copied().min().filter(|number| *number >= due)?;
        let volume = model.volumes.values().find(|volume| volume.id == *id)?;
        (!mine.iter().all(|name| record.is_heeded_by(*name))).then(|| (volume.name.clone(), *id, number))
    });
    waiting.collect()
}

/// Waits until all shards know the configuration up to a revision: who is answered is not barred by what was before.
async fn until_known(
    client: &MetaClient,
    mut configured: watch::Receiver<u64>,
    revision: i64,
) -> Result<(), MetaError> {
    let model = client.model_at(revision).await?;
    let revision = u64::try_from(model.revision).unwrap_or(0);
    match tokio::time::timeout(KNOWN_WITHIN, configured.wait_for(|upto| *upto >= revision)).await {
        Ok(Ok(_)) => Ok(()),
        _ => {
            let reason = format!("this node has not read the configuration for {KNOWN_WITHIN:?}");
            Err(MetaError::NotNow { what: "a reservation".to_owned(), reason })
        }
    }
}

/// What a client is told.
fn answer(volume: &str, told: Result<Told, MetaError>) -> ReservationAnswer {
    match told {
        Ok(Told { status: Some(status), .. }) => ReservationAnswer::Status(status),
        Ok(Told { record, .. }) => ReservationAnswer::Record(Box::new(record)),
        Err(error) => {
            tracing::warn!(
                volume,
                "what a client asks of the reservations of volume {volume} is not answered: {error}"
            );
            let is_for_good = matches!(error, MetaError::NotFound { .. } | MetaError::Broken { .. });
            if is_for_good { ReservationAnswer::Failed } else { ReservationAnswer::Later }
        }
    }
}
