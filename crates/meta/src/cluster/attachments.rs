//! Attachments of volumes: one record each, changed by compare-and-swap.

use std::collections::BTreeSet;

use azekura_base::{Generation, NodeId};
use azekura_model::transitions::attachments::{self, AttachRequest};
use azekura_model::{AttachmentsRecord, Ending, InTheWay, MetaError, Outcome, Records, VolumeRecord};

use super::MetaClient;

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
    async fn change_attachments(
        &self,
        transition: impl Fn(&Records<'_>) -> Outcome<attachments::Attached> + Sync,
    ) -> Result<ChangedAttachments, MetaError> {
        let ((volume, attachments), revision) = self.run("attaching the volume", transition).await?;
        Ok(ChangedAttachments { volume, attachments, revision })
    }

    /// A volume's attachments as they are.
    pub async fn attachments_of(&self, volume: &str) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::change_attachments(records, volume, |_, _| Ok(None))).await
    }

    /// Attaches a volume. `gone`: processes (node and incarnation) that have certainly ended; `now`: the time, RFC
    /// 3339; `refusal` says what is in the way.
    pub async fn attach(
        &self,
        volume: &str,
        wish: &AttachRequest,
        gone: &BTreeSet<(NodeId, u64)>,
        now: &str,
        refusal: impl Fn(InTheWay) -> MetaError + Sync,
    ) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::attach(records, volume, wish, gone, now, &refusal)).await
    }

    /// Gives an attachment back of which nothing is under way.
    pub async fn give_back(
        &self,
        volume: &str,
        node: NodeId,
        attachment: Generation,
    ) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::give_back(records, volume, node, attachment)).await
    }

    /// Ends a volume's attachment to a node, or all of them, if those that processes have are of `ending`.
    pub async fn detach(
        &self,
        volume: &str,
        node: Option<NodeId>,
        ending: &Ending,
    ) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::detach(records, volume, node, ending)).await
    }

    /// Ends the attachments of these names by force.
    pub async fn put_out(&self, volume: &str, names: &BTreeSet<Generation>) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::put_out(records, volume, names)).await
    }

    /// Notes that every group has confirmed that it takes nothing of the attachments that had ended by `generation`.
    /// Answers the record, which still says that a fence is due when others have ended since.
    pub async fn confirm_fenced(&self, volume: &str, generation: Generation) -> Result<ChangedAttachments, MetaError> {
        self.change_attachments(|records| attachments::confirm_fenced(records, volume, generation)).await
    }
}
