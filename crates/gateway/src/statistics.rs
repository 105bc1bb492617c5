//! Counters of one volume on one gateway. They only grow; readers take differences.

use std::time::Duration;

/// Latency buckets: bucket `i` counts requests that took less than 2^i microseconds and not less than 2^(i-1).
pub const LATENCY_BUCKETS: usize = 26;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests answered.
    pub count: u64,
    /// Bytes asked for in them.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Sum of the times from request to answer, in microseconds.
    pub latency_us: u64,
    /// See [`LATENCY_BUCKETS`].
    pub latency: [u64; LATENCY_BUCKETS],
}

impl Counters {
    /// A request of `bytes` bytes is answered.
    pub fn note(&mut self, bytes: u64, took: Duration, failed: bool) {
        self.count += 1;
        self.bytes += bytes;
        self.errors += u64::from(failed);
        let us = took.as_micros() as u64;
        self.latency_us += us;
        let bucket = (64 - us.leading_zeros()) as usize;
        self.latency[bucket.min(LATENCY_BUCKETS - 1)] += 1;
    }
}

/// What clients of one volume asked of this gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeStatistics {
    /// Reads.
    pub reads: Counters,
    /// Writes, zero writes and trims.
    pub writes: Counters,
    /// Trims begun.
    pub trims: u64,
    /// Bytes that they named.
    pub trimmed_bytes: u64,
}
