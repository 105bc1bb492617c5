//! Copies that are left behind, that restart, and that come back.

use crate::quorum::AckRule;
use crate::run::Run;
use crate::state::{HOLE, Node, Peer, Set, Standing, copies_of, only};

impl Run<'_> {
    /// `SetView::wanted`, `Primary::change_in_sync_set`: the in-sync set is to be `in_sync`. Any copy may have been
    /// silent for long enough.
    pub(crate) fn change(&mut self, primary: usize, in_sync: Set) -> Option<()> {
        let node = &self.s.nodes[primary];
        let reign = node.reign.as_ref()?;
        let waits_for_all = self.model.ack == AckRule::All;
        if node.proposal.is_some() || (!waits_for_all && reign.is_gathering()) || in_sync == node.config.in_sync {
            return None;
        }
        let mut config = node.config.next();
        for copy in copies_of(node.config.in_sync & !in_sync) {
            let peer = reign.peers.get(copy).filter(|peer| peer.standing == Standing::InSync)?;
            let known = if waits_for_all { node.committed } else { peer.acked };
            config.remove(copy, peer.diverged_at.unwrap_or(known).min(node.committed));
        }
        let joining = in_sync & !node.config.in_sync;
        for copy in copies_of(joining) {
            let peer = reign.peers.get(copy).filter(|peer| peer.standing == Standing::Joining && peer.follows)?;
            if self.s.nodes[copy].leased_to & only(primary) == 0 || peer.diverged_at.is_some() {
                return None;
            }
            if self.model.rules.joiners_are_level && peer.acked < node.committed {
                return None;
            }
            config.insert(copy);
        }
        // `SetView::keeps_what_is_committed`.
        if !waits_for_all && reign.is_open() {
            let mut acked = reign.peers.map(|peer| peer.acked);
            acked[primary] = node.log.len;
            if self.model.ack.held_by_enough(in_sync, primary, acked) < node.committed {
                return None;
            }
        }
        let reign = self.s.nodes[primary].reign.as_mut()?;
        copies_of(joining).for_each(|copy| reign.peers[copy].named = true);
        self.propose(primary, config)
    }

    /// `Primary::start_resync` on the primary, `Secondary::on_learn` on the copy, `Primary::on_learn_ok`.
    pub(crate) fn learn(&mut self, primary: usize, copy: usize) -> Option<()> {
        let from = self.s.nodes[primary];
        let reign = from.reign.filter(|reign| reign.is_open())?;
        let named = from.config.in_sync & only(copy) != 0;
        if primary == copy || named || reign.peers[copy].standing != Standing::None {
            return None;
        }
        let (epoch, base) = (reign.epoch, from.committed);
        let since = from.config.away[copy].min(base);
        let node = &self.s.nodes[copy];
        let in_sync = node.config.in_sync & only(copy) != 0;
        if (node.config.epoch > epoch && in_sync) || base < node.committed {
            return None;
        }
        self.listen_to(copy, epoch)?;
        let node = &mut self.s.nodes[copy];
        node.committed = node.committed.max(since.min(node.log.len));
        let complete = since.min(node.incomplete.unwrap_or(node.committed)).min(node.committed);
        node.learning = Some(!in_sync);
        let keep = node.committed;
        node.log.truncate(keep);
        if base > keep {
            node.incomplete.get_or_insert(keep);
        }
        while node.log.len < base {
            node.log.push(HOLE);
        }
        (node.recorded, node.committed, node.base) = (epoch, base, base);
        let reign = self.s.nodes[primary].reign.as_mut()?;
        let standing = Standing::Learning(complete);
        reign.peers[copy] = Peer { standing, follows: true, opened: true, acked: base, ..Peer::default() };
        Some(())
    }

    /// `Primary::run_resync`: what differs behind the place from which the copy was compared is sent, and writes wait
    /// for it.
    pub(crate) fn learnt(&mut self, primary: usize, copy: usize) -> Option<()> {
        let from = self.s.nodes[primary];
        let reign = from.reign?;
        let Standing::Learning(complete) = reign.peers[copy].standing else { return None };
        let node = &mut self.s.nodes[copy];
        if node.reign.is_some() || !node.connected || node.following != reign.epoch {
            return None;
        }
        for place in complete..node.committed.min(from.committed) {
            node.log.writes[place as usize] = from.log.writes[place as usize];
        }
        if let Some(reign) = &mut self.s.nodes[primary].reign {
            reign.peers[copy].standing = Standing::Joining;
        }
        self.settle(primary);
        Some(())
    }

    /// The process of a copy ends, and another begins: `Group::new` with what the log shows, and the configuration that
    /// stands. `late`: a proposal that is under way may still be executed. `forgetful`: the log does not show the
    /// commit points that came since the epoch began. `cut`: nor what was ordered and not committed, which was not
    /// durable.
    pub(crate) fn restart(&mut self, copy: usize, late: bool, forgetful: bool, cut: bool) -> Option<()> {
        if self.s.witness.restarts == self.model.bounds.restarts {
            return None;
        }
        self.s.witness.restarts += 1;
        let store = self.s.store;
        let before = self.s.nodes[copy];
        let next = store.version + 1;
        let proposed = before.proposal.filter(|proposal| proposal.config.version == next && !proposal.accepted);
        let open = before.reign.is_some_and(|reign| reign.is_open());
        let no_news = forgetful && before.base == before.committed;
        let no_tail = cut && !(open && before.log.len > before.committed);
        if (late && proposed.is_none()) || no_news || no_tail {
            return None;
        }
        if late {
            self.s.orphan = proposed.map(|proposal| proposal.config);
        }
        let mut log = before.log;
        if cut {
            log.truncate(before.committed);
        }
        let node = Node {
            life: before.life + 1,
            config: store,
            committed: if forgetful { before.base } else { before.committed },
            log,
            learning: None,
            following: before.recorded,
            connected: false,
            bound: self.model.rules.starts_bound,
            low_watermark: 0,
            proposal: None,
            claim: None,
            reign: None,
            ..before
        };
        self.s.nodes[copy] = node;
        self.s.nodes.iter_mut().for_each(|node| node.outdated_leases &= !only(copy));
        if let Some(reign) = before.reign {
            self.forget_reign(copy, reign.epoch);
        }
        for other in &mut self.s.nodes {
            other.leased_to &= !only(copy);
            let Some(reign) = &mut other.reign else { continue };
            if let Some(before) = reign.predecessor.as_mut().filter(|before| before.copy as usize == copy) {
                before.invited = false;
            }
            // `Primary::forget_peer`.
            let peer = &mut reign.peers[copy];
            if peer.standing == Standing::InSync || peer.named {
                peer.follows = false;
            } else {
                *peer = Peer::default();
            }
        }
        (0..self.s.nodes.len()).for_each(|primary| self.settle(primary));
        Some(())
    }
}
