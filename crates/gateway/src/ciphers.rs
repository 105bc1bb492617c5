//! What a client's bytes become on their way to the copies, and on their way back (docs/decisions/0038).

use crate::cut::Part;
use crate::view::VolumeView;
use azekura_base::{BLOCK_SIZE, Body, CHUNK_SIZE, Checksums, KeyGeneration, PageBuf, checksum};
use azekura_cipher::{Keyring, UNIT_SIZE, VolumeKey, VolumeKeys};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// What is decrypted goes to its client in pieces of this size at most: when one was sent, its pages are used for the
/// next. Buffers of the size of a large request would be asked of the system anew each time.
const DECRYPTED_BYTES: usize = 256 << 10;

/// What a volume's bytes go through.
#[derive(Clone, Debug)]
pub(crate) enum Cipher {
    /// Nothing.
    Plain,
    /// The cipher, with these keys.
    Encrypted(Arc<VolumeKeys>),
}

impl Cipher {
    /// A volume's; `None`: its key is not here.
    pub(crate) fn of(volume: &VolumeView, keys: &Keyring) -> Option<Cipher> {
        let Some(id) = volume.key else { return Some(Cipher::Plain) };
        keys.get(&id)?.as_ref().ok().map(|keys| Cipher::Encrypted(Arc::clone(keys)))
    }

    /// Whether requests may begin, and end, here.
    pub(crate) fn allows(&self, offset: u64, len: u64) -> bool {
        match self {
            Cipher::Plain => true,
            Cipher::Encrypted(_) => (offset | len).is_multiple_of(UNIT_SIZE as u64),
        }
    }

    /// The generation of the key that is written with.
    pub(crate) fn writing(&self) -> KeyGeneration {
        match self {
            Cipher::Plain => KeyGeneration::FIRST,
            Cipher::Encrypted(keys) => keys.writing().0,
        }
    }

    /// The key of this generation.
    pub(crate) fn key(&self, generation: KeyGeneration) -> Option<&Arc<VolumeKey>> {
        match self {
            Cipher::Plain => None,
            Cipher::Encrypted(keys) => keys.of(generation),
        }
    }

    /// True when this generation's key is here.
    pub(crate) fn has(&self, generation: KeyGeneration) -> bool {
        matches!(self, Cipher::Plain) || self.key(generation).is_some()
    }

    /// True when this generation is of the same key in both.
    pub(crate) fn is_same(&self, other: &Cipher, generation: KeyGeneration) -> bool {
        match (self.key(generation), other.key(generation)) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// The keys with which something is decrypted that was under `generation` at some time between when `self` was
    /// there and `now`, which is; `None`: the key is not here, or the generation may be that of either of two keys,
    /// since numbers are used again.
    pub(crate) fn reads<'a>(&'a self, now: Option<&'a Cipher>, generation: KeyGeneration) -> Option<&'a Cipher> {
        let Cipher::Encrypted(_) = self else { return Some(self) };
        let (then, later) = (self.key(generation), now.and_then(|now| now.key(generation)));
        match (then, later) {
            (Some(then), Some(later)) => Arc::ptr_eq(then, later).then_some(self),
            (Some(_), None) => Some(self),
            (None, Some(_)) => now,
            (None, None) => None,
        }
    }

    /// What copies get of what a client has written to `part`, and the checksums of that, one for each block that it
    /// touches.
    pub(crate) fn seal(&self, part: Part, bytes: Bytes) -> (Bytes, Checksums) {
        let (generation, key) = match self {
            Cipher::Plain => {
                let checksums = pieces(part).map(|piece| checksum(&bytes[piece])).collect();
                return (bytes, checksums);
            }
            Cipher::Encrypted(keys) => keys.writing(),
        };
        let mut held = PageBuf::new(bytes.len());
        // Block by block, so that a block is still in the processor's cache when its checksum is made.
        let sums = pieces(part).map(|piece| {
            let to = &mut held[piece.clone()];
            key.encrypt(unit(part, piece.start), &bytes[piece], to);
            checksum(to)
        });
        let sums: Checksums = sums.collect();
        (held.freeze(), sums.under(generation))
    }

    /// What copies have of what a client expects in `part`.
    pub(crate) fn encrypt(&self, part: Part, bytes: Bytes) -> Bytes {
        match self {
            Cipher::Plain => bytes,
            Cipher::Encrypted(keys) => {
                let mut held = PageBuf::new(bytes.len());
                keys.writing().1.encrypt(unit(part, 0), &bytes, &mut held);
                held.freeze()
            }
        }
    }

    /// What copies get of zeros, which are held as they are, also beside what is encrypted.
    pub(crate) fn seal_zeros(&self, part: Part) -> Body {
        let bytes = Bytes::from(vec![0; part.len as usize]);
        let (bytes, checksums) = Cipher::Plain.seal(part, bytes);
        Body::Data { bytes, checksums: checksums.under(self.writing()) }
    }

    /// Puts out what a client gets of what copies have under `key`, from the byte `at` of `part` on, piece by piece.
    /// `None`: the key is not here.
    pub(crate) fn decrypt(
        &self,
        part: Part,
        at: usize,
        bytes: Bytes,
        key: KeyGeneration,
        mut put: impl FnMut(Bytes),
    ) -> Option<()> {
        let keys = match self {
            Cipher::Plain => {
                put(bytes);
                return Some(());
            }
            Cipher::Encrypted(keys) => keys,
        };
        let key = keys.of(key)?;
        for (number, piece) in bytes.chunks(DECRYPTED_BYTES).enumerate() {
            let mut seen = PageBuf::new(piece.len());
            key.decrypt(unit(part, at + number * DECRYPTED_BYTES), piece, &mut seen);
            put(seen.freeze());
        }
        Some(())
    }

    /// What copies have of `part` under the key `from` of `before`, as they would have it under `to`; `None`: one of
    /// both keys is not here.
    pub(crate) fn move_to(
        &self,
        part: Part,
        bytes: &Bytes,
        (before, from): (&Cipher, KeyGeneration),
        to: KeyGeneration,
    ) -> Option<(Bytes, Checksums)> {
        let (from, to_key) = (before.key(from)?, self.key(to)?);
        let mut held = PageBuf::new(bytes.len());
        azekura_cipher::move_units(unit(part, 0), (from, bytes), (to_key, &mut held));
        let sums: Checksums = pieces(part).map(|piece| checksum(&held[piece])).collect();
        Some((held.freeze(), sums.under(to)))
    }
}

/// The bytes of `part`, cut at the borders of blocks, counted from its first.
fn pieces(part: Part) -> impl Iterator<Item = Range<usize>> {
    let (len, head) = (part.len as usize, BLOCK_SIZE - part.offset as usize % BLOCK_SIZE);
    let mut end = 0;
    std::iter::from_fn(move || {
        let start = end;
        end = if start == 0 { head } else { start + BLOCK_SIZE }.min(len);
        (start < len).then_some(start..end)
    })
}

/// The number in the volume of the unit that has the byte `at` of `part`.
fn unit(part: Part, at: usize) -> u64 {
    let byte = u64::from(part.chunk.0) * CHUNK_SIZE as u64 + u64::from(part.offset) + at as u64;
    byte / UNIT_SIZE as u64
}

impl VolumeView {
    /// Why its clients can't be served: the key of an encrypted volume is not among `keys`.
    #[must_use]
    pub fn why_sealed(&self, keys: &Keyring) -> Option<String> {
        let why = match keys.get(&self.key?) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => why.as_str(),
            None => "it is not in the configuration",
        };
        Some(format!("'{}' is encrypted, and this node does not have its key: {why}", self.name))
    }
}
