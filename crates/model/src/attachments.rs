//! Who may use a volume: the record of its attachments, and how it changes (docs/decisions/0009-attachments.md).
//!
//! The functions here only compute the next record; whoever calls them puts it in the place of the
//! one that it was made from.

use std::collections::BTreeSet;

use azekura_base::{Generation, NodeId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::Unknown;

/// Most attachments that a volume has at once.
pub const VOLUME_ATTACHMENTS_MAX: usize = 64;

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

/// One node's permission to use a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachmentRecord {
    /// The node.
    pub node: NodeId,
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
    /// Those that stand, by node.
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

    /// A node's attachment.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<&AttachmentRecord> {
        self.attachments.iter().find(|attachment| attachment.node == node)
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
        let mine = self.of(wish.node);
        let shared = match mine {
            // A client joins what was asked for by name.
            Some(mine) if mine.pinned && wish.incarnation.is_some() => mine.shared,
            _ => wish.shared,
        };
        for other in self.attachments.iter().filter(|other| other.node != wish.node) {
            let in_the_way = !(shared && other.shared);
            let over = !other.pinned && other.incarnation.is_some_and(|process| is_gone(other.node, process));
            if over || in_the_way && wish.force {
                next.end(other.node);
            } else if in_the_way {
                return Err(InTheWay::Holder(Box::new(other.clone())));
            }
        }
        let wanted = wish.incarnation.or(mine.and_then(|mine| mine.incarnation));
        let pinned = wish.incarnation.is_none() || mine.is_some_and(|mine| mine.pinned);
        match mine {
            Some(mine) if mine.incarnation == wanted => {
                if mine.shared == shared && mine.pinned == pinned && next.attachments.len() == self.attachments.len() {
                    return Ok(self.clone());
                }
                next.attachments.iter_mut().filter(|entry| entry.node == wish.node).for_each(|entry| {
                    (entry.shared, entry.pinned) = (shared, pinned);
                });
                return Ok(next);
            }
            // The process before may have left requests on their way.
            Some(_) => next.end(wish.node),
            None => {}
        }
        if next.attachments.len() >= VOLUME_ATTACHMENTS_MAX {
            return Err(InTheWay::TooMany);
        }
        next.attachments.push(AttachmentRecord {
            node: wish.node,
            incarnation: wanted,
            generation: next.generation,
            shared,
            pinned,
            since: mine.filter(|mine| mine.pinned).map_or_else(|| now.to_owned(), |mine| mine.since.clone()),
        });
        next.attachments.sort_by_key(|attachment| attachment.node);
        Ok(next)
    }

    /// The record after a process has given its attachment back, with nothing of it under way; `None` when it had ended
    /// before.
    #[must_use]
    pub fn give_back(&self, node: NodeId, attachment: Generation) -> Option<AttachmentsRecord> {
        let mine = self.of(node).filter(|mine| mine.generation == attachment)?;
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        if mine.pinned {
            let name = next.generation;
            next.attachments.iter_mut().filter(|entry| entry.node == node).for_each(|entry| {
                (entry.incarnation, entry.generation) = (None, name);
            });
        } else {
            next.attachments.retain(|entry| entry.node != node);
        }
        Some(next)
    }

    /// The record without a node's attachment, or without any; `None` when there is nothing to take away.
    #[must_use]
    pub fn detach(&self, node: Option<NodeId>) -> Option<AttachmentsRecord> {
        let mut next = AttachmentsRecord { generation: Generation(self.generation.0 + 1), ..self.clone() };
        let going = self.attachments.iter().map(|entry| entry.node).filter(|at| node.is_none_or(|node| node == *at));
        going.for_each(|node| next.end(node));
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
            next.end(entry.node);
            if entry.pinned {
                let name = next.generation;
                next.attachments.push(AttachmentRecord { incarnation: None, generation: name, ..entry.clone() });
            }
        }
        next.attachments.sort_by_key(|entry| entry.node);
        is_any.then_some(next)
    }

    /// Takes an attachment away whose process, if it has one, was not asked.
    fn end(&mut self, node: NodeId) {
        self.fence_due |= self.of(node).is_some_and(|entry| entry.incarnation.is_some());
        self.attachments.retain(|entry| entry.node != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOBODY_GONE: fn(NodeId, u64) -> bool = |_, _| false;

    fn client(node: u32, incarnation: u64) -> AttachWish {
        AttachWish { node: NodeId(node), incarnation: Some(incarnation), shared: false, force: false }
    }

    fn by_name(node: u32) -> AttachWish {
        AttachWish { incarnation: None, ..client(node, 0) }
    }

    fn none() -> AttachmentsRecord {
        AttachmentsRecord::none(VolumeId(1))
    }

    fn nodes(record: &AttachmentsRecord) -> Vec<u32> {
        record.attachments.iter().map(|entry| entry.node.0).collect()
    }

    #[test]
    fn a_client_comes_and_goes() {
        let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
        assert_eq!((attached.generation, attached.fence_due, nodes(&attached)), (Generation(1), false, vec![1]));
        assert_eq!(attached.attach(&client(1, 5), NOBODY_GONE, "u").unwrap(), attached, "its second connection");
        let back = attached.give_back(NodeId(1), Generation(1)).unwrap();
        assert_eq!((back.generation, back.fence_due, nodes(&back)), (Generation(2), false, vec![]));
        assert_eq!(back.give_back(NodeId(1), Generation(1)), None);
    }

    #[test]
    fn another_nodes_client_waits_unless_the_process_is_gone() {
        let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
        let refused = attached.attach(&client(2, 9), NOBODY_GONE, "t").unwrap_err();
        assert_eq!(refused, InTheWay::Holder(Box::new(attached.attachments[0].clone())));
        let taken = attached.attach(&client(2, 9), |node, incarnation| (node.0, incarnation) == (1, 5), "t").unwrap();
        assert_eq!((nodes(&taken), taken.fence_due), (vec![2], true));
        assert_eq!(taken.standing(), [Generation(2)]);
    }

    #[test]
    fn a_process_does_not_go_on_with_the_attachment_of_the_one_before() {
        let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
        let again = attached.attach(&client(1, 6), NOBODY_GONE, "t").unwrap();
        assert_eq!((again.standing(), again.fence_due), (vec![Generation(2)], true));
    }

    #[test]
    fn what_was_asked_for_by_name_stays() {
        let pinned = none().attach(&by_name(1), NOBODY_GONE, "t").unwrap();
        assert!(!pinned.fence_due && pinned.attachments[0].pinned);
        assert!(pinned.attach(&client(2, 9), |_, _| true, "t").is_err(), "nobody takes it over by himself");
        let used = pinned.attach(&client(1, 5), NOBODY_GONE, "u").unwrap();
        assert_eq!((used.attachments[0].incarnation, used.attachments[0].since.as_str()), (Some(5), "t"));
        assert!(used.attachments[0].pinned && !used.fence_due);
        let unused = used.give_back(NodeId(1), used.attachments[0].generation).unwrap();
        assert_eq!((nodes(&unused), unused.attachments[0].incarnation), (vec![1], None));
        assert!(!unused.standing().contains(&used.attachments[0].generation));
        assert!(used.attach(&client(2, 9), |_, _| true, "t").is_err());
        let forced = used.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
        assert_eq!((nodes(&forced), forced.fence_due), (vec![2], true));
        let forced = unused.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
        assert!(!forced.fence_due, "nobody had used it");
    }

    #[test]
    fn naming_a_node_that_has_it_already_pins_what_it_has() {
        let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
        let pinned = attached.attach(&by_name(1), NOBODY_GONE, "u").unwrap();
        assert_eq!(pinned.standing(), attached.standing(), "its clients go on");
        assert!(pinned.attachments[0].pinned && pinned.generation > attached.generation);
    }

    #[test]
    fn shared_attachments_stand_side_by_side() {
        let shared = |node, incarnation| AttachWish { shared: true, ..client(node, incarnation) };
        let one = none().attach(&shared(1, 5), NOBODY_GONE, "t").unwrap();
        let two = one.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
        assert_eq!((nodes(&two), two.fence_due), (vec![1, 2], false));
        assert!(two.attach(&client(3, 1), NOBODY_GONE, "t").is_err(), "an exclusive one does not come between");
        let alone = two.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
        assert_eq!((nodes(&alone), alone.fence_due), (vec![2], true));
        assert_eq!(alone.standing(), [Generation(2)], "and goes on");
        let cut = two.detach(Some(NodeId(1))).unwrap();
        assert_eq!((cut.standing(), cut.fence_due), (vec![Generation(2)], true));
        assert_eq!(two.detach(Some(NodeId(7))), None);
        assert_eq!(nodes(&two.detach(None).unwrap()), [0; 0]);
        let third = two.attach(&shared(3, 1), |node, _| node == NodeId(1), "t").unwrap();
        assert_eq!((nodes(&third), third.fence_due), (vec![2, 3], true), "the dead are cleared away");
    }

    #[test]
    fn who_is_put_out_may_come_again_by_another_name() {
        let shared = |node, incarnation| AttachWish { shared: true, ..client(node, incarnation) };
        let pinned = none().attach(&AttachWish { shared: true, ..by_name(1) }, NOBODY_GONE, "t").unwrap();
        assert_eq!(pinned.put_out(&pinned.standing().into_iter().collect()), None, "no process has it");
        let used = pinned.attach(&shared(1, 5), NOBODY_GONE, "t").unwrap();
        let two = used.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
        let name = |record: &AttachmentsRecord, node| record.of(NodeId(node)).map(|entry| entry.generation);
        let first: BTreeSet<Generation> = name(&two, 1).into_iter().collect();
        let out = two.put_out(&first).unwrap();
        assert_eq!((nodes(&out), out.fence_due), (vec![1, 2], true));
        assert!(!out.standing().contains(&name(&two, 1).unwrap()) && name(&out, 2) == name(&two, 2));
        assert!(out.attachments[0].pinned && out.attachments[0].incarnation.is_none());
        assert_eq!(out.put_out(&first), None);
        let all = two.put_out(&two.standing().into_iter().collect()).unwrap();
        assert_eq!((nodes(&all), all.fence_due), (vec![1], true));
        let again = all.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
        assert!(name(&again, 2) > name(&two, 2));
    }

    #[test]
    fn there_is_a_limit() {
        let mut record = none();
        for node in 0..VOLUME_ATTACHMENTS_MAX as u32 {
            let wish = AttachWish { shared: true, ..client(node, 1) };
            record = record.attach(&wish, NOBODY_GONE, "t").unwrap();
        }
        let wish = AttachWish { shared: true, ..client(1000, 1) };
        assert_eq!(record.attach(&wish, NOBODY_GONE, "t"), Err(InTheWay::TooMany));
    }

    #[derive(Clone, Debug)]
    enum Change {
        Attach(AttachWish),
        GiveBack(u32),
        Detach(Option<u32>),
    }

    fn change() -> impl Strategy<Value = Change> {
        let wish = (0u32..4, prop::option::of(1u64..3), any::<bool>(), any::<bool>()).prop_map(
            |(node, incarnation, shared, force)| AttachWish { node: NodeId(node), incarnation, shared, force },
        );
        prop_oneof![
            4 => wish.prop_map(Change::Attach),
            1 => (0u32..4).prop_map(Change::GiveBack),
            1 => prop::option::of(0u32..4).prop_map(Change::Detach),
        ]
    }

    proptest! {
        #[test]
        fn nobody_is_put_out_unnoticed(changes in prop::collection::vec(change(), 1..40), gone in 0u32..4) {
            let mut record = none();
            for change in changes {
                let mut given_back = None;
                let next = match change {
                    Change::Attach(wish) => record.attach(&wish, |node, _| node.0 == gone, "t").ok(),
                    Change::GiveBack(node) => record.of(NodeId(node)).map(|mine| mine.generation).and_then(|name| {
                        given_back = Some(name);
                        record.give_back(NodeId(node), name)
                    }),
                    Change::Detach(node) => record.detach(node.map(NodeId)),
                };
                let Some(next) = next.filter(|next| *next != record) else { continue };
                prop_assert_eq!(next.generation.0, record.generation.0 + 1);
                let before: Vec<_> = record.attachments.iter().filter(|entry| entry.incarnation.is_some()).collect();
                let standing = next.standing();
                let out = before.iter().any(|e| !standing.contains(&e.generation) && Some(e.generation) != given_back);
                prop_assert!(!out || next.fence_due, "{record:?} {next:?}");
                prop_assert!(standing.iter().all(|name| *name <= next.generation));
                let exclusive = next.attachments.iter().filter(|entry| !entry.shared).count();
                prop_assert!(exclusive == 0 || next.attachments.len() == 1, "{next:?}");
                // A name is given once, to one process.
                for entry in &next.attachments {
                    let same = record.attachments.iter().find(|old| old.generation == entry.generation);
                    prop_assert!(same.is_none_or(|old| (old.node, old.incarnation) == (entry.node, entry.incarnation)));
                }
                record = AttachmentsRecord { fence_due: false, ..next };
            }
        }
    }
}
