//! What a client's bytes become on their way to the copies, and on their way back (docs/decisions/0038).

use crate::cut::Part;
use crate::view::VolumeView;
use azekura_base::{BLOCK_SIZE, CHUNK_SIZE, Checksums, PageBuf, checksum};
use azekura_cipher::{Keyring, UNIT_SIZE, VolumeKey};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// What a volume's bytes go through.
#[derive(Clone, Debug)]
pub(crate) enum Cipher {
    /// Nothing.
    Plain,
    /// The cipher, with this key.
    Encrypted(Arc<VolumeKey>),
}

impl Cipher {
    /// A volume's; `None`: its key is not here.
    pub(crate) fn of(volume: &VolumeView, keys: &Keyring) -> Option<Cipher> {
        let Some(id) = volume.key else { return Some(Cipher::Plain) };
        keys.get(&id)?.as_ref().ok().map(|key| Cipher::Encrypted(Arc::clone(key)))
    }

    /// Whether requests may begin, and end, here.
    pub(crate) fn allows(&self, offset: u64, len: u64) -> bool {
        match self {
            Cipher::Plain => true,
            Cipher::Encrypted(_) => (offset | len).is_multiple_of(UNIT_SIZE as u64),
        }
    }

    /// What copies get of what a client has written to `part`, and the checksums of that, one for each block that it
    /// touches.
    pub(crate) fn seal(&self, part: Part, bytes: Bytes) -> (Bytes, Checksums) {
        let key = match self {
            Cipher::Plain => {
                let checksums = pieces(part).map(|piece| checksum(&bytes[piece])).collect();
                return (bytes, checksums);
            }
            Cipher::Encrypted(key) => key,
        };
        let mut held = PageBuf::new(bytes.len());
        // Block by block, so that a block is still in the processor's cache when its checksum is made.
        let sums = pieces(part).map(|piece| {
            let to = &mut held[piece.clone()];
            key.encrypt(unit(part, piece.start), &bytes[piece], to);
            checksum(to)
        });
        let sums: Checksums = sums.collect();
        (held.freeze(), sums)
    }

    /// What copies have of what a client expects in `part`.
    pub(crate) fn encrypt(&self, part: Part, bytes: Bytes) -> Bytes {
        match self {
            Cipher::Plain => bytes,
            Cipher::Encrypted(key) => {
                let mut held = PageBuf::new(bytes.len());
                key.encrypt(unit(part, 0), &bytes, &mut held);
                held.freeze()
            }
        }
    }

    /// What a client gets of what copies have, from the byte `at` of `part` on.
    pub(crate) fn decrypt(&self, part: Part, at: usize, bytes: Bytes) -> Bytes {
        match self {
            Cipher::Plain => bytes,
            Cipher::Encrypted(key) => {
                let mut seen = PageBuf::new(bytes.len());
                key.decrypt(unit(part, at), &bytes, &mut seen);
                seen.freeze()
            }
        }
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
