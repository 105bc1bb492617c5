//! Invariant 3, and the order of a group's writes, as far as the network shows it: one primary an epoch, one write a
//! place, and no write in two places.

use crate::Invariant;
use crate::events::Life;
use azekura_base::{DeviceId, Epoch, PgId, RequestId, Sequence, SessionId};
use azekura_wire::Prepare;
use std::collections::BTreeMap;

/// Who is primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) life: Life,
    pub(crate) device: DeviceId,
}

type Name = (SessionId, RequestId);

/// One group's order.
#[derive(Default)]
struct GroupOrder {
    writes: BTreeMap<Sequence, (Epoch, Name)>,
    places: BTreeMap<Name, Sequence>,
    committed: Sequence,
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
    pub(crate) fn reigns(&mut self, pg: PgId, epoch: Epoch, owner: Owner) -> Result<(), String> {
        let first = *self.owners.entry((pg, epoch)).or_insert(owner);
        if first == owner {
            Ok(())
        } else {
            Err(format!("{pg:?} has two primaries in {epoch:?}: {first:?}, {owner:?}"))
        }
    }

    /// `from` sends a `Prepare`.
    ///
    /// # Errors
    /// When it contradicts what was ordered before.
    pub(crate) fn prepared(&mut self, from: Life, prepare: &Prepare) -> Result<(), (Invariant, String)> {
        let Prepare { pg, epoch, sequence, commit, session, request, .. } = *prepare;
        match self.owners.get(&(pg, epoch)) {
            Some(owner) if owner.life != from => {
                let what = format!("{pg:?}: {from:?} orders in {epoch:?}, which is {:?}'s", owner.life);
                return Err((Invariant::OnePrimary, what));
            }
            _ => {}
        }
        let group = self.groups.entry(pg).or_default();
        if commit >= sequence {
            return Err((Invariant::OnePrimary, format!("{pg:?}: {sequence:?} is prepared after its commit")));
        }
        group.committed = group.committed.max(commit);
        let name = (session, request);
        if let Some((before, other)) = group.writes.get(&sequence)
            && *other != name
            && (*before == epoch || sequence <= group.committed)
        {
            let what = format!("{pg:?}: {sequence:?} was {other:?} in {before:?} and is {name:?} in {epoch:?}");
            return Err((Invariant::OnePrimary, what));
        }
        if let Some(place) = group.places.get(&name)
            && *place != sequence
            && *place <= group.committed
            && group.writes.get(place).is_some_and(|(_, at_place)| *at_place == name)
        {
            let what = format!("{pg:?}: {name:?}, committed at {place:?}, is applied again at {sequence:?}");
            return Err((Invariant::AppliedOnce, what));
        }
        group.writes.insert(sequence, (epoch, name));
        group.places.insert(name, sequence);
        Ok(())
    }
}
