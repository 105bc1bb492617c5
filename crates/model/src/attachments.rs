//! Who may use a volume: the record of its attachments, and how it changes (docs/decisions/0009-attachments.md).
//!
//! The functions here only compute the next record; whoever calls them puts it in the place of the
//! one that it was made from.

use std::collections::BTreeSet;

use azekura_base::{Generation, HostName, NodeId, VolumeId, rfc3339_seconds};
use serde::{Deserialize, Serialize};

use crate::Unknown;

/// Most attachments that a volume has at once.
pub const VOLUME_ATTACHMENTS_MAX: usize = 64;

/// A node that has got a host's writes keeps them so long against others, as long as it lives, in seconds: a host with
/// three paths turns to the third while the first two come back, and would go on so for ever.
pub const HOST_STAYS_SECONDS: u64 = 5;

/// What a node's record says that it understands when it knows that a host may come through several nodes
/// (docs/decisions/0048-paths-of-a-host.md).
pub const HOST_PATHS: &str = "host-paths";

/// How many may use a volume at once, unless somebody says otherwise when he attaches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeAccess {
    /// One node's clients.
    Exclusive,
    /// Clients of any nodes.
    #[default]
    Shared,
}

impl std::fmt::Display for VolumeAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VolumeAccess::Exclusive => "exclusive",
            VolumeAccess::Shared => "shared",
        })
    }
}

/// One node's permission to use a volume: for the clients of one host, or for those of whom no host is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// The node.
    pub node: NodeId,
    /// The host, which may have others of other nodes; `None`: clients of whom no host is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The host reads through this node, and another node carries out what it writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_only: bool,
    /// The process of that node that uses it; `None`: none does yet.
    #[serde(with = "crate::zero_is_none")]
    pub incarnation: Option<u64>,
    /// The generation that it began in, which names it.
    pub generation: Generation,
    /// Others that are shared may stand beside it.
    pub shared: bool,
    /// It was asked for by name, and stays until it is taken away; else it ends with its last client.
    pub pinned: bool,
    /// Since when, RFC 3339.
    pub since: String,
}

/// A volume's attachments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachmentsRecord {
    /// The volume.
    pub volume: VolumeId,
    /// Raised at every change.
    pub generation: Generation,
    /// Attachments have ended without having been given back, and not every placement group has confirmed yet that it
    /// takes nothing of theirs any more. Until all have, nobody is told that he may use the volume.
    #[serde(default)]
    pub fence_due: bool,
    /// Those that stand, by node and host.
    #[serde(default)]
    pub attachments: Vec<AttachmentRecord>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// A wish to use a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachWish {
    /// For this node.
    pub node: NodeId,
    /// For this process of it, on behalf of a client; `None`: for whichever comes, because somebody asked for it by
    /// name.
    pub incarnation: Option<u64>,
    /// For the clients of this host.
    pub host: Option<HostName>,
    /// The host is to write through this node, and through no other one any more: what it had of this one to read ends
    /// as well. The first node of a host that stands may write without that.
    pub to_write: bool,
    /// Beside others that are shared.
    pub shared: bool,
    /// Attachments in the way end.
    pub force: bool,
}

/// Why a wish is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum InTheWay {
    /// This one stands.
    Holder(Box<AttachmentRecord>),
    /// There are [`VOLUME_ATTACHMENTS_MAX`] already.
    TooMany,
}

/// Which attachments may end that something is in the way of: a detachment, a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All: whoever uses the volume is cut off.
    All,
    /// Those of these names, whose processes have ended. Whoever has come since that was found out is in the way.
    Gone(BTreeSet<Generation>),
}

impl Default for Ending {
    fn default() -> Ending {
        Ending::Gone(BTreeSet::new())
    }
}

impl Ending {
    /// Whether this one may.
    #[must_use]
    pub fn allows(&self, entry: &AttachmentRecord) -> bool {
        match self {
            Ending::All => true,
            Ending::Gone(names) => names.contains(&entry.generation),
        }
    }
}

impl AttachmentRecord {
    /// Whether both are of the same node and the same host: at most one of those stands.
    fn is_of_same(&self, other: &AttachmentRecord) -> bool {
        self.node == other.node && self.host == other.host
    }
}

