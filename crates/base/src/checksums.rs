//! Checksums of blocks that lie one after the other.

use crate::Checksum;
use std::sync::Arc;

/// The checksums of a run of blocks. One checksum, the common case, takes no allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums(Inner);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Inner {
    One(Checksum),
    Many(Arc<[Checksum]>),
}

impl Checksums {
    /// The checksums, in block order.
    #[must_use]
    pub fn as_slice(&self) -> &[Checksum] {
        match &self.0 {
            Inner::One(one) => std::slice::from_ref(one),
            Inner::Many(many) => many,
        }
    }
}

impl std::ops::Deref for Checksums {
    type Target = [Checksum];
    fn deref(&self) -> &[Checksum] {
        self.as_slice()
    }
}

impl From<Checksum> for Checksums {
    fn from(one: Checksum) -> Checksums {
        Checksums(Inner::One(one))
    }
}

impl From<&[Checksum]> for Checksums {
    fn from(many: &[Checksum]) -> Checksums {
        match many {
            [one] => Checksums(Inner::One(*one)),
            _ => Checksums(Inner::Many(many.into())),
        }
    }
}

impl FromIterator<Checksum> for Checksums {
    fn from_iter<I: IntoIterator<Item = Checksum>>(iter: I) -> Checksums {
        let mut iter = iter.into_iter();
        match (iter.next(), iter.next()) {
            (Some(one), None) => Checksums(Inner::One(one)),
            (first, second) => Checksums(Inner::Many(first.into_iter().chain(second).chain(iter).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_keep_their_order_however_many_there_are() {
        for count in [0, 1, 2, 3, 100] {
            let sums: Vec<Checksum> = (0..count).map(Checksum).collect();
            let collected: Checksums = sums.iter().copied().collect();
            assert_eq!(collected.as_slice(), sums);
            assert_eq!(collected, Checksums::from(&sums[..]));
        }
    }
}
