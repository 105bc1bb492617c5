//! Ranges of keys.

use std::ops::Bound;

/// The two ends of a range.
pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of keys in etcd's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl KeyRange {
    /// `end` empty: the one key `start`; `[0]`: from `start` to the last key; else up to `end`, exclusive.
    #[must_use]
    pub fn new(start: Vec<u8>, end: Vec<u8>) -> KeyRange {
        KeyRange { start, end }
    }

    /// Whether the range holds the key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end.as_slice() {
            [] => key == self.start,
            [0] => key >= self.start.as_slice(),
            end => key >= self.start.as_slice() && key < end,
        }
    }

    /// The range as `BTreeMap::range` takes it; `None` when it holds no key.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds<'_>> {
        let start = self.start.as_slice();
        match self.end.as_slice() {
            [] => Some((Bound::Included(start), Bound::Included(start))),
            [0] => Some((Bound::Included(start), Bound::Unbounded)),
            // `BTreeMap::range` refuses a range that ends before it starts.
            end if end <= start => None,
            end => Some((Bound::Included(start), Bound::Excluded(end))),
        }
    }
}