impl AttachmentsRecord {
    /// A volume that was never attached.
    #[must_use]
    pub fn none(volume: VolumeId) -> AttachmentsRecord {
        AttachmentsRecord {
            volume,
            generation: Generation(0),
            fence_due: false,
            attachments: Vec::new(),
            unknown: Unknown::default(),
        }
    }

    /// A node's attachment for a host, or for clients of whom none is known.
    #[must_use]
    pub fn of(&self, node: NodeId, host: Option<&HostName>) -> Option<&AttachmentRecord> {
        self.attachments.iter().find(|entry| entry.node == node && entry.host.as_ref() == host)
    }

    /// All that a node has.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = &AttachmentRecord> {
        self.attachments.iter().filter(move |entry| entry.node == node)
    }

    /// The names of those that a process has.
    #[must_use]
    pub fn of_process(&self, (node, incarnation): (NodeId, u64)) -> BTreeSet<Generation> {
        let mine = self.of_node(node).filter(|entry| entry.incarnation == Some(incarnation));
        mine.map(|entry| entry.generation).collect()
    }

    /// Whether a host has turned to another living node than this one within `HOST_STAYS_SECONDS` before `now`,
    /// seconds since 1970, by the clocks of both: nothing but patience depends on that. What lies ahead is of a clock
    /// that is wrong, and does not count.
    #[must_use]
    pub fn has_just_turned(&self, host: &HostName, node: NodeId, now: u64, is_alive: impl Fn(NodeId) -> bool) -> bool {
        // Times of this form are in the order of their text.
        let lately = rfc3339_seconds(now.saturating_sub(HOST_STAYS_SECONDS))..=rfc3339_seconds(now);
        self.attachments.iter().any(|entry| {
            let writes = entry.host.as_ref() == Some(host) && !entry.reads_only && entry.node != node;
            writes && lately.contains(&entry.since) && is_alive(entry.node)
        })
    }

    /// The names of those that stand, ascending.
    #[must_use]
    pub fn standing(&self) -> Vec<Generation> {
        let mut standing: Vec<Generation> = self.attachments.iter().map(|attachment| attachment.generation).collect();
        standing.sort_unstable();
        standing
    }

    /// The record with the wish granted, which may be this one. `is_gone` tells of a process whether it has certainly
    /// ended.
    ///
    /// # Errors
    /// What is in the way.
    pub fn attach(
        &self,
        wish: &AttachWish,
        is_gone: impl Fn(NodeId, u64) -> bool,
        now: &str,
    ) -> Result<AttachmentsRecord, InTheWay> {
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        let mine = self.of(wish.node, wish.host.as_ref());
        let by_name = self.of_node(wish.node).find(|entry| entry.pinned);
        // Clients join what was asked for by name.
        let shared = by_name.filter(|_| wish.incarnation.is_some()).map_or(wish.shared, |entry| entry.shared);
        let is_former = |other: &AttachmentRecord| {
            other.node == wish.node && wish.incarnation.is_some() && other.incarnation != wish.incarnation
        };
        for other in self.attachments.iter().filter(|other| mine.is_none_or(|mine| *other != mine)) {
            let process = other.incarnation.filter(|_| !other.pinned);
            let in_the_way = self.is_in_the_way(other, wish, shared);
            if process.is_some_and(|process| is_gone(other.node, process) || is_former(other))
                || in_the_way && wish.force
            {
                next.end(other);
            } else if in_the_way {
                return Err(InTheWay::Holder(Box::new(other.clone())));
            }
        }
        let process = wish.incarnation.or(mine.and_then(|mine| mine.incarnation));
        let pinned = wish.incarnation.is_none() || mine.is_some_and(|mine| mine.pinned);
        // What was sent under an attachment to read may be older than what the host has written elsewhere since.
        let goes_on = mine.filter(|mine| mine.incarnation == process && !(wish.to_write && mine.reads_only));
        let yields = next.yields(wish);
        let reads_only = goes_on.map_or(yields, |mine| mine.reads_only);
        next.attachments.iter_mut().filter(|entry| entry.node == wish.node).for_each(|entry| entry.shared = shared);
        if let Some(mine) = goes_on {
            next.attachments.iter_mut().filter(|entry| entry.is_of_same(mine)).for_each(|entry| {
                entry.pinned = pinned;
            });
            return Ok(if next.attachments == self.attachments { self.clone() } else { next });
        }
        // It may have left requests on their way.
        mine.into_iter().for_each(|mine| next.end(mine));
        if next.attachments.len() >= VOLUME_ATTACHMENTS_MAX {
            return Err(InTheWay::TooMany);
        }
        next.attachments.push(AttachmentRecord {
            node: wish.node,
            host: wish.host.clone(),
            reads_only,
            incarnation: process,
            generation: next.generation,
            shared,
            pinned,
            since: mine.filter(|mine| mine.pinned).map_or_else(|| now.to_owned(), |mine| mine.since.clone()),
        });
        next.in_order();
        Ok(next)
    }

    /// Whether what stands keeps a wish, or what its node has already, from being granted as it is to be: attachments
    /// of different nodes stand beside each other if both are shared, or if both are the same host's.
    fn is_in_the_way(&self, other: &AttachmentRecord, wish: &AttachWish, shared: bool) -> bool {
        let mut hosts = self.of_node(wish.node).map(|entry| &entry.host).chain([&wish.host]);
        let is_apart = |host: &Option<HostName>| host.is_none() || *host != other.host;
        other.node != wish.node && !(shared && other.shared) && hosts.any(is_apart)
    }

    /// Ends the attachment by which another node writes for the host of a wish, if the wish is to write. True: there is
    /// one, and it stays.
    fn yields(&mut self, wish: &AttachWish) -> bool {
        let is_of_host = |entry: &&AttachmentRecord| wish.host.is_some() && entry.host == wish.host;
        let mut others = self.attachments.iter().filter(is_of_host);
        let writer = others.find(|entry| entry.node != wish.node && !entry.reads_only).cloned();
        if let Some(writer) = writer.as_ref().filter(|_| wish.to_write) {
            self.end(writer);
        }
        writer.is_some() && !wish.to_write
    }

    /// The record after a process has given its attachment back, with nothing of it under way; `None` when it had ended
    /// before.
    #[must_use]
    pub fn give_back(&self, node: NodeId, attachment: Generation) -> Option<AttachmentsRecord> {
        let mine = self.of_node(node).find(|mine| mine.generation == attachment)?;
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        if mine.pinned {
            let name = next.generation;
            next.attachments.iter_mut().filter(|entry| entry.is_of_same(mine)).for_each(|entry| {
                (entry.incarnation, entry.generation) = (None, name);
            });
        } else {
            next.attachments.retain(|entry| !entry.is_of_same(mine));
        }
        Some(next)
    }

    /// The record without what a node has, or without any; `None` when there is nothing to take away.
    #[must_use]
    pub fn detach(&self, node: Option<NodeId>) -> Option<AttachmentsRecord> {
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        let going = self.attachments.iter().filter(|entry| node.is_none_or(|node| node == entry.node));
        going.for_each(|entry| next.end(entry));
        (next.attachments.len() < self.attachments.len()).then_some(next)
    }

    /// The record after the processes that have attachments of these names were put out: what was asked for by name
    /// stays for whichever process comes next, under a new name. `None` when none of them stands.
    #[must_use]
    pub fn put_out(&self, names: &BTreeSet<Generation>) -> Option<AttachmentsRecord> {
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        let out =
            self.attachments.iter().filter(|entry| entry.incarnation.is_some() && names.contains(&entry.generation));
        let mut is_any = false;
        for entry in out {
            is_any = true;
            next.end(entry);
            if entry.pinned {
                let name = next.generation;
                next.attachments.push(AttachmentRecord { incarnation: None, generation: name, ..entry.clone() });
            }
        }
        next.in_order();
        is_any.then_some(next)
    }

    /// Takes an attachment away whose process, if it has one, was not asked.
    fn end(&mut self, ended: &AttachmentRecord) {
        self.fence_due |= ended.incarnation.is_some();
        self.attachments.retain(|entry| !entry.is_of_same(ended));
    }

    fn in_order(&mut self) {
        self.attachments.sort_by(|a, b| (a.node, &a.host).cmp(&(b.node, &b.host)));
    }
}

#[cfg(test)]
#[path = "attachments_tests.rs"]
mod tests;
