//! Ranges of bytes, as they come from the cluster, made into the lists of an answer.

use std::collections::VecDeque;

use azekura_base::BLOCK_SIZE;
use tonic::Status;

use crate::Outcome;
use crate::proto::BlockMetadata;
use crate::sizes::signed;

/// Ranges in an answer, where the question does not ask for fewer. A message of gRPC may have 4 MiB, a range takes some
/// 20 bytes.
const RANGES_MAX: usize = 8192;

/// A range of bytes: its first, and the one behind its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    /// A range as the cluster tells it. One that does not end is as long as there are numbers, and is refused later.
    pub(super) fn new(offset_bytes: u64, length_bytes: u64) -> Span {
        Span { start: offset_bytes, end: offset_bytes.saturating_add(length_bytes) }
    }
}

/// Takes ranges page by page, and gives lists of them: in order, without overlap, neighbours put together, nothing of
/// what lies before the offset that was asked from. Holds no more than a page and one list.
#[derive(Debug)]
pub(super) struct Lists {
    starting_offset: u64,
    /// The first byte of the block that it lies in.
    from: u64,
    size_bytes: u64,
    ranges_max: usize,
    /// All behind the last one that was given away.
    waiting: VecDeque<Span>,
    /// The end of the last range that was added.
    until: u64,
}

impl Lists {
    /// Lists of a volume of `size_bytes`, of at most `results_max` ranges each (0: as the driver thinks best), from the
    /// block on that `starting_offset` lies in.
    pub(super) fn new(starting_offset: u64, size_bytes: u64, results_max: usize) -> Lists {
        let from = starting_offset - starting_offset % BLOCK_SIZE as u64;
        let ranges_max = if results_max == 0 { RANGES_MAX } else { results_max.min(RANGES_MAX) };
        Lists { starting_offset, from, size_bytes, ranges_max, waiting: VecDeque::new(), until: 0 }
    }

    /// Adds what the cluster has said next.
    ///
    /// # Errors
    /// INTERNAL when it makes no sense: a backup that believed that would be a wrong one.
    pub(super) fn add(&mut self, spans: impl IntoIterator<Item = Span>) -> Outcome<()> {
        for span in spans {
            if span.start < self.until || span.end <= span.start || span.end > self.size_bytes {
                return Err(Status::internal(format!(
                    "the cluster names bytes {} to {} of {}, behind {}: ask again, at another node",
                    span.start, span.end, self.size_bytes, self.until
                )));
            }
            self.until = span.end;
            let span = Span { start: span.start.max(self.from), ..span };
            match self.waiting.back_mut() {
                _ if span.end <= self.starting_offset => {}
                Some(last) if last.end == span.start => last.end = span.end,
                _ => self.waiting.push_back(span),
            }
        }
        Ok(())
    }

    /// The next list. The last range stays behind, since more may belong to it, unless `all` have come.
    pub(super) fn take(&mut self, all: bool) -> Option<Vec<BlockMetadata>> {
        let ready = if all { self.waiting.len() } else { self.waiting.len().saturating_sub(1) };
        if ready == 0 || (!all && ready < self.ranges_max) {
            return None;
        }
        let spans = self.waiting.drain(..ready.min(self.ranges_max));
        let block =
            |span: Span| BlockMetadata { byte_offset: signed(span.start), size_bytes: signed(span.end - span.start) };
        Some(spans.map(block).collect())
    }
}

#[cfg(test)]
mod tests {
    use azekura_base::CHUNK_SIZE;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    const BLOCK: u64 = BLOCK_SIZE as u64;

    /// All lists that come of these pages.
    fn lists(pages: &[Vec<Span>], start: u64, size: u64, most: usize) -> Vec<Vec<BlockMetadata>> {
        let mut lists = Lists::new(start, size, most);
        let mut made = Vec::new();
        for (number, page) in pages.iter().enumerate() {
            lists.add(page.iter().copied()).unwrap();
            while let Some(list) = lists.take(number + 1 == pages.len()) {
                made.push(list);
            }
        }
        assert!(lists.waiting.is_empty());
        made
    }

