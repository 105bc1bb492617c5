//! Which copy a part of a read is sent to, and what it has met at others before.

use crate::view::GroupView;
use azekura_base::Endpoint;

/// What the copies of a group came to that a part was sent to.
#[derive(Default)]
pub(super) struct CopiesTried {
    /// Shards that could not read it; one as often as it could not.
    unable: Vec<Endpoint>,
    /// Shards that were asked to read it and have not answered, since the last time that this was said of all.
    silent: Vec<Endpoint>,
    /// A secondary said that the primary must answer.
    primary_only: bool,
}

impl CopiesTried {
    /// The copy that answers the part next, of those that are `up`.
    pub(super) fn next(&mut self, group: &GroupView, me: Endpoint, up: impl Fn(Endpoint) -> bool) -> Option<Endpoint> {
        if self.primary_only {
            return Some(group.primary).filter(|peer| up(*peer));
        }
        nearest(group, me, |peer| up(peer) && self.is_new(peer))
            .or_else(|| {
                // None of them has answered: once more.
                self.silent.clear();
                nearest(group, me, |peer| up(peer) && self.is_new(peer))
            })
            // None could read it, and one has refused since: it may be another device by now.
            .or_else(|| Some(group.primary).filter(|peer| up(*peer) && self.all_unable(&group.copies)))
    }

    /// True when the copy has not been asked yet.
    pub(super) fn is_new(&self, peer: Endpoint) -> bool {
        !self.unable.contains(&peer) && !self.silent.contains(&peer)
    }

    /// True when none of these copies could read it.
    pub(super) fn all_unable(&self, copies: &[Endpoint]) -> bool {
        copies.iter().all(|copy| self.unable.contains(copy))
    }

    /// The copy could not read it. Gives how often that was so of any.
    pub(super) fn is_unable(&mut self, peer: Endpoint) -> usize {
        self.unable.push(peer);
        self.unable.len()
    }

    /// The copy has not answered for long: others are asked.
    pub(super) fn is_silent(&mut self, peer: Endpoint) {
        self.silent.push(peer);
        self.primary_only = false;
    }

    /// Only the primary is asked from now on, or any copy.
    pub(super) fn set_primary_only(&mut self, primary_only: bool) {
        self.primary_only = primary_only;
    }
}

/// The copy that a read is sent to: this shard's, else one of this node's, else the primary, else any.
fn nearest(group: &GroupView, me: Endpoint, usable: impl Fn(Endpoint) -> bool) -> Option<Endpoint> {
    let copies = || group.copies.iter().copied();
    copies()
        .find(|peer| *peer == me && usable(*peer))
        .or_else(|| copies().find(|peer| peer.node == me.node && usable(*peer)))
        .or_else(|| Some(group.primary).filter(|peer| usable(*peer)))
        .or_else(|| copies().find(|peer| usable(*peer)))
}
