//! Attachments of volumes: one record each, replaced by the next.

use std::collections::BTreeSet;

use azekura_base::{Generation, HostName, NodeId};

use super::volumes::missing;
use crate::{
    AttachWish, AttachmentsRecord, Ending, InTheWay, Key, Kind, MetaError, Outcome, Records, Step, Txn, VolumeAccess,
    VolumeRecord,
};

/// A volume, and its attachments after a change.
pub type Attached = (VolumeRecord, AttachmentsRecord);

/// A wish to use a volume, of which `shared` may be left to the volume: beside others, or alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// For this node.
    pub node: NodeId,
    /// For this process of it, on behalf of a client; `None`: for whichever comes, because somebody asked for it by
    /// name.
    pub incarnation: Option<u64>,
    /// For the clients of this host.
    pub host: Option<HostName>,
    /// The host is to write through this node, and through no other one any more.
    pub to_write: bool,
    /// Beside others that are shared; `None`: as the volume was made for.
    pub shared: Option<bool>,
    /// Attachments in the way end.
    pub force: bool,
}

impl AttachRequest {
    /// A node's wish for clients of whom no host is known, as the volume was made for.
    #[must_use]
    pub fn of_node(node: NodeId, incarnation: Option<u64>) -> AttachRequest {
        AttachRequest { node, incarnation, host: None, to_write: false, shared: None, force: false }
    }
}

/// Replaces a volume's attachments by what `change` makes of them; `Ok(None)` leaves them as they are.
///
/// # Errors
/// When the volume is missing, or `change` refuses.
pub fn change_attachments(
    records: &Records<'_>,
    volume: &str,
    change: impl FnOnce(&VolumeRecord, &AttachmentsRecord) -> Result<Option<AttachmentsRecord>, MetaError>,
) -> Outcome<Attached> {
    let found = records.find(&Key::Volume(volume))?;
    let record: VolumeRecord = found.record()?.ok_or_else(|| missing(Kind::Volume, volume))?;
    let attachments = records.find(&Key::Attachments(record.id))?;
    let now = attachments.record()?.unwrap_or_else(|| AttachmentsRecord::none(record.id));
    let Some(next) = change(&record, &now)?.filter(|next| *next != now) else {
        return Ok(Step::Done((record, now), attachments.mod_revision()));
    };
    // The volume may be deleted meanwhile, and its attachments with it.
    let txn = Txn::new().when_as(&found).when_as(&attachments).put(&attachments.key, &next);
    Ok(Step::Run(txn, (record, next)))
}

/// Attaches a volume. `gone`: processes (node and incarnation) that have certainly ended; `now`: the time, RFC 3339.
///
/// # Errors
/// When the volume is missing; what is in the way goes through `refusal`.
pub fn attach(
    records: &Records<'_>,
    volume: &str,
    wish: &AttachRequest,
    gone: &BTreeSet<(NodeId, u64)>,
    now: &str,
    refusal: impl FnOnce(InTheWay) -> MetaError,
) -> Outcome<Attached> {
    change_attachments(records, volume, |record, attachments| {
        let shared = wish.shared.unwrap_or(record.access == VolumeAccess::Shared);
        let AttachRequest { node, incarnation, to_write, force, .. } = *wish;
        let wish = AttachWish { node, incarnation, host: wish.host.clone(), to_write, shared, force };
        let next = attachments.attach(&wish, |node, incarnation| gone.contains(&(node, incarnation)), now);
        next.map(Some).map_err(refusal)
    })
}

/// Gives an attachment back of which nothing is under way.
///
/// # Errors
/// When the volume is missing.
pub fn give_back(records: &Records<'_>, volume: &str, node: NodeId, attachment: Generation) -> Outcome<Attached> {
    change_attachments(records, volume, |_, now| Ok(now.give_back(node, attachment)))
}

/// Ends a volume's attachment to a node, or all of them, if those that processes have are of `ending`.
///
/// # Errors
/// When the volume is missing, or somebody uses it who may not be cut off.
pub fn detach(records: &Records<'_>, volume: &str, node: Option<NodeId>, ending: &Ending) -> Outcome<Attached> {
    change_attachments(records, volume, |_, now| {
        let mut going = now.attachments.iter().filter(|entry| node.is_none_or(|node| node == entry.node));
        if going.any(|entry| entry.incarnation.is_some() && !ending.allows(entry)) {
            return Err(MetaError::InUse { volume: volume.to_owned(), what: "detached" });
        }
        Ok(now.detach(node))
    })
}

/// Ends the attachments of these names by force. What was asked for by name stays, for whichever process comes next.
///
/// # Errors
/// When the volume is missing.
pub fn put_out(records: &Records<'_>, volume: &str, names: &BTreeSet<Generation>) -> Outcome<Attached> {
    change_attachments(records, volume, |_, now| Ok(now.put_out(names)))
}

/// Notes that every group has confirmed that it takes nothing of the attachments that had ended by `generation`. The
/// record still says that a fence is due when others have ended since.
///
/// # Errors
/// When the volume is missing.
pub fn confirm_fenced(records: &Records<'_>, volume: &str, generation: Generation) -> Outcome<Attached> {
    change_attachments(records, volume, |_, now| {
        let all = now.generation == generation && now.fence_due;
        let raised = Generation(now.generation.0 + 1);
        Ok(all.then(|| AttachmentsRecord { fence_due: false, generation: raised, ..now.clone() }))
    })
}
