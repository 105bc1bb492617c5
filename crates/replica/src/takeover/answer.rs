//! What a copy's answer to a [`azekura_wire::NewEpoch`] means for the primary that has asked.

use crate::primary::peer::Peer;
use azekura_base::{AckRule, Epoch, Sequence};
use azekura_wire::NewEpochOk;

/// What the primary knows of itself when an answer arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) ack: AckRule,
    /// The last place of earlier epochs; `None` while the tail of earlier epochs is gathered and committed.
    pub(super) opens_at: Option<Sequence>,
    /// The epoch whose record this copy has sent to its log last.
    pub(super) logged: Epoch,
    /// The last place that is prepared here.
    pub(super) end: Sequence,
    pub(super) committed: Sequence,
}

/// How a copy stands to the primary that has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The copy holds more than the primary, perhaps acknowledged: the primary's device has lost the end of its log, or
    /// writes were acknowledged without the primary. Or the rest is only on its way.
    HasMore,
    /// The copy's log is not a beginning of the primary's: the log is good up to here, and the copy is brought up to
    /// date from there.
    Diverged(Sequence),
    /// The copy goes on from where it is.
    Level,
    /// The answer to a question that was asked before something changed, or twice: nothing follows.
    Outdated,
}

impl Asker {
    /// What `ok` says of the copy of which this primary knows `peer`.
    pub(super) fn judge(&self, ok: &NewEpochOk, peer: &Peer) -> Verdict {
        let waits_for_all = self.ack == AckRule::All;
        // Under `all` no epoch opens before every in-sync copy has recorded it, so places alone tell who has more
        // (0007). Elsewhere a later epoch counts for more than any place of an earlier one (0010, point 4).
        let more =
            if waits_for_all { ok.prepared > self.end } else { (ok.recorded, ok.prepared) > (self.logged, self.end) };
        if self.opens_at.is_none() && more {
            return Verdict::HasMore;
        }
        if self.opens_at.is_none() && !waits_for_all && ok.recorded < self.logged {
            // 0010, point 4: what it has prepared was decided in an epoch that it has not seen, perhaps otherwise.
            return Verdict::Diverged(ok.committed);
        }
        if !waits_for_all
            && ok.open
            && peer.follows
            && peer.opened
            && (peer.stream.acked..=peer.stream.sent).contains(&ok.prepared)
        {
            return Verdict::Outdated; // Asked twice: what it lacks is on its way.
        }
        // 0007: the copy holds writes of an earlier epoch that were decided otherwise. Its log is good up to where this
        // epoch begins.
        if let Some(begin) = self.opens_at.filter(|begin| ok.recorded < ok.epoch && ok.prepared > *begin) {
            return Verdict::Diverged(begin);
        }
        // Fewer than are committed, or than it acknowledged: its log is not the one that it was.
        if ok.prepared < self.committed || ok.prepared < peer.stream.acked || ok.prepared > self.end {
            return Verdict::Diverged(ok.prepared);
        }
        if self.opens_at.is_some() && !ok.open {
            return Verdict::Outdated; // Asked before the tail was committed.
        }
        Verdict::Level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primary::peer::Standing;
    use azekura_base::{DeviceId, PgId};
    use std::time::Duration;

    const GATHERING: Asker =
        Asker { ack: AckRule::All, opens_at: None, logged: Epoch(4), end: Sequence(20), committed: Sequence(10) };
    const RECORDING: Asker = Asker { opens_at: Some(Sequence(20)), committed: Sequence(20), ..GATHERING };

    /// An answer to the primary of epoch 5 of a copy that has recorded `recorded` and holds everything up to
    /// `prepared`.
    fn says(recorded: u64, prepared: u64) -> NewEpochOk {
        let (pg, device, epoch, recorded) = (PgId(1), DeviceId(2), Epoch(5), Epoch(recorded));
        let (prepared, committed, open) = (Sequence(prepared), Sequence(9), recorded == epoch);
        NewEpochOk { pg, device, epoch, prepared, open, full: false, recorded, committed }
    }

    #[test]
    fn what_an_answer_means() {
        let new = Peer::new(Standing::InSync, Duration::ZERO);
        let mut acked = Peer::new(Standing::InSync, Duration::ZERO);
        acked.stream.acked = Sequence(15);
        let majority = |asker: Asker| Asker { ack: AckRule::Majority, logged: Epoch(4), ..asker };
        let cases = [
            ("as much", GATHERING, says(4, 20), &new, Verdict::Level),
            ("less, but all that is committed", GATHERING, says(4, 10), &new, Verdict::Level),
            ("more", GATHERING, says(4, 21), &new, Verdict::HasMore),
            ("less than is committed", GATHERING, says(4, 9), &new, Verdict::Diverged(Sequence(9))),
            ("less than it acknowledged", GATHERING, says(4, 14), &acked, Verdict::Diverged(Sequence(14))),
            ("an older epoch, all wait for all", GATHERING, says(3, 20), &new, Verdict::Level),
            ("an older epoch", majority(GATHERING), says(3, 20), &new, Verdict::Diverged(Sequence(9))),
            ("an older epoch and more", majority(GATHERING), says(3, 99), &new, Verdict::Diverged(Sequence(9))),
            ("a newer epoch and less", majority(GATHERING), says(6, 11), &new, Verdict::HasMore),
            ("has recorded the epoch", RECORDING, says(5, 20), &new, Verdict::Level),
            ("has not recorded it yet", RECORDING, says(4, 20), &new, Verdict::Outdated),
            ("has what was decided otherwise", RECORDING, says(4, 21), &new, Verdict::Diverged(Sequence(20))),
            ("has lost what it had recorded", RECORDING, says(5, 19), &new, Verdict::Diverged(Sequence(19))),
        ];
        for (what, asker, ok, peer, verdict) in cases {
            assert_eq!(asker.judge(&ok, peer), verdict, "{what}");
        }
    }

    #[test]
    fn an_answer_that_was_given_twice_changes_nothing() {
        let mut peer = Peer::new(Standing::InSync, Duration::ZERO);
        (peer.follows, peer.opened) = (true, true);
        (peer.stream.acked, peer.stream.sent) = (Sequence(20), Sequence(25));
        let open = Asker { ack: AckRule::Majority, end: Sequence(30), logged: Epoch(5), ..RECORDING };
        assert_eq!(open.judge(&says(5, 22), &peer), Verdict::Outdated);
        assert_eq!(open.judge(&says(5, 19), &peer), Verdict::Diverged(Sequence(19)));
        assert_eq!(Asker { ack: AckRule::All, ..open }.judge(&says(5, 22), &peer), Verdict::Level);
    }
}
