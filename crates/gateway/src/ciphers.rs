//! What a client's bytes become on their way to the copies, and on their way back (docs/decisions/0038).

use crate::cut::Part;
use crate::view::VolumeView;
use azekura_base::{BLOCK_SIZE, Body, CHUNK_SIZE, Checksums, KeyGeneration, PageBuf, checksum};
use azekura_cipher::{Keyring, UNIT_SIZE, VolumeKeys};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

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

    /// True when what is encrypted under this generation can be read.
    pub(crate) fn has(&self, generation: KeyGeneration) -> bool {
        match self {
            Cipher::Plain => true,
            Cipher::Encrypted(keys) => keys.of(generation).is_some(),
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

    /// What a client gets of what copies have under `key`, from the byte `at` of `part` on; `None`: the key is not here.
    pub(crate) fn decrypt(&self, part: Part, at: usize, bytes: Bytes, key: KeyGeneration) -> Option<Bytes> {
        match self {
            Cipher::Plain => Some(bytes),
            Cipher::Encrypted(keys) => {
                let mut seen = PageBuf::new(bytes.len());
                keys.of(key)?.decrypt(unit(part, at), &bytes, &mut seen);
                Some(seen.freeze())
            }
        }
    }

    /// What copies have of `part` under the key `from`, as they would have it under `to`; `None`: one of both
    /// keys is not here.
    pub(crate) fn move_to(
        &self,
        part: Part,
        bytes: &Bytes,
        from: KeyGeneration,
        to: KeyGeneration,
    ) -> Option<(Bytes, Checksums)> {
        let Cipher::Encrypted(keys) = self else { return None };
        let mut held = PageBuf::new(bytes.len());
        keys.move_to(unit(part, 0), (from, bytes), (to, &mut held))?;
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
