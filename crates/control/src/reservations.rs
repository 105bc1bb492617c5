//! Carrying commands of reservations out: the record first, then the fence, then the answer
//! (docs/decisions/0046-reservations.md).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_base::{Generation, NodeId, VolumeId};
use azekura_meta::MetaClient;
use azekura_model::{
    AttachmentsRecord, MetaError, RegistrantName, ReservationCommand, ReservationStatus, ReservationsRecord,
};
use tokio::time::Instant;

use crate::attachments::{Attacher, node_name};

/// How long a process may take to confirm that it heeds a change: then its attachment ends by force. Less than hosts
/// wait for a command, and more than a write takes whose group gets another primary.
pub const HEED_WAIT: Duration = Duration::from_secs(6);
/// From when on it is asked whether those who have not confirmed have ended.
const GONE_AFTER: Duration = Duration::from_millis(500);
/// Without news of the configuration, it is read again after this time.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What is asked of a volume's reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The record.
    Read,
    /// A command that may change it.
    Change(RegistrantName, ReservationCommand),
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The record, as it was when no fence was due. It has the command in it, and may have later ones.
    pub record: ReservationsRecord,
    /// A revision from which on all of that is so: whoever is answered is to know the configuration up to there.
    pub revision: i64,
    /// How a command is answered.
    pub status: Option<ReservationStatus>,
}

/// Carries commands of reservations out. Cheap to clone.
#[derive(Clone)]
pub struct Reserver {
    meta: MetaClient,
    attacher: Attacher,
}

impl Reserver {
    /// Carries out by these means.
    pub fn new(meta: MetaClient, attacher: Attacher) -> Reserver {
        Reserver { meta, attacher }
    }

    /// Asks something of the volume of this name and number. Answers when no fence is due: until then nobody may hear
    /// how things stand, neither a conflict nor the record, since a host takes the absence of its victim for the
    /// answer. Fences that somebody else has left due are ended here.
    ///
    /// # Errors
    /// When the volume is gone, its record can't be read, or a fence is not confirmed. A command may have been carried
    /// out then: whoever sends it again is told how it stands by that time.
    pub async fn ask(&self, volume: &str, id: VolumeId, asked: &Asked) -> Result<Told, MetaError> {
        let status = match asked {
            Asked::Read => None,
            Asked::Change(from, command) => {
                self.check_nodes(volume)?;
                let number = random()?;
                Some(self.meta.change_reservations(volume, id, from, command, number).await?.status)
            }
        };
        loop {
            let (record, revision) = self.meta.reservations_of(volume, id).await?;
            let Some(due) = record.fence_due else { return Ok(Told { record, revision, status }) };
            self.fence(volume, id, due).await?;
            self.meta.confirm_reservations(volume, id, due).await?;
        }
    }

    /// Nodes that know nothing of reservations would let everybody write.
    fn check_nodes(&self, volume: &str) -> Result<(), MetaError> {
        let model = self.meta.model();
        match &model.ignoring_reservations()[..] {
            [] => Ok(()),
            nodes => Err(MetaError::NotReserved { volume: volume.to_owned(), nodes: nodes.join(", ") }),
        }
    }

    /// Waits until every process that has the volume heeds the change of number `due`. Those that have ended, or do not
    /// confirm it in time, are put out, and what they have sent is kept out by the groups.
    async fn fence(&self, volume: &str, id: VolumeId, due: u64) -> Result<(), MetaError> {
        let began = Instant::now();
        loop {
            let mut models = self.meta.watch_model();
            models.mark_unchanged();
            let (record, _) = self.meta.reservations_of(volume, id).await?;
            if record.fence_due != Some(due) {
                return Ok(()); // Somebody else has ended it, or there is a later one.
            }
            // Read after the record: whoever attaches the volume later knows the change.
            let known = self.meta.attachments_of(volume).await?.attachments;
            let missing = missing(&record, &known);
            if missing.is_empty() && !known.fence_due {
                return Ok(());
            }
            let out = self.to_put_out(volume, &missing, began.elapsed()).await?;
            if missing.is_empty() || !out.is_empty() {
                let names: Vec<String> = out.values().map(|node| node_name(&self.meta.model(), *node)).collect();
                if !names.is_empty() {
                    let names = names.join(", ");
                    let ids: Vec<String> = out.values().map(ToString::to_string).collect();
                    let ids = ids.join(", ");
                    tracing::warn!(
                        volume,
                        peer = ids,
                        "volume {volume} is not attached to {names} any more: a reservation was not confirmed there"
                    );
                }
                self.attacher.put_out(volume, &out.into_keys().collect()).await?;
                continue;
            }
            let _news = tokio::time::timeout(LOOK_PAUSE, models.changed()).await;
        }
    }

    /// Of those who have not confirmed, whose attachments end now.
    async fn to_put_out(
        &self,
        volume: &str,
        missing: &BTreeMap<Generation, (NodeId, u64)>,
        waited: Duration,
    ) -> Result<BTreeMap<Generation, NodeId>, MetaError> {
        let gone = match waited {
            _ if missing.is_empty() || waited < GONE_AFTER || waited >= HEED_WAIT => BTreeSet::new(),
            _ => self.attacher.gone(volume).await?,
        };
        let goes = |process: &(NodeId, u64)| waited >= HEED_WAIT || gone.contains(process);
        let out = missing.iter().filter(|(_, process)| goes(process));
        Ok(out.map(|(attachment, (node, _))| (*attachment, *node)).collect())
    }
}

/// The attachments that have not confirmed the change for which a fence is due, and whose they are.
fn missing(record: &ReservationsRecord, attachments: &AttachmentsRecord) -> BTreeMap<Generation, (NodeId, u64)> {
    // Where no process has it, nothing is under way: the next one reads the record first.
    let used =
        attachments.attachments.iter().filter_map(|entry| Some((entry.generation, (entry.node, entry.incarnation?))));
    used.filter(|(attachment, _)| !record.is_heeded_by(*attachment)).collect()
}

/// Names a command.
fn random() -> Result<u64, MetaError> {
    let mut bytes = [0; 8];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| MetaError::Interrupted { reason: format!("no randomness: {error}") })?;
    Ok(u64::from_le_bytes(bytes))
}
