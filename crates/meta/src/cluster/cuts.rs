//! Cuts: a new head layer is put into the place of a volume's, and what was its head becomes a snapshot
//! (docs/decisions/0011-snapshots.md).

use azekura_base::NodeId;
use azekura_model::transitions::cuts::{Cut, VolumeCut, begin_cut, call_off_cut, finish_cut};
use azekura_model::{MetaError, Records, SnapshotRecord, VolumeRecord};

use super::MetaClient;
use crate::time::unix_time;

/// What a finished cut has made.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapped {
    /// The snapshots, in the order of the volumes.
    pub snapshots: Vec<SnapshotRecord>,
    /// The volumes.
    pub volumes: Vec<VolumeRecord>,
    /// The revision in which it was finished, or a later one.
    pub revision: i64,
}

impl MetaClient {
    /// Begins a cut: from this revision on, groups that know of it take nothing for the volumes' heads.
    pub async fn begin_cut(&self, id: &str, node: NodeId, volumes: &[VolumeCut]) -> Result<Cut, MetaError> {
        let begin = |records: &Records<'_>| begin_cut(records, id, node, volumes, unix_time());
        let (volumes, revision) = self.run("beginning a snapshot", begin).await?;
        Ok(Cut { id: id.to_owned(), volumes, revision })
    }

    /// Finishes a cut whose volumes' groups have all stopped: what was to be the head is the head, and what it was is a
    /// snapshot.
    pub async fn finish_cut(&self, cut: &Cut) -> Result<Snapped, MetaError> {
        // All writes of the volumes wait for this: the first attempt is made without asking what there is.
        let model = self.whole_model_at(cut.revision).await?;
        let finish = |records: &Records<'_>| finish_cut(records, cut);
        let ((snapshots, volumes), revision) = self.run_known("finishing a snapshot", &model, finish).await?;
        Ok(Snapped { snapshots, volumes, revision })
    }

    /// Calls a cut off: the volumes' heads stay. Nothing happens where it is over already.
    pub async fn call_off_cut(&self, id: &str, volumes: &[String]) -> Result<(), MetaError> {
        self.run("calling a snapshot off", |records| call_off_cut(records, id, volumes)).await?;
        Ok(())
    }
}
