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
/// Units that are encrypted together, their tweaks before them: 256 blocks.
const GROUP: usize = 4;

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
        self.each_group(unit, from, to, |_, to, masks| {
            self.encrypting.encrypt_blocks(blocks(to));
            xor(masks, to);
        });
    }

    /// Decrypts whole units, the first of which is the volume's `unit`, into `to`. Units of zeros stay zeros.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of [`UNIT_SIZE`].
    pub fn decrypt(&self, unit: u64, from: &[u8], to: &mut [u8]) {
        self.each_group(unit, from, to, |from, to, masks| {
            self.decrypting.decrypt_blocks(blocks(to));
            xor(masks, to);
            for (from, to) in from.chunks_exact(UNIT_SIZE).zip(to.chunks_exact_mut(UNIT_SIZE)) {
                if is_zero(from) {
                    to.fill(0);
                }
            }
        });
    }

    /// Does the rest with each group of units, what it is made of, and its masks, which `to` has been combined with
    /// once. A group is one call of the block cipher: the widest instructions take 64 blocks at once, and what is
    /// less goes through one block after the other.
    fn each_group(&self, first: u64, from: &[u8], to: &mut [u8], rest: impl Fn(&[u8], &mut [u8], &[u128])) {
        assert_eq!(from.len(), to.len(), "as many bytes come out as go in");
        assert!(from.len().is_multiple_of(UNIT_SIZE), "units are not cut");
        let mut unit = u128::from(first);
        let whole = from.len() - from.len() % (GROUP * UNIT_SIZE);
        let ((from, last_from), (to, last_to)) = (from.split_at(whole), to.split_at_mut(whole));
        for (from, to) in from.chunks_exact(GROUP * UNIT_SIZE).zip(to.chunks_exact_mut(GROUP * UNIT_SIZE)) {
            self.group::<GROUP>(&mut unit, from, to, &rest);
        }
        for (from, to) in last_from.chunks_exact(UNIT_SIZE).zip(last_to.chunks_exact_mut(UNIT_SIZE)) {
            self.group::<1>(&mut unit, from, to, &rest);
        }
    }

    /// So many units, from `unit` on.
    fn group<const UNITS: usize>(
        &self,
        unit: &mut u128,
        from: &[u8],
        to: &mut [u8],
        rest: impl Fn(&[u8], &mut [u8], &[u128]),
    ) {
        let mut tweaks = [Block::default(); UNITS];
        for tweak in &mut tweaks {
            *tweak = unit.to_le_bytes().into();
            *unit += 1;
        }
        self.tweaking.encrypt_blocks(&mut tweaks);
        let mut masks = [[0; BLOCKS]; UNITS];
        let units = from.chunks_exact(UNIT_SIZE).zip(to.chunks_exact_mut(UNIT_SIZE));
        for ((tweak, masks), (from, to)) in tweaks.into_iter().zip(&mut masks).zip(units) {
            mask_into(u128::from_le_bytes(tweak.into()), from, masks, to);
        }
        rest(from, to, masks.as_flattened());
    }
}

/// Combines a unit's blocks with their tweaks, which are kept: each is the one before times α in GF(2^128) (IEEE 1619,
/// 5.2).
fn mask_into(first: u128, from: &[u8], masks: &mut [u128; BLOCKS], to: &mut [u8]) {
    let mut tweak = first;
    let (from, to) = (from.as_chunks::<BLOCK>().0, to.as_chunks_mut::<BLOCK>().0);
    for ((from, mask), to) in from.iter().zip(masks).zip(to) {
        *to = (u128::from_le_bytes(*from) ^ tweak).to_le_bytes();
        *mask = tweak;
        tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
    }
}

fn blocks(bytes: &mut [u8]) -> &mut [Block] {
    Block::slice_as_chunks_mut(bytes).0
}

fn xor(masks: &[u128], to: &mut [u8]) {
    for (to, mask) in to.as_chunks_mut::<BLOCK>().0.iter_mut().zip(masks) {
        *to = (u128::from_le_bytes(*to) ^ mask).to_le_bytes();
    }
}

/// Most units that hold data are told by their first bytes.
fn is_zero(unit: &[u8]) -> bool {
    let (words, _) = unit.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8])
}
