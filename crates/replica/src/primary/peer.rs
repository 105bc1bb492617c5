//! What a primary knows of each other copy.

use super::share::Share;
use crate::lease::{SILENCE, STUCK};
use crate::pace::Pace;
use crate::repair::resync::Resync;
use crate::window::Backlog;
use azekura_base::Sequence;
use std::time::Duration;

/// A copy for which writes wait, and that makes nothing durable for so long, is given up for a while ...
const HOLD_MAX: Duration = Duration::from_millis(500);

/// ... and so is one that is much slower than the others for so long.
const HOLD_SLOW_MAX: Duration = Duration::from_secs(3);

/// What a copy is to the primary.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Every write waits for it.
    InSync,
    /// It has everything, and every write waits for it; the configuration does not name it yet.
    Joining,
    /// It is being brought up to date. Nothing waits for it.
    Learning(Box<Resync>),
}

/// What a copy was sent, and how much of that is durable there.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The last write sent to it on the present connection.
    pub(crate) sent: Sequence,
    /// Writes up to here have perhaps been sent on an earlier connection; they are sent again with their blocks.
    pub(crate) again: Sequence,
    /// Everything up to here is durable there.
    pub(crate) acked: Sequence,
    /// What was sent to it and is not durable there, where writes need not wait for it.
    pub(crate) backlog: Backlog,
    /// How much of that there may be, while it is brought up to date.
    pub(crate) share: Share,
    /// It lags, and was not sent what is committed by now: only being brought up to date helps.
    pub(crate) missed: bool,
    /// How long writes take there.
    pub(crate) pace: Pace,
}

/// Until when a copy's promises count.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Until when the copy follows nobody else: its promise, as far as this primary may count on it (0004).
    pub(crate) lease_until: Duration,
    /// Until when the copy may answer readers by itself, if it has not given that up. It is not left behind before
    /// (0007).
    pub(crate) reads_until: Duration,
    /// The copy has given it up, and nothing is on its way there that could have it go on.
    pub(crate) reads_given_up: bool,
}

impl Leases {
    /// Until when the copy may answer readers by itself.
    pub(crate) fn reads_until(&self) -> Duration {
        if self.reads_given_up { Duration::ZERO } else { self.reads_until }
    }
}

/// When a copy has shown that it is there.
#[derive(Debug)]
pub(crate) struct Signs {
    /// When the copy last said anything.
    pub(crate) heard: Duration,
    /// When the copy was last asked how far it is.
    pub(crate) asked: Duration,
    /// So many such questions were sent on the present connection.
    pub(crate) questions: u32,
    /// So many of them were answered, at least.
    pub(crate) answers: u32,
    /// When the copy last had nothing to make durable, or made something durable.
    pub(crate) moved: Duration,
}

/// What the primary knows of one other copy.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) standing: Standing,
    /// The copy follows the epoch on the present connection.
    pub(crate) follows: bool,
    /// The copy has recorded the epoch.
    pub(crate) opened: bool,
    /// The copy has said how far it is since this reign began: the copy counts as heard (0010, point 4).
    pub(crate) answered: bool,
    /// The copy joins, and this version of the configuration, whose outcome is not known, names it in sync.
    pub(crate) named: Option<u64>,
    /// The copy's log is not a beginning of this primary's, because it has lost writes or has others: the log is good
    /// up to here.
    pub(crate) diverged_at: Option<Sequence>,
    /// The copy's device takes no more data.
    pub(crate) full: bool,
    /// The copy has said that it is about to stop, or to be given up, or that its device hangs: the copy answers no
    /// reader any more.
    pub(crate) leaving: bool,
    pub(crate) stream: Stream,
    pub(crate) leases: Leases,
    pub(crate) signs: Signs,
}

impl Peer {
    pub(crate) fn new(standing: Standing, now: Duration) -> Peer {
        Peer {
            standing,
            follows: false,
            opened: false,
            answered: false,
            named: None,
            diverged_at: None,
            full: false,
            leaving: false,
            stream: Stream {
                sent: Sequence::ZERO,
                again: Sequence::ZERO,
                acked: Sequence::ZERO,
                backlog: Backlog::default(),
                share: Share::new(now),
                missed: false,
                pace: Pace::default(),
            },
            leases: Leases::default(),
            signs: Signs { heard: now, asked: Duration::ZERO, questions: 0, answers: 0, moved: now },
        }
    }

    /// A copy that is sent everything after `base`, from now on; what is on its way counts in `backlog`.
    pub(crate) fn learning(resync: Resync, base: Sequence, again: Sequence, backlog: Backlog, now: Duration) -> Peer {
        let mut peer = Peer::new(Standing::Learning(Box::new(resync)), now);
        (peer.follows, peer.opened) = (true, true);
        (peer.stream.sent, peer.stream.again, peer.stream.acked) = (base, again, base);
        peer.stream.backlog = backlog;
        peer
    }

    /// The copy has said that it promises nothing and answers no reader any more. In this epoch it may have been told
    /// that it may, if that is `open`.
    pub(crate) fn leaves(&mut self, open: bool) {
        self.leaving = true;
        // A copy that has taken leave goes on when it is asked how far it is. It has got the first question of a
        // connection before it says anything there.
        let may_be_asked = self.signs.questions > self.signs.answers.max(1);
        self.leases.reads_given_up = !(open && may_be_asked);
    }

    /// The copy has not taken leave, or goes on after all.
    pub(crate) fn stays(&mut self) {
        (self.leaving, self.leases.reads_given_up) = (false, false);
    }

    /// The copy has what the primary has committed, and can be asked for blocks.
    pub(crate) fn answers(&self, now: Duration) -> bool {
        matches!(self.standing, Standing::InSync) && self.follows && !self.leaving && now < self.signs.heard + SILENCE
    }

    /// The copy may be left behind: the copy has been silent for `patience`, is stuck, lags, or takes leave.
    pub(crate) fn has_failed(&self, patience: Duration, now: Duration) -> bool {
        self.leaving || now >= self.signs.heard + patience || now >= self.signs.moved + STUCK || self.lags()
    }

    /// More is on its way to the copy than may be.
    pub(crate) fn lags(&self) -> bool {
        self.stream.missed || self.stream.backlog.is_too_long()
    }

    /// The configuration names the copy in sync, or a proposal does whose outcome is not known.
    pub(crate) fn may_be_in_sync(&self) -> bool {
        matches!(self.standing, Standing::InSync) || self.named.is_some()
    }

    /// Writes wait for the copy.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.standing, Standing::Learning(_))
    }

    /// Writes wait for it in vain.
    pub(super) fn is_held_for_nothing(&self, now: Duration) -> bool {
        let Share { held_since, slow_since, .. } = self.stream.share;
        held_since.is_some_and(|since| now >= since.max(self.signs.moved) + HOLD_MAX)
            || slow_since.is_some_and(|since| now >= since + HOLD_SLOW_MAX)
    }
}
