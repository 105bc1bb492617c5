//! What a group may do beside clients' requests: bring copies up to date, and scrub.
//!
//! The surroundings hand out bytes ([`crate::Group::allow_background`]). Work is begun while there are any left, and
//! may overdraw them by what the work moves; the next hand-outs pay that back (decision 0012).

use azekura_base::Extent;

/// Bytes that are not used are saved up to here.
const SAVED_MAX: i64 = 1 << 20;

/// What the background may still do.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes; `None`: there is no limit.
    left: Option<i64>,
    /// Bytes moved since the last look.
    used: i64,
}

impl Allowance {
    /// So many bytes more may be moved; `None`: there is no limit until the next call.
    pub(crate) fn grant(&mut self, bytes: Option<u64>) {
        self.left = bytes.map(|bytes| (self.left.unwrap_or(0) + bytes as i64).min(SAVED_MAX));
    }

    /// Bytes moved since the last call; less than nothing, when too many had been counted before.
    pub(crate) fn take_use(&mut self) -> i64 {
        std::mem::take(&mut self.used)
    }

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
