//! Families of samples: their heads, and samples with labels.

use std::fmt::Result;

use azekura_api::LATENCY_BUCKETS;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

/// The first bucket of ours that has a line: what is faster than 16 µs counts together.
const FIRST_BUCKET: usize = 4;

/// How long requests took.
pub(super) struct Times<'a> {
    pub(super) count: u64,
    pub(super) sum_us: u64,
    /// See [`LATENCY_BUCKETS`].
    pub(super) buckets: &'a [u64],
}

/// Where families are written to.
pub(super) struct Families<'a>(pub(super) DescriptorEncoder<'a>);

impl Families<'_> {
    pub(super) fn gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        samples.into_iter().try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    /// A gauge of the node itself.
    pub(super) fn one<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> Result {
        self.gauge(name, help, [(NONE, value)])
    }

    /// A gauge of the node itself that is not always known.
    pub(super) fn maybe<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: Option<V>) -> Result {
        self.gauge(name, help, value.map(|value| (NONE, value)))
    }

    /// `_total` is put behind the name.
    pub(super) fn counter<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) -> Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        let mut write =
            |labels: L, value: V| family.encode_family(&labels)?.encode_counter::<NoLabelSet, V, u64>(&value, None);
        samples.into_iter().try_for_each(|(labels, value)| write(labels, value))
    }

    pub(super) fn histogram<'t, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, Times<'t>)>,
    ) -> Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, Times { count, sum_us, buckets }) in samples {
            let sum = sum_us as f64 / 1e6;
            let buckets = bounded(buckets);
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// No labels.
pub(super) const NONE: [(&str, &str); 0] = [];

/// Buckets with their upper bounds in seconds: powers of two from 16 µs to 16.8 s. The last of ours has no bound, and
/// is in the count alone.
fn bounded(buckets: &[u64]) -> Vec<(f64, u64)> {
    let count = |index: usize| buckets.get(index).copied().unwrap_or(0);
    let bound = |index: usize| 2_f64.powi(index as i32) / 1e6;
    let first = (bound(FIRST_BUCKET), (0..=FIRST_BUCKET).map(count).sum());
    let others = (FIRST_BUCKET + 1..LATENCY_BUCKETS - 1).map(|index| (bound(index), count(index)));
    std::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_bounds_in_seconds_and_the_last_has_none() {
        let all: Vec<u64> = (1..=LATENCY_BUCKETS as u64).collect();
        let buckets = bounded(&all);
        assert_eq!(buckets[0], (0.000_016, 1 + 2 + 3 + 4 + 5));
        assert_eq!(buckets[1], (0.000_032, 6));
        assert_eq!(buckets.last(), Some(&(16.777_216, 25)));
        assert_eq!(bounded(&[7]).iter().map(|(_, count)| count).sum::<u64>(), 7);
    }
}
