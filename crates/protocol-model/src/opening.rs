//! How a reign begins: `takeover/` in `crates/replica`, and the secondary's part of it.

use crate::quorum::AckRule;
use crate::run::Run;
use crate::state::{Broken, COPIES, Peer, Stage, Standing, copies_of, only};

impl Run<'_> {
    /// `Primary::send_new_epoch` on the primary, `Secondary::on_new_epoch`, `Secondary::listen_to` and
    /// `Secondary::enter_epoch` on the copy. A copy that is bound takes the question up when its promise has run out
    /// (`Secondary::deferred_vote`): it is asked then.
    pub(crate) fn ask(&mut self, primary: usize, copy: usize) -> Option<()> {
        let asking = self.s.nodes[primary];
        let reign = asking.reign?;
        let peer = &reign.peers[copy];
        let open = reign.opens();
        if !peer.counts() || (peer.follows && peer.opened == open) {
            return None;
        }
        let (epoch, ack, rules) = (reign.epoch, self.model.ack, &self.model.rules);
        let node = &self.s.nodes[copy];
        let ended = reign.ended == node.recorded;
        let bound = epoch > node.recorded && !ended && node.bound && rules.copies_wait_out_their_promise;
        let secondary = node.reign.is_none() && epoch > node.following;
        let claimant = node.reign.is_some_and(|own| own.epoch != node.recorded && epoch > own.epoch);
        let deferred_vote = ack != AckRule::All && bound && (secondary || claimant && rules.claimants_wait_too);
        if node.recorded == epoch && node.connected && node.following == epoch && ack != AckRule::All {
            return None; // Asked twice: it says how far it is, which is a step of its own.
        }
        if deferred_vote {
            self.expire(copy);
        }
        self.listen_to(copy, epoch)?;
        let node = &mut self.s.nodes[copy];
        if ended {
            node.bound = false;
        }
        if open && node.recorded < epoch && node.log.len > reign.opens_at {
            return Some(()); // `Secondary::enter_epoch`: what it holds beyond was decided otherwise. It says so.
        }
        if ack == AckRule::All || open || asking.log_epoch() == node.recorded {
            node.committed = node.committed.max(asking.committed.min(node.log.len));
        }
        if open && node.recorded < epoch {
            node.log.truncate(node.committed);
            if ack != AckRule::All {
                node.low_watermark = node.low_watermark.max(node.committed);
            }
            (node.recorded, node.base) = (epoch, node.committed);
        }
        Some(())
    }

    /// `Secondary::listen_to`, `Epochs::least_acceptable`, `Secondary::follow`.
    pub(crate) fn listen_to(&mut self, copy: usize, epoch: u8) -> Option<()> {
        let node = &self.s.nodes[copy];
        if epoch < node.promised() {
            return None;
        }
        if self.model.rules.believes_its_configuration && epoch < node.config.epoch {
            return None;
        }
        self.step_down(copy);
        let node = &mut self.s.nodes[copy];
        (node.following, node.connected) = (epoch, true);
        Some(())
    }

    /// `Secondary::send_new_epoch_ok` on the copy, `Primary::on_new_epoch_ok` on the primary.
    pub(crate) fn answer(&mut self, primary: usize, copy: usize) -> Option<()> {
        let (asked, asking) = (self.s.nodes[copy], self.s.nodes[primary]);
        let reign = asking.reign?;
        let peer = reign.peers[copy];
        let follows = asked.reign.is_none() && asked.connected && asked.following == reign.epoch;
        if !follows || !peer.counts() {
            return None;
        }
        let waits_for_all = self.model.ack == AckRule::All;
        let hides = asked.is_doubtful() && (waits_for_all || reign.opens());
        let prepared = if hides { 0 } else { asked.log.len };
        let open = asked.recorded == reign.epoch;
        if peer.follows && peer.opened == open {
            return None; // It was said before, and changes nothing.
        }
        self.predecessor_stopped(primary, copy);
        let end = asking.log.len;
        let more = if waits_for_all { prepared > end } else { (asked.recorded, prepared) > (asking.log_epoch(), end) };
        if !reign.opens() && more {
            if asking.proposal.is_some() {
                self.settle(primary);
                return Some(());
            }
            return self.propose_primary(primary, copy);
        }
        let reign = self.s.nodes[primary].reign.as_mut()?;
        let opens = reign.opens();
        let peer = &mut reign.peers[copy];
        peer.answered = !opens && !waits_for_all;
        if !opens && !waits_for_all && asked.recorded < asking.log_epoch() {
            peer.diverged_at = Some(asked.committed);
        } else if opens && !open && prepared > reign.opens_at {
            peer.diverged_at = Some(reign.opens_at);
        } else if prepared < asking.committed || prepared < peer.acked || prepared > end {
            peer.diverged_at = Some(prepared);
        } else if !opens || open {
            (peer.opened, peer.follows, peer.acked) = (open, true, prepared);
        }
        self.settle(primary);
        Some(())
    }

    /// `Primary::predecessor_stopped`.
    fn predecessor_stopped(&mut self, primary: usize, copy: usize) {
        let node = &mut self.s.nodes[primary];
        let recorded = node.recorded;
        let Some(reign) = &mut node.reign else { return };
        let Some(before) = &mut reign.predecessor else { return };
        if before.copy as usize != copy || before.stopped {
            return;
        }
        before.stopped = true;
        if before.epoch == recorded {
            before.awaited = false;
        }
        reign.ended = reign.ended.max(before.epoch);
    }

    /// `Primary::on_late_prepare`: the end of the former primary's tail arrives.
    pub(crate) fn inherit_write(&mut self, primary: usize) -> Option<()> {
        let node = &self.s.nodes[primary];
        let reign = node.reign.as_ref()?;
        let before = reign.predecessor.filter(|before| before.invited)?;
        let former = &self.s.nodes[before.copy as usize];
        let more = former.recorded == before.epoch && former.log.len > node.log.len;
        if !reign.is_gathering() || !more {
            return None;
        }
        let write = former.log.writes[node.log.len as usize];
        self.s.nodes[primary].log.push(write);
        Some(())
    }

    /// `Primary::gather`, at any time after enough copies have answered: how long it waits for the others is left open.
    pub(crate) fn gather(&mut self, primary: usize) -> Option<()> {
        let node = &self.s.nodes[primary];
        let reign = node.reign.as_ref()?;
        if self.model.ack == AckRule::All
            || !reign.is_gathering()
            || reign.awaits_predecessor()
            || node.proposal.is_some()
        {
            return None;
        }
        let answered = (0..COPIES).filter(|copy| reign.peers[*copy].answered);
        let heard = answered.fold(only(primary), |set, copy| set | only(copy));
        if !self.model.ack.hears_enough(node.config.in_sync, heard) && self.model.rules.hears_enough {
            return None;
        }
        let end = node.log.len;
        let mut config = node.config.next();
        for (copy, peer) in reign.peers.iter().enumerate().filter(|(_, peer)| peer.counts()) {
            if peer.diverged_at.is_some() || !peer.follows || peer.acked < end {
                config.remove(copy, peer.diverged_at.unwrap_or(peer.acked).max(node.low_watermark));
            }
        }
        if self.model.rules.confirms {
            return self.propose(primary, config);
        }
        let reign = self.s.nodes[primary].reign.as_mut()?;
        reign.stage = Stage::Confirmed;
        for copy in copies_of(!config.in_sync & 0b111) {
            reign.peers[copy] = Peer::default();
        }
        self.settle(primary);
        Some(())
    }

    /// `Primary::try_commit`, `Primary::try_record` and `Primary::try_open`, which follow every step of a primary.
    pub(crate) fn settle(&mut self, primary: usize) {
        let node = &self.s.nodes[primary];
        let Some(reign) = &node.reign else { return };
        if reign.awaits_predecessor() || (self.model.ack != AckRule::All && reign.is_gathering()) {
            return;
        }
        let upto = self.held_by_enough(primary);
        if upto > self.s.nodes[primary].committed {
            self.commit(primary, upto);
        }
        self.try_record(primary);
        self.try_open(primary);
    }

    /// `Primary::held_by_enough`.
    fn held_by_enough(&self, primary: usize) -> u8 {
        let node = &self.s.nodes[primary];
        let Some(reign) = &node.reign else { return 0 };
        let durable = node.log.len;
        if self.model.ack == AckRule::All || !reign.is_open() {
            return reign.counting().map(|peer| peer.acked).min().unwrap_or(durable).min(durable);
        }
        let mut acked = reign.peers.map(|peer| peer.acked);
        acked[primary] = durable;
        let enough = |in_sync| self.model.ack.held_by_enough(in_sync, primary, acked);
        let in_doubt = (0..8).filter(|set| reign.proposals_in_doubt & 1 << set != 0).map(enough);
        let joining = reign.peers.iter().filter(|peer| peer.standing == Standing::Joining);
        in_doubt.chain(joining.map(|peer| peer.acked)).min().unwrap_or(durable).min(enough(node.config.in_sync))
    }

    /// `GroupCx::commit` on a primary: whoever waits for these writes is answered.
    fn commit(&mut self, primary: usize, upto: u8) {
        let node = &mut self.s.nodes[primary];
        node.committed = upto;
        let (log, in_sync) = (node.log, node.config.in_sync);
        let Some(epoch) = node.reign.as_ref().map(|reign| reign.epoch) else { return };
        let holds = |copy: usize| (0..=log.len).rev().find(|place| self.s.nodes[copy].log.agrees(&log, *place));
        let held: [u8; COPIES] = std::array::from_fn(|copy| holds(copy).unwrap_or(0));
        if self.model.ack.held_by_enough(in_sync, primary, held) < upto {
            self.breaks(Broken::TooFewCopies);
        }
        for place in 0..upto as usize {
            let witness = &mut self.s.witness;
            if place == witness.committed.len as usize {
                witness.committed.push(log.writes[place]);
                witness.in_epoch[place] = epoch;
            } else if witness.committed.writes[place] != log.writes[place] {
                self.breaks(Broken::TwoNames);
            }
        }
    }

    /// `Primary::try_record`.
    fn try_record(&mut self, primary: usize) {
        let node = &self.s.nodes[primary];
        let Some(reign) = &node.reign else { return };
        let all_there = reign.counting().all(|peer| peer.follows);
        if reign.opens() || node.committed != node.log.len || !all_there {
            return;
        }
        if node.is_doubtful()
            && let Some(surer) = self.more_complete_copy(primary)
        {
            // Beyond the bounds the step is left out, and the reign stands still.
            let _ = self.propose_primary(primary, surer);
            return;
        }
        let committed = node.committed;
        if let Some(reign) = &mut self.s.nodes[primary].reign {
            (reign.stage, reign.opens_at) = (Stage::Recording, committed);
        }
    }

    /// `Primary::more_complete_copy`.
    fn more_complete_copy(&self, primary: usize) -> Option<usize> {
        let node = &self.s.nodes[primary];
        let peers = &node.reign.as_ref()?.peers;
        let sure =
            |peer: &Peer| peer.counts() && peer.follows && peer.diverged_at.is_none() && peer.acked >= node.log.len;
        peers.iter().position(sure)
    }

    /// `Group::epoch_started` on the primary: its own record of the epoch is durable.
    pub(crate) fn record(&mut self, primary: usize) -> Option<()> {
        let node = &mut self.s.nodes[primary];
        let reign = node.reign.as_ref()?;
        if reign.stage != Stage::Recording || node.recorded == reign.epoch {
            return None;
        }
        (node.recorded, node.base) = (reign.epoch, node.committed);
        self.try_open(primary);
        Some(())
    }

    /// `Primary::try_open`.
    fn try_open(&mut self, primary: usize) {
        let node = &mut self.s.nodes[primary];
        let Some(reign) = &mut node.reign else { return };
        let recorded = node.recorded == reign.epoch;
        if reign.stage == Stage::Recording && recorded && reign.counting().all(|peer| peer.opened) {
            reign.stage = Stage::Open;
            (node.incomplete, node.learning, node.bound) = (None, None, false);
            // What only the beginning has asked for.
            (reign.predecessor, reign.ended) = (None, 0);
            reign.peers.iter_mut().for_each(|peer| peer.answered = false);
        }
    }
}
