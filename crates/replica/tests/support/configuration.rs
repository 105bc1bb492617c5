//! The configuration store: proposals are decided, and copies hear of it.

use super::{Cluster, device};
use azekura_base::DeviceId;

impl Cluster {
    /// The oldest proposal is decided, and everybody is told who is not deaf. False when there is none.
    pub fn decide(&mut self) -> bool {
        let deaf = self.deaf.clone();
        self.decide_and_tell(|device| !deaf.contains(&device))
    }

    /// The same; `deaf` is told nothing, and what it proposes does not arrive.
    pub fn decide_without(&mut self, deaf: DeviceId) -> bool {
        self.proposals.retain(|(proposer, _)| *proposer != deaf);
        self.decide_and_tell(|device| device != deaf)
    }

    /// The oldest proposal is made, and so is a later change by somebody else; the proposer hears only that it was
    /// refused, since it asks again when the later change stands. False when there is none.
    pub fn decide_unheard(&mut self) -> bool {
        let Some((me, proposal)) = self.proposals.pop_front() else { return false };
        let version = proposal.version;
        assert_eq!(self.config.version + 1, version);
        self.config = proposal;
        self.config.version += 1;
        self.copies.get_mut(&me).unwrap().group.proposal_done(version, false);
        self.run(me);
        true
    }

    /// The oldest proposal is made, and nobody hears of it yet. False when there is none.
    pub fn decide_in_silence(&mut self) -> bool {
        let Some((_, proposal)) = self.proposals.pop_front() else { return false };
        assert_eq!(self.config.version + 1, proposal.version);
        self.config = proposal;
        true
    }

    /// What a copy has proposed does not arrive.
    pub fn lose_proposals(&mut self, n: u32) {
        self.proposals.retain(|(proposer, _)| *proposer != device(n));
    }

    /// A copy reads the configuration.
    pub fn inform(&mut self, n: u32) {
        let config = self.config.clone();
        self.group(n).configure(config);
        self.run(device(n));
    }

    pub(super) fn decide_and_tell(&mut self, hears: impl Fn(DeviceId) -> bool) -> bool {
        if self.store_away {
            return false;
        }
        let Some((me, proposal)) = self.proposals.pop_front() else { return false };
        let version = proposal.version;
        let accepted = self.config.version + 1 == version;
        if accepted {
            self.config = proposal;
        }
        self.copies.get_mut(&me).unwrap().group.proposal_done(version, accepted);
        self.run(me);
        for other in self.copies.keys().copied().filter(|device| hears(*device)).collect::<Vec<_>>() {
            let config = self.config.clone();
            self.copies.get_mut(&other).unwrap().group.configure(config);
            self.run(other);
        }
        true
    }
}
