//! The epochs that one copy knows, and what it may do in each.
//!
//! Four numbers, each at least as high as the one before it, but for the last:
//!
//! - *recorded*: the epoch whose record is durable on this copy's device. Promises are given in this epoch only.
//! - *logged*: the epoch whose record was sent to the log last. What is appended belongs to it.
//! - *followed*: the epoch that this process has voted for last: whose primary it follows, or is.
//! - *configured*: the epoch of the configuration that this process has read last.
//!
//! A vote (the answer to a [`azekura_wire::NewEpoch`]) is not written down, and need not be: whoever asks for votes has
//! a claim that stands in the configuration, and a process that starts reads the configuration before it answers
//! anybody. So what Raft keeps in `votedFor` is *configured* here, and no primary of an epoch below is followed
//! (decision 0010, point 3).
//!
//! | message, from a primary | compared with | and |
//! |---|---|---|
//! | `NewEpoch`, `Learn` | accepted from [`Epochs::least_acceptable`] on; makes it *followed* | its connection becomes the primary's |
//! | `NewEpoch`, where writes do not wait for all copies | put off while bound to the primary of *recorded* | the promise runs out, or `ended` names *recorded* |
//! | `Prepare`, `Repair`, `Fetch`, `Compare` | *followed* exactly | on the primary's connection, else they are leftovers |
//! | `Prepare`, at a new primary | the predecessor's epoch exactly | on the connection on which it was followed, while gathering |
//! | heartbeat | *followed* exactly; gets a promise only if that is *recorded* too | on any connection of the primary's node |
//! | `HandOver` | *followed* and *recorded* exactly | on the primary's connection |
//!
//! | answer, at the primary | compared with |
//! |---|---|
//! | `NewEpochOk`, `PrepareOk`, `LearnOk`, `CompareOk`, `RepairOk`, `Fetched`, `Leaving` | the epoch of its reign exactly |

use crate::lease::GRACE;
use azekura_base::Epoch;
use std::time::Duration;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epochs {
    recorded: Epoch,
    logged: Epoch,
    followed: Epoch,
    configured: Epoch,
    /// Records on their way to the device.
    recording: u32,
    /// Until when the primary of the recorded epoch may count on this copy.
    promised_until: Duration,
}

impl Epochs {
    /// Of a process that starts at `now` and finds `recorded` on its device.
    pub(crate) fn recovered(recorded: Epoch, configured: Epoch, now: Duration) -> Epochs {
        // What an earlier process has promised is forgotten: it is taken to have promised all that it could (0013,
        // point 3).
        let promised_until = now + GRACE;
        Epochs { recorded, logged: recorded, followed: recorded, configured, recording: 0, promised_until }
    }

    pub(crate) fn recorded(&self) -> Epoch {
        self.recorded
    }

    pub(crate) fn logged(&self) -> Epoch {
        self.logged
    }

    pub(crate) fn followed(&self) -> Epoch {
        self.followed
    }

    /// A record of `epoch` is on its way to the log.
    pub(crate) fn record(&mut self, epoch: Epoch) {
        self.recording += 1;
        self.logged = epoch;
    }

    /// A record of `epoch` is durable.
    pub(crate) fn is_durable(&mut self, epoch: Epoch) {
        self.recording = self.recording.saturating_sub(1);
        self.recorded = self.recorded.max(epoch);
    }

    /// A record is on its way to the device.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording > 0
    }

    /// The configuration names `epoch`.
    pub(crate) fn configure(&mut self, epoch: Epoch) {
        self.configured = self.configured.max(epoch);
    }

    /// The epoch that this copy may claim: nobody has claimed, or voted in, it or a later one as far as this copy
    /// knows.
    pub(crate) fn next_claim(&self) -> Epoch {
        self.configured.max(self.logged).max(self.followed).next()
    }

    /// The lowest epoch whose primary this copy may follow. In the epoch that this copy `reigns` in nobody else is
    /// primary.
    pub(crate) fn least_acceptable(&self, reigns: Option<Epoch>) -> Epoch {
        let voted = reigns.map_or(self.followed.max(self.logged), Epoch::next);
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_votes() {
            return voted;
        }
        // 0010, point 3: a vote survives a restart because the configuration names the epoch that was voted for.
        voted.max(self.configured)
    }

    /// Votes for the primary of `epoch`.
    pub(crate) fn follow(&mut self, epoch: Epoch) {
        self.followed = epoch;
    }

    /// This copy was primary of `epoch` and is so no more: it follows nobody of an earlier epoch.
    pub(crate) fn step_down(&mut self, epoch: Epoch) {
        if self.recorded == epoch {
            // Promises count for the primary of the recorded epoch, and that was this copy.
            self.promised_until = Duration::ZERO;
        }
        self.followed = epoch.max(self.logged);
    }

    /// The primary of `epoch` may be promised that nobody else is followed for [`GRACE`].
    pub(crate) fn may_promise(&self, epoch: Epoch) -> bool {
        // 0013, point 3: only in the recorded epoch, so that a process which starts knows to whom promises may have
        // been made.
        epoch == self.followed && epoch == self.recorded
    }

    /// Promises the primary of the recorded epoch to follow nobody else for [`GRACE`].
    pub(crate) fn promise(&mut self, now: Duration) {
        self.promised_until = self.promised_until.max(now + GRACE);
    }

    /// The promise to the primary of the recorded epoch has not run out.
    pub(crate) fn is_bound(&self, now: Duration) -> bool {
        now < self.promised_until
    }

    pub(crate) fn promised_until(&self) -> Duration {
        self.promised_until
    }

    /// The primary of `epoch` serves nobody any more: what was promised to that primary is void.
    pub(crate) fn has_ended(&mut self, epoch: Epoch) {
        // 0013, point 2: void is only what was promised to that very primary, the one of the recorded epoch.
        if epoch == self.recorded {
            self.promised_until = Duration::ZERO;
        }
    }
}
