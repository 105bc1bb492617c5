//! Checksums of blocks that lie one after the other, and under which key these blocks are encrypted.

use crate::{Checksum, KeyGeneration};
use std::sync::Arc;

/// What a block is known by that is not read: its checksum, and the generation of the key that it is encrypted under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSum {
    /// The checksum of the block, as it is held.
    pub checksum: Checksum,
    /// The generation of the key; [`KeyGeneration::FIRST`] also of a block that is not encrypted.
    pub key: KeyGeneration,
}

impl From<Checksum> for BlockSum {
    fn from(checksum: Checksum) -> BlockSum {
        BlockSum { checksum, key: KeyGeneration::FIRST }
    }
}

impl From<BlockSum> for Checksums {
    fn from(sum: BlockSum) -> Checksums {
        Checksums::from(sum.checksum).under(sum.key)
    }
}

/// The checksums of a run of blocks, all encrypted under the same generation of their volume's key. One checksum, the
/// common case, takes no allocation.
///
/// The generation is here because it goes wherever a block's checksum goes: who copies the one can't forget the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums {
    sums: Inner,
    key: KeyGeneration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Inner {
    One(Checksum),
    Many(Arc<[Checksum]>),
}

impl Checksums {
    fn new(sums: Inner) -> Checksums {
        Checksums { sums, key: KeyGeneration::FIRST }
    }

    /// The same checksums, of blocks that are encrypted under this generation.
    #[must_use]
    pub fn under(self, key: KeyGeneration) -> Checksums {
        Checksums { key, ..self }
    }

    /// The generation of the key under which the blocks are encrypted; [`KeyGeneration::FIRST`] also of those that are
    /// not.
    #[must_use]
    pub fn key(&self) -> KeyGeneration {
        self.key
    }

    /// The blocks, one by one.
    pub fn each(&self) -> impl Iterator<Item = BlockSum> + '_ {
        self.iter().map(|checksum| BlockSum { checksum: *checksum, key: self.key })
    }

    /// Cuts the checksums in two: the first `count` stay, the others are given.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn split_off(&mut self, count: usize) -> Checksums {
        let (head, rest) = self.as_slice().split_at(count);
        let (head, rest) = (Checksums::from(head).under(self.key), Checksums::from(rest).under(self.key));
        *self = head;
        rest
    }

    /// The checksums, in block order.
    #[must_use]
    pub fn as_slice(&self) -> &[Checksum] {
        match &self.sums {
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
        Checksums::new(Inner::One(one))
    }
}

impl From<&[Checksum]> for Checksums {
    fn from(many: &[Checksum]) -> Checksums {
        match many {
            [one] => Checksums::new(Inner::One(*one)),
            _ => Checksums::new(Inner::Many(many.into())),
        }
    }
}

impl FromIterator<Checksum> for Checksums {
    fn from_iter<I: IntoIterator<Item = Checksum>>(iter: I) -> Checksums {
        let mut iter = iter.into_iter();
        match (iter.next(), iter.next()) {
            (Some(one), None) => Checksums::new(Inner::One(one)),
            (first, second) => Checksums::new(Inner::Many(first.into_iter().chain(second).chain(iter).collect())),
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

    #[test]
    fn both_parts_of_what_is_cut_have_the_key() {
        let third = KeyGeneration::new(3).unwrap();
        let mut head: Checksums = (0..5).map(Checksum).collect::<Checksums>().under(third);
        let rest = head.split_off(2);
        assert_eq!((head.as_slice(), head.key()), (&[Checksum(0), Checksum(1)][..], third));
        assert_eq!((rest.len(), rest.key()), (3, third));
        assert_ne!(head, head.clone().under(KeyGeneration::FIRST));
    }
}
