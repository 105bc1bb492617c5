//! The generations of a volume's key (docs/decisions/0038-encrypted-volumes.md).

use crate::{UNIT_SIZE, VolumeKey};
use azekura_base::KeyGeneration;
use std::sync::Arc;

/// The keys that a volume's blocks are encrypted under: one, and while it takes the place of former ones these too.
#[derive(Clone, Debug)]
pub struct VolumeKeys {
    /// The oldest first.
    keys: Vec<(KeyGeneration, Arc<VolumeKey>)>,
    /// The place of the one that is written with.
    writing: usize,
}

impl VolumeKeys {
    /// A volume's only key, the first that it has.
    #[must_use]
    pub fn first(key: Arc<VolumeKey>) -> VolumeKeys {
        VolumeKeys { keys: vec![(KeyGeneration::FIRST, key)], writing: 0 }
    }

    /// These keys, the oldest first, of which `writing` is written with; `None`: it is not among them, or one is there
    /// twice.
    #[must_use]
    pub fn new(keys: Vec<(KeyGeneration, Arc<VolumeKey>)>, writing: KeyGeneration) -> Option<VolumeKeys> {
        let place = |of: KeyGeneration| keys.iter().position(|(generation, _)| *generation == of);
        let is_once = keys.iter().enumerate().all(|(at, (generation, _))| place(*generation) == Some(at));
        let writing = place(writing).filter(|_| is_once)?;
        Some(VolumeKeys { keys, writing })
    }

    /// The one that is written with, and its generation.
    #[must_use]
    pub fn writing(&self) -> (KeyGeneration, &VolumeKey) {
        let (generation, key) = &self.keys[self.writing];
        (*generation, key)
    }

    /// The key of a generation, if it is here.
    #[must_use]
    pub fn of(&self, generation: KeyGeneration) -> Option<&Arc<VolumeKey>> {
        self.keys.iter().find(|(known, _)| *known == generation).map(|(_, key)| key)
    }

    /// The generations that are here, the oldest first.
    pub fn generations(&self) -> impl Iterator<Item = KeyGeneration> + '_ {
        self.keys.iter().map(|(generation, _)| *generation)
    }

    /// True when both are the same keys, in the same order, and the same one is written with.
    #[must_use]
    pub fn is_same(&self, other: &VolumeKeys) -> bool {
        let same = |((one, key), (two, other)): (&(_, Arc<_>), &(_, Arc<_>))| one == two && Arc::ptr_eq(key, other);
        self.writing == other.writing
            && self.keys.len() == other.keys.len()
            && self.keys.iter().zip(&other.keys).all(same)
    }

    /// The later one of two generations, of which one that is not here counts as the later.
    #[must_use]
    pub fn later(&self, one: KeyGeneration, two: KeyGeneration) -> KeyGeneration {
        let place = |of| self.generations().position(|known| known == of).unwrap_or(usize::MAX);
        if place(one) > place(two) { one } else { two }
    }
}

/// Whole units that are encrypted with `from`, the first of which is the volume's `unit`, encrypted with `to` instead.
/// Units of zeros stay zeros.
///
/// # Panics
/// When there are not whole units, or not as many bytes in `out`.
pub fn move_units(unit: u64, (from, held): (&VolumeKey, &[u8]), (to, out): (&VolumeKey, &mut [u8])) {
    assert_eq!(held.len(), out.len(), "as much comes out as goes in");
    let mut plain = zeroize::Zeroizing::new([0; UNIT_SIZE]);
    let units = held.chunks(UNIT_SIZE).zip(out.chunks_mut(UNIT_SIZE));
    for (unit, (held, out)) in (unit..).zip(units) {
        if azekura_base::is_zero(held) {
            out.fill(0);
            continue;
        }
        from.decrypt(unit, held, &mut *plain);
        to.encrypt(unit, &*plain, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> Arc<VolumeKey> {
        Arc::new(VolumeKey::new(&std::array::from_fn(|at| at as u8 ^ first)).unwrap())
    }

    fn generation(number: u8) -> KeyGeneration {
        KeyGeneration::new(number).unwrap()
    }

    #[test]
    fn the_order_is_that_of_the_list_and_not_of_the_numbers() {
        let keys = vec![(generation(14), key(1)), (generation(15), key(2)), (generation(0), key(3))];
        let keys = VolumeKeys::new(keys, generation(15)).unwrap();
        assert_eq!(keys.writing().0, generation(15));
        assert_eq!(keys.later(generation(0), generation(15)), generation(0));
        assert_eq!(keys.later(generation(14), generation(15)), generation(15));
        assert_eq!(keys.later(generation(7), generation(0)), generation(7), "a later one that is not here yet");
        assert!(keys.of(generation(14)).is_some() && keys.of(generation(7)).is_none());
    }

    #[test]
    fn a_list_without_the_key_that_writes_or_with_one_twice_is_none() {
        assert!(VolumeKeys::new(vec![(generation(1), key(1))], generation(2)).is_none());
        assert!(VolumeKeys::new(vec![(generation(1), key(1)), (generation(1), key(2))], generation(1)).is_none());
    }

    #[test]
    fn what_is_moved_to_another_key_is_the_same_text_there() {
        let plain: Vec<u8> = (0..4 * UNIT_SIZE).map(|at| (at / 7) as u8).collect();
        let (mut held, mut wanted) = (vec![0; plain.len()], vec![0; plain.len()]);
        key(1).encrypt(9, &plain, &mut held);
        key(2).encrypt(9, &plain, &mut wanted);
        // One unit was never written.
        held[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
        wanted[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
        let mut moved = vec![1; held.len()];
        move_units(9, (&key(1), &held), (&key(2), &mut moved));
        assert_eq!(moved, wanted);
    }
}
