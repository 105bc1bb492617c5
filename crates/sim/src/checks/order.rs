//! Invariant 3, and the order of a group's writes, as far as the network shows it: one primary an epoch, one write a
//! place, and no write in two places.

use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::{DeviceId, Epoch, PgId, RequestId, Sequence, SessionId, WriteHeader};
use std::collections::BTreeMap;

/// Who is primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) life: Life,
    pub(crate) device: DeviceId,
}

/// A write, as its gateway names it.
type Name = (SessionId, RequestId);

/// One group's order.
#[derive(Default)]
struct GroupOrder {
    /// What each epoch's primary has put where. A primary of the past may go on for a while: nothing comes of it.
    writes: BTreeMap<(Epoch, Sequence), Name>,
    /// What was committed where, as far as the primary that said so has shown it.
    committed: BTreeMap<Sequence, Name>,
    places: BTreeMap<Name, Sequence>,
    /// Where each write was put last, committed or not.
    ordered: BTreeMap<Name, Sequence>,
    /// How far an epoch's commit point has been followed.
    followed: BTreeMap<Epoch, Sequence>,
}

/// Everything seen so far.
#[derive(Default)]
pub(crate) struct Order {
    owners: BTreeMap<(PgId, Epoch), Owner>,
    groups: BTreeMap<PgId, GroupOrder>,
}

impl Order {
    /// `owner` acts as primary of `epoch`.
    ///
    /// # Errors
    /// When somebody else has.
    pub(crate) fn acts_as_primary(&mut self, pg: PgId, epoch: Epoch, owner: Owner) -> Result<(), String> {
        let first = *self.owners.entry((pg, epoch)).or_insert(owner);
        if first == owner {
            Ok(())
        } else {
            Err(format!("{pg:?} has two primaries in {epoch:?}: {first:?}, {owner:?}"))
        }
    }

    /// Where a write was put last.
    pub(crate) fn place_of(&self, pg: PgId, name: Name) -> Option<Sequence> {
        self.groups.get(&pg)?.ordered.get(&name).copied()
    }

    /// `from` sends a prepared write.
    ///
    /// # Errors
    /// When it contradicts what was ordered before.
    pub(crate) fn prepared(&mut self, from: Life, write: &WriteHeader) -> Result<(), (Invariant, String)> {
        let WriteHeader { pg, epoch, sequence, commit, session, request, .. } = *write;
        match self.owners.get(&(pg, epoch)) {
            Some(owner) if owner.life != from => {
                let what = format!("{pg:?}: {from:?} orders in {epoch:?}, which is {:?}'s", owner.life);
                return Err((Invariant::OnePrimary, what));
            }
            _ => {}
        }
        let group = self.groups.entry(pg).or_default();
        let name = (session, request);
        let other = *group.writes.entry((epoch, sequence)).or_insert(name);
        if other != name {
            let what = format!("{pg:?}: {sequence:?} was {other:?} and is {name:?}, both in {epoch:?}");
            return Err((Invariant::OnePrimary, what));
        }
        group.ordered.insert(name, sequence);
        let followed = group.followed.entry(epoch).or_default();
        let new = group.writes.range((epoch, followed.next())..(epoch, commit.max(*followed).next()));
        for ((_, place), name) in new {
            let other = *group.committed.entry(*place).or_insert(*name);
            if other != *name {
                let what = format!("{pg:?}: {place:?} was committed as {other:?}, and in {epoch:?} as {name:?}");
                return Err((Invariant::OnePrimary, what));
            }
            let first = *group.places.entry(*name).or_insert(*place);
            if first != *place {
                let what = format!("{pg:?}: {name:?}, committed at {first:?}, is applied again at {place:?}");
                return Err((Invariant::AppliedOnce, what));
            }
        }
        *followed = commit.max(*followed);
        Ok(())
    }
}
