//! What a primary knows of each other copy.

use crate::flow::{Backlog, Share};
use crate::lease::{SILENCE, STUCK};
use crate::resync::Resync;
use crate::sluggish::Pace;
use azekura_base::Sequence;
use std::time::Duration;

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

/// What the primary knows of one other copy.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) standing: Standing,
    /// It follows the epoch on the present connection.
    pub(crate) synced: bool,
    /// It has recorded the epoch.
    pub(crate) opened: bool,
    /// The last write sent to it on that connection.
    pub(crate) sent: Sequence,
    /// Writes up to here have perhaps been sent on an earlier connection; they are sent again with their blocks.
    pub(crate) again: Sequence,
    /// Everything up to here is durable there.
    pub(crate) acked: Sequence,
    /// Until when the copy follows nobody else: its promise, as far as this primary may count on it (0004).
    pub(crate) lease_until: Duration,
    /// Until when the copy may answer readers by itself. It is not left behind before (0007).
    pub(crate) reads_until: Duration,
    /// When it last said anything.
    pub(crate) heard: Duration,
    /// When it was last asked how far it is.
    pub(crate) asked: Duration,
    /// When it last had nothing to make durable, or made something durable.
    pub(crate) moved: Duration,
    /// Its device takes no more data.
    pub(crate) full: bool,
    /// The copy has said that it is about to stop, or to be given up, or that its device hangs: it answers no reader
    /// any more.
    pub(crate) leaving: bool,
    /// The copy joins, and this version of the configuration, whose outcome is not known, names it in sync.
    pub(crate) named: Option<u64>,
    /// The copy's log is not a beginning of this primary's, because it has lost writes or has others: it is good up to
    /// here.
    pub(crate) diverged_at: Option<Sequence>,
    /// The copy has said how far it is since this reign began: it counts as heard (0010, point 4).
    pub(crate) answered: bool,
    /// What was sent to it and is not durable there, where writes need not wait for it.
    pub(crate) backlog: Backlog,
    /// How much of that there may be, while it is brought up to date.
    pub(crate) share: Share,
    /// It lags, and was not sent what is committed by now: only being brought up to date helps.
    pub(crate) missed: bool,
    /// How long writes take there.
    pub(crate) pace: Pace,
}

impl Peer {
    pub(crate) fn new(standing: Standing, now: Duration) -> Peer {
        Peer {
            standing,
            synced: false,
            opened: false,
            sent: Sequence::ZERO,
            again: Sequence::ZERO,
            acked: Sequence::ZERO,
            lease_until: Duration::ZERO,
            reads_until: Duration::ZERO,
            heard: now,
            asked: Duration::ZERO,
            moved: now,
            full: false,
            leaving: false,
            named: None,
            diverged_at: None,
            answered: false,
            backlog: Backlog::default(),
            share: Share::new(now),
            missed: false,
            pace: Pace::default(),
        }
    }

    /// A copy that is sent everything after `base`, from now on.
    pub(crate) fn learning(resync: Resync, base: Sequence, again: Sequence, now: Duration) -> Peer {
        let standing = Standing::Learning(Box::new(resync));
        Peer { synced: true, opened: true, sent: base, again, acked: base, ..Peer::new(standing, now) }
    }

    /// The copy has what the primary has committed, and can be asked for blocks.
    pub(crate) fn answers(&self, now: Duration) -> bool {
        matches!(self.standing, Standing::InSync) && self.synced && !self.leaving && now < self.heard + SILENCE
    }

    /// The copy may be left behind: it has been silent for `patience`, is stuck, lags, or takes leave.
    pub(crate) fn has_failed(&self, patience: Duration, now: Duration) -> bool {
        self.leaving || now >= self.heard + patience || now >= self.moved + STUCK || self.lags()
    }

    /// More is on its way to the copy than may be.
    pub(crate) fn lags(&self) -> bool {
        self.missed || self.backlog.is_too_long()
    }

    /// The configuration names the copy in sync, or a proposal does whose outcome is not known.
    pub(crate) fn may_be_in_sync(&self) -> bool {
        matches!(self.standing, Standing::InSync) || self.named.is_some()
    }

    /// Writes wait for the copy.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self.standing, Standing::Learning(_))
    }
}
