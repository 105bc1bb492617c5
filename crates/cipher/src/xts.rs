//! AES-256-XTS over many blocks at a time.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256Dec, Aes256Enc, Block};
use std::fmt;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Bytes that are encrypted as one: the smallest part of a block that can be written without the rest.
pub const UNIT_SIZE: usize = 512;
/// Bytes of an AES block.
const BLOCK: usize = 16;
/// AES blocks of a unit.
const BLOCKS: usize = UNIT_SIZE / BLOCK;
/// Units whose tweaks are encrypted together.
const GROUP: usize = 8;

/// Both halves of a key are the same: XTS is not safe with it (NIST SP 800-38E, FIPS 140 IG C.I).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both halves of the key are the same")]
pub struct SameHalves;

/// The key of a volume, ready for use. The round keys are overwritten when it is dropped; nothing prints them.
pub struct VolumeKey {
    encrypting: Aes256Enc,
    decrypting: Aes256Dec,
    tweaking: Aes256Enc,
}

const _: () = {
    const fn is_overwritten<T: ZeroizeOnDrop>() {}
    is_overwritten::<Aes256Enc>();
    is_overwritten::<Aes256Dec>();
};

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeKey(…)")
    }
}

impl VolumeKey {
    /// Bytes of a key: the data's AES-256 key, then the tweaks'.
    pub const BYTES: usize = 64;

    /// The key with these bytes, which the caller overwrites.
    ///
    /// # Errors
    /// When both halves are the same.
    pub fn new(bytes: &[u8; VolumeKey::BYTES]) -> Result<VolumeKey, SameHalves> {
        let (data, tweak) = bytes.split_at(VolumeKey::BYTES / 2);
        if data == tweak {
            return Err(SameHalves);
        }
        let half = |half: &[u8]| {
            let mut key = Zeroizing::new([0; VolumeKey::BYTES / 2]);
            key.copy_from_slice(half);
            key
        };
        let (data, tweak) = (half(data), half(tweak));
        Ok(VolumeKey {
            encrypting: Aes256Enc::new((&*data).into()),
            decrypting: Aes256Dec::new((&*data).into()),
            tweaking: Aes256Enc::new((&*tweak).into()),
        })
    }

    /// Encrypts whole units, the first of which is the volume's `unit`, into `to`.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of [`UNIT_SIZE`].
    pub fn encrypt(&self, unit: u64, from: &[u8], to: &mut [u8]) {
        self.each_unit(unit, from, to, |from, to, tweak| {
            let tweaks = tweaks(tweak);
            xor_into(from, &tweaks, to);
            self.encrypting.encrypt_blocks(blocks(to));
            xor(&tweaks, to);
        });
    }

    /// Decrypts whole units, the first of which is the volume's `unit`, into `to`. Units of zeros stay zeros.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of [`UNIT_SIZE`].
    pub fn decrypt(&self, unit: u64, from: &[u8], to: &mut [u8]) {
        self.each_unit(unit, from, to, |from, to, tweak| {
            if is_zero(from) {
                to.fill(0);
                return;
            }
            let tweaks = tweaks(tweak);
            xor_into(from, &tweaks, to);
            self.decrypting.decrypt_blocks(blocks(to));
            xor(&tweaks, to);
        });
    }

    /// Does something with each unit, its place in `to`, and its encrypted tweak.
    fn each_unit(&self, first: u64, from: &[u8], to: &mut [u8], each: impl Fn(&[u8], &mut [u8], u128)) {
        assert_eq!(from.len(), to.len(), "as many bytes come out as go in");
        assert!(from.len().is_multiple_of(UNIT_SIZE), "units are not cut");
        let mut unit = u128::from(first);
        for (from, to) in from.chunks(GROUP * UNIT_SIZE).zip(to.chunks_mut(GROUP * UNIT_SIZE)) {
            // One after the other each would wait for the processor's whole way through the rounds.
            let mut tweaks = [Block::default(); GROUP];
            for tweak in &mut tweaks {
                *tweak = unit.to_le_bytes().into();
                unit += 1;
            }
            self.tweaking.encrypt_blocks(&mut tweaks);
            let units = from.chunks_exact(UNIT_SIZE).zip(to.chunks_exact_mut(UNIT_SIZE));
            for ((from, to), tweak) in units.zip(tweaks) {
                each(from, to, u128::from_le_bytes(tweak.into()));
            }
        }
    }
}

/// The tweaks of a unit's blocks: each is the one before times α in GF(2^128) (IEEE 1619, 5.2).
fn tweaks(first: u128) -> [u128; BLOCKS] {
    let mut tweak = first;
    std::array::from_fn(|_| {
        let this = tweak;
        tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
        this
    })
}

fn blocks(bytes: &mut [u8]) -> &mut [Block] {
    Block::slice_as_chunks_mut(bytes).0
}

fn xor_into(from: &[u8], tweaks: &[u128; BLOCKS], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<BLOCK>().0, to.as_chunks_mut::<BLOCK>().0);
    for ((from, tweak), to) in from.iter().zip(tweaks).zip(to) {
        *to = (u128::from_le_bytes(*from) ^ tweak).to_le_bytes();
    }
}

fn xor(tweaks: &[u128; BLOCKS], to: &mut [u8]) {
    for (to, tweak) in to.as_chunks_mut::<BLOCK>().0.iter_mut().zip(tweaks) {
        *to = (u128::from_le_bytes(*to) ^ tweak).to_le_bytes();
    }
}

/// Most units that hold data are told by their first bytes.
fn is_zero(unit: &[u8]) -> bool {
    let (words, _) = unit.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8])
}