    fn flat(lists: Vec<Vec<BlockMetadata>>) -> Vec<(i64, i64)> {
        lists.into_iter().flatten().map(|block| (block.byte_offset, block.size_bytes)).collect()
    }

    #[test]
    fn neighbours_become_one_across_pages() {
        let pages = [vec![Span::new(0, 4096), Span::new(4096, 4096)], vec![Span::new(8192, 4096)], vec![]];
        assert_eq!(flat(lists(&pages, 0, 1 << 20, 0)), [(0, 12288)]);
        assert_eq!(flat(lists(&pages, 4096, 1 << 20, 1)), [(4096, 8192)]);
        // From the middle of a block: that block, whole.
        assert_eq!(flat(lists(&pages, 4097, 1 << 20, 1)), [(4096, 8192)]);
        assert_eq!(flat(lists(&pages, 12288, 1 << 20, 1)), []);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            vec![Span::new(0, 0)],
            vec![Span::new(4096, 4096), Span::new(0, 4096)],
            vec![Span::new(0, 8192), Span::new(4096, 8192)],
            vec![Span::new((1 << 20) - 4096, 8192)],
            vec![Span::new(u64::MAX, 1)],
            vec![Span::new(4096, u64::MAX)],
        ] {
            let refused = Lists::new(0, 1 << 20, 0).add(bad.clone()).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Internal, "{bad:?}");
        }
    }

    proptest! {
        /// Whatever blocks differ, however they come in runs and pages: the union of the ranges is what differs, in
        /// order, without overlap, no list is too long, and from any offset on one gets the rest.
        #[test]
        fn ranges_are_what_differs(
            blocks in prop::collection::btree_set(0..64_u64, 0..64),
            breaks in prop::collection::btree_set(0..64_u64, 0..20),
            pages in prop::collection::btree_set(0..64_u64, 0..6),
            tail in 1..=BLOCK,
            start in 0..=64 * BLOCK,
            most in 0..5_usize,
        ) {
            let size = 63 * BLOCK + tail;
            let start = start.min(size);
            let mut told: Vec<Vec<Span>> = vec![Vec::new()];
            for block in &blocks {
                let span = Span { start: block * BLOCK, end: ((block + 1) * BLOCK).min(size) };
                if pages.contains(block) {
                    told.push(Vec::new());
                }
                let page = told.last_mut().unwrap();
                match page.last_mut() {
                    Some(last) if last.end == span.start && !breaks.contains(block) => last.end = span.end,
                    _ => page.push(span),
                }
            }
            let made = lists(&told, start, size, most);
            prop_assert!(made.iter().all(|list| !list.is_empty() && (most == 0 || list.len() <= most)));
            let mut covered = BTreeSet::new();
            let mut until = None;
            for (offset, length) in flat(made) {
                prop_assert!(length > 0 && until.is_none_or(|until| offset > until), "neighbours are one");
                prop_assert!(offset + length > start as i64);
                until = Some(offset + length);
                prop_assert!(offset % BLOCK as i64 == 0 && offset + length <= size as i64);
                let (offset, end) = (offset as u64, (offset + length) as u64);
                covered.extend(offset / BLOCK..end.div_ceil(BLOCK));
            }
            let end = |block: u64| ((block + 1) * BLOCK).min(size);
            let rest: BTreeSet<u64> = blocks.into_iter().filter(|block| end(*block) > start).collect();
            prop_assert_eq!(covered, rest);
        }

        /// Lists never hold more than what came and one list.
        #[test]
        fn little_waits(count in 1..2000_u64, most in 1..50_usize) {
            let mut lists = Lists::new(0, 4 << 40, most);
            for page in 0..3 {
                let first = page * count * CHUNK_SIZE as u64;
                lists.add((0..count).map(|number| Span::new(first + number * CHUNK_SIZE as u64, BLOCK))).unwrap();
                while lists.take(false).is_some() {}
                prop_assert!(lists.waiting.len() <= most);
            }
        }
    }
}
