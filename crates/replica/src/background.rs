//! What a group may do beside clients' requests: bring copies up to date, and scrub.
//!
//! The surroundings hand out bytes ([`Group::allow_background`]). Work is begun while there are any left, and may
//! overdraw them by what the work moves; the next hand-outs pay that back (decision 0012).

use crate::group::Group;
use crate::primary::Primary;
use azekura_base::Extent;

use std::time::Duration;

/// Bytes that are not used are saved up to here.
const SAVED_MAX: i64 = 1 << 20;
/// Times of requests that are kept between two looks; further ones are not needed to know how long most took.
const TIMES_MAX: usize = 256;

/// What the background may still do.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes; `None`: there is no limit.
    left: Option<i64>,
    /// Bytes moved since the last look.
    used: i64,
}

impl Allowance {
    /// Something may be begun.
    pub(crate) fn is_open(&self) -> bool {
        self.left.is_none_or(|left| left > 0)
    }

    /// So many bytes will be moved.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.count(bytes as i64);
    }

    /// A whole chunk was counted, and these are its contents: blocks that take no space did not cost anything.
    pub(crate) fn settle_chunk(&mut self, extents: &[Extent]) {
        let data = |extent: &Extent| match extent {
            Extent::Data { bytes, .. } => bytes.len() as i64,
            Extent::Zero { .. } => 0,
        };
        self.count(extents.iter().map(data).sum::<i64>() - azekura_base::CHUNK_SIZE as i64);
    }

    fn count(&mut self, bytes: i64) {
        self.used += bytes;
        self.left = self.left.map(|left| left - bytes);
    }
}

impl Primary {
    /// It brings copies up to date, or scrubs.
    fn has_background(&self) -> bool {
        self.scrub.is_some() || self.peers.values().any(|peer| !peer.counts())
    }
}

impl Group {
    /// Lets the background move so many bytes more; `None`: without a limit, until the next call.
    pub fn allow_background(&mut self, bytes: Option<u64>) {
        let Allowance { left, .. } = &mut self.allowance;
        *left = bytes.map(|bytes| (left.unwrap_or(0) + bytes as i64).min(SAVED_MAX));
        if self.allowance.is_open() {
            self.run_resyncs();
            self.run_scrub();
        }
    }

    /// Bytes that the background has moved since the last call; less than nothing, when too many had been counted
    /// before.
    pub fn take_background_use(&mut self) -> i64 {
        std::mem::take(&mut self.allowance.used)
    }

    /// This copy is primary, and brings copies up to date or scrubs.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.primary().is_some_and(Primary::has_background)
    }

    /// Gives the times that writes have taken here since the last call, from their place in the order to their answer.
    pub fn drain_write_times(&mut self) -> impl Iterator<Item = Duration> + '_ {
        self.write_times.drain(..)
    }

    /// A write of a client is answered.
    pub(crate) fn note_write_time(&mut self, ordered_at: Duration) {
        if self.write_times.len() < TIMES_MAX {
            self.write_times.push(self.now.saturating_sub(ordered_at));
        }
    }
}
