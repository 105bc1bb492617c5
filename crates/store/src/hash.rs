//! A hasher that gives the same order in every run: the store must be deterministic. Keys are the store's own
//! numbers, so nobody can choose them to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map whose behaviour repeats. It is never iterated in a way in which the order would matter.
pub(crate) type FixedMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiplies and folds each word.
#[derive(Default, Clone, Copy)]
pub(crate) struct FixedHasher(u64);

impl FixedHasher {
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xf39c_c060_5ced_c835_u128;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
}
