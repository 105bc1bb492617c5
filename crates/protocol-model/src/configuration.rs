//! The configuration store, and what copies make of what it says: claims, the beginning and the end of a reign.
//!
//! A store that can't be reached is one whose steps do not come: every step here may wait for as long as it likes.

use crate::quorum::AckRule;
use crate::run::Run;
use crate::state::{
    Broken, COPIES, Claim, Config, Peer, Predecessor, Proposal, Reign, Stage, Standing, copies_of, only,
};

impl Run<'_> {
    /// `Secondary::claim`, called by `Group::new` and `Group::adopt` (the configuration names this copy and not its
    /// process), by `Secondary::watch_primary` (the primary is silent: the grace period began with the last promise, so
    /// that has run out), and by `Secondary::try_inherit` (`invited`).
    pub(crate) fn claim(&mut self, copy: usize, invited: bool) -> Option<()> {
        let node = &self.s.nodes[copy];
        let own = node.config.primary as usize == copy;
        let silent = node.config.in_sync & only(copy) != 0;
        if node.reign.is_some() || node.proposal.is_some() || !(own || silent || invited) {
            return None;
        }
        let mut config = node.config.next();
        config.epoch = node.config.epoch.max(node.recorded).max(node.following) + 1;
        config.primary = copy as u8;
        config.reign = node.life;
        if !own && !invited && self.model.ack.waits_for_all(node.config.in_sync) {
            config.remove(node.config.primary as usize, node.committed);
        }
        let claim = Claim {
            epoch: config.epoch,
            invited,
            former: node.config.primary,
            former_epoch: node.config.epoch,
            ended: if own && node.config.reign != 0 { node.config.epoch } else { 0 },
            unbound: own && node.recorded >= node.config.epoch,
        };
        self.s.nodes[copy].claim = Some(claim);
        if !own && !invited {
            self.expire(copy);
        }
        self.propose(copy, config)
    }

    /// `Primary::hand_over`, `Primary::try_invite` on the primary; `Secondary::on_hand_over`, `Secondary::try_inherit`
    /// on the copy.
    pub(crate) fn hand_over(&mut self, primary: usize, to: usize) -> Option<()> {
        let (old, successor) = (&self.s.nodes[primary], &self.s.nodes[to]);
        let reign = old.reign.as_ref()?;
        let peer = &reign.peers[to];
        let there = peer.standing == Standing::InSync && peer.follows && successor.leased_to & only(primary) != 0;
        let ready = reign.is_open() && old.proposal.is_none() && there && peer.acked >= old.committed;
        let follows = successor.connected && successor.following == reign.epoch && successor.recorded == reign.epoch;
        let knows = successor.config.epoch == reign.epoch && successor.config.primary as usize != to;
        let whole = successor.log.len >= old.committed && successor.config.in_sync & only(to) != 0;
        if !(ready && follows && knows && whole) {
            return None;
        }
        self.claim(to, true)
    }

    /// `Primary::propose`.
    pub(crate) fn propose(&mut self, copy: usize, config: Config) -> Option<()> {
        if config.version > self.model.bounds.versions || config.epoch > self.model.bounds.epochs {
            return None;
        }
        let node = &mut self.s.nodes[copy];
        if let Some(reign) = &mut node.reign
            && config.in_sync != node.config.in_sync
            && self.model.ack != AckRule::All
        {
            reign.proposals_in_doubt |= 1 << config.in_sync;
        }
        node.proposal = Some(Proposal { config, accepted: false });
        Some(())
    }

    /// `Primary::propose_primary`.
    pub(crate) fn propose_primary(&mut self, copy: usize, to: usize) -> Option<()> {
        let node = &self.s.nodes[copy];
        if node.proposal.is_some() {
            return None;
        }
        let mut config = node.config.next();
        config.epoch = node.reign.as_ref()?.epoch + 1;
        config.primary = to as u8;
        config.reign = 0;
        self.step_down(copy);
        self.propose(copy, config)
    }

    /// The store executes a compare-and-swap. One that would be refused now will be: the version never goes back.
    fn compare_and_swap(&mut self, config: Config) -> Option<()> {
        if config.version != self.s.store.version + 1 {
            return None;
        }
        let store = &self.s.store;
        let same = (config.epoch, config.primary, config.reign) == (store.epoch, store.primary, store.reign);
        if !same && config.epoch <= store.epoch {
            self.breaks(Broken::TwoReigns);
        }
        let joined = config.in_sync & !self.s.store.in_sync;
        let witness = self.s.witness.committed;
        let holders = (0..COPIES).filter(|copy| self.s.nodes[*copy].log.agrees(&witness, witness.len));
        let holders = holders.fold(0, |set, copy| set | only(copy));
        if joined & !holders != 0 {
            self.breaks(Broken::JoinedWithout);
        }
        self.s.store = config;
        self.s.orphan = None;
        Some(())
    }

    /// The store executes a copy's proposal; the copy does not hear of it yet.
    pub(crate) fn execute(&mut self, copy: usize) -> Option<()> {
        let Proposal { config, accepted } = self.s.nodes[copy].proposal?;
        if accepted {
            return None;
        }
        self.compare_and_swap(config)?;
        self.s.nodes[copy].proposal = Some(Proposal { config, accepted: true });
        Some(())
    }

    /// The store executes a proposal whose process has ended meanwhile.
    pub(crate) fn execute_orphan(&mut self) -> Option<()> {
        let config = self.s.orphan.take()?;
        self.compare_and_swap(config)
    }

    /// `Group::proposal_done` of one that was accepted. Who is refused reads first what stands (`configure`).
    pub(crate) fn hear(&mut self, copy: usize) -> Option<()> {
        let Proposal { config, .. } = self.s.nodes[copy].proposal.filter(|proposal| proposal.accepted)?;
        self.adopt(copy, config, true);
        Some(())
    }

    /// `Group::configure`: the copy reads what stands now.
    pub(crate) fn configure(&mut self, copy: usize) -> Option<()> {
        let store = self.s.store;
        let node = &self.s.nodes[copy];
        if store.version <= node.config.version {
            return None;
        }
        let own = node.proposal.is_some_and(|proposal| proposal.config == store);
        self.adopt(copy, store, own);
        Some(())
    }

    /// `Group::adopt`, and `Group::proposal_done` of what it decides. The claim that it may end with is a step of its
    /// own.
    fn adopt(&mut self, copy: usize, config: Config, own: bool) {
        let node = &mut self.s.nodes[copy];
        node.config = config;
        // Whichever version was proposed, it has been decided: a proposal is the next version of what was known.
        node.proposal = None;
        if let Some(reign) = &mut node.reign {
            reign.proposals_in_doubt = 0;
            if own && self.model.ack != AckRule::All && reign.is_gathering() {
                reign.stage = Stage::Confirmed;
            }
        }
        self.follow_completeness(copy);
        let node = &self.s.nodes[copy];
        let reigning = config.primary as usize == copy && config.reign == node.life;
        match &node.reign {
            Some(reign) if reigning && reign.epoch == config.epoch => self.follow_members(copy),
            Some(_) => self.step_down(copy),
            None if reigning => self.begin_reign(copy),
            None => {}
        }
        self.s.nodes[copy].claim = None;
    }

    /// `GroupCx::follow_completeness`.
    fn follow_completeness(&mut self, copy: usize) {
        let node = &mut self.s.nodes[copy];
        let in_sync = node.config.in_sync & only(copy) != 0;
        match &mut node.learning {
            Some(was_out) if !in_sync => *was_out = true,
            Some(true) => (node.learning, node.incomplete) = (None, None),
            _ => {}
        }
    }

    /// `Primary::follow_members`.
    fn follow_members(&mut self, copy: usize) {
        let node = &mut self.s.nodes[copy];
        let in_sync = node.config.in_sync;
        let Some(reign) = &mut node.reign else { return };
        for (other, peer) in reign.peers.iter_mut().enumerate() {
            peer.named = false;
            if other == copy {
                continue;
            }
            if in_sync & only(other) != 0 {
                peer.standing = Standing::InSync;
            } else if peer.standing == Standing::InSync {
                *peer = Peer::default();
            }
        }
        self.settle(copy);
    }

    /// `Group::become_primary`, `Primary::begin_gathering`.
    fn begin_reign(&mut self, copy: usize) {
        let node = &mut self.s.nodes[copy];
        let Some(claim) = node.claim.take_if(|claim| claim.epoch == node.config.epoch) else { return };
        if node.following >= claim.epoch {
            return;
        }
        let predecessor = Predecessor {
            copy: claim.former,
            epoch: claim.former_epoch,
            invited: claim.invited && node.connected,
            awaited: node.bound && !claim.unbound && self.model.rules.waits_out_its_promise,
            stopped: false,
        };
        let mut peers = [Peer::default(); COPIES];
        for other in copies_of(node.config.in_sync & !only(copy)) {
            peers[other].standing = Standing::InSync;
        }
        let (stage, opens_at, proposals_in_doubt) = (Stage::Gathering, 0, 0);
        let (epoch, ended, predecessor) = (claim.epoch, claim.ended, Some(predecessor));
        node.reign = Some(Reign { epoch, stage, opens_at, ended, predecessor, proposals_in_doubt, peers });
        node.connected = false;
        self.settle(copy);
    }

    /// `Group::become_secondary`.
    pub(crate) fn step_down(&mut self, copy: usize) {
        let node = &mut self.s.nodes[copy];
        let log_epoch = node.log_epoch();
        let Some(reign) = node.reign.take() else { return };
        if node.recorded == reign.epoch {
            node.bound = false;
        }
        node.following = reign.epoch.max(log_epoch);
        if !self.model.rules.promises_name_their_epoch {
            // The process goes on, and what it was promised is still on its books.
            for node in self.s.nodes.iter_mut().filter(|node| node.leased_to & only(copy) != 0) {
                node.outdated_leases |= only(copy);
            }
        }
        self.forget_reign(copy, reign.epoch);
    }

    /// Nothing comes from this reign any more.
    pub(crate) fn forget_reign(&mut self, copy: usize, epoch: u8) {
        for (other, node) in self.s.nodes.iter_mut().enumerate() {
            if other != copy && node.following == epoch {
                node.connected = false;
            }
            node.leased_to &= !only(copy);
        }
    }
}
