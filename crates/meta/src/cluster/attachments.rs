//! Attachments of volumes: one record each, changed by compare-and-swap.

use azekura_base::Generation;

use super::{Attempt, MetaClient, Try, encode};
use crate::client::Txn;
use crate::error::{Kind, MetaError};
use crate::model::{AttachmentsRecord, Key, VolumeRecord};

/// A volume's attachments after a change.
#[derive(Clone, Debug)]
pub struct ChangedAttachments {
    /// The volume.
    pub volume: VolumeRecord,
    /// Its attachments.
    pub attachments: AttachmentsRecord,
    /// The revision that they are of, or a later one.
    pub revision: i64,
}

impl MetaClient {
    /// Replaces a volume's attachments by what `change` makes of them, which is called again when somebody else was
    /// faster; `Ok(None)` leaves them as they are.
    pub async fn change_attachments(
        &self,
        volume: &str,
        change: impl Fn(&VolumeRecord, &AttachmentsRecord) -> Result<Option<AttachmentsRecord>, MetaError> + Sync,
    ) -> Result<ChangedAttachments, MetaError> {
        let volume_key = &Key::Volume(volume);
        let change = &change;
        self.settle("attaching the volume", |Try { deadline, .. }| async move {
            let [found] = self.get_all([volume_key], deadline).await?;
            let not_found = || MetaError::NotFound { kind: Kind::Volume, name: volume.to_owned() };
            let record: VolumeRecord = found.record()?.ok_or_else(not_found)?;
            let key = Key::Attachments(record.id);
            let [attachments] = self.get_all([&key], deadline).await?;
            let now = attachments.record()?.unwrap_or_else(|| AttachmentsRecord::none(record.id));
            let Some(next) = change(&record, &now)?.filter(|next| *next != now) else {
                let revision = attachments.mod_revision();
                return Ok(Attempt::Done(ChangedAttachments { volume: record, attachments: now, revision }));
            };
            let txn = Txn::new()
                // The volume may be deleted meanwhile, and its attachments with it.
                .when_unchanged(&found.key, found.mod_revision())
                .when_unchanged(&attachments.key, attachments.mod_revision())
                .put(&attachments.key, encode(&next));
            let answer = self.inner.etcd.txn(txn).await?;
            if !answer.succeeded {
                return Ok(Attempt::Conflict);
            }
            let revision = answer.header.map_or(0, |header| header.revision);
            Ok(Attempt::Done(ChangedAttachments { volume: record, attachments: next, revision }))
        })
        .await
    }

    /// Notes that every group has confirmed that it takes nothing of the attachments that had ended by `generation`.
    /// Answers the record, which still says that a fence is due when others have ended since.
    pub async fn confirm_fenced(&self, volume: &str, generation: Generation) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(volume, |_, now| {
            let all = now.generation == generation && now.fence_due;
            let raised = Generation(now.generation.0 + 1);
            Ok(all.then(|| AttachmentsRecord { fence_due: false, generation: raised, ..now.clone() }))
        })
        .await
    }
}
