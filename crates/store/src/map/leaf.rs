//! A leaf of the map: where the 1,024 blocks of one chunk of one layer are.

use crate::map::entries::Entries;
use azekura_base::{
    BlockRange, CHUNK_BLOCKS, Checksum, ChunkIndex, KeyGeneration, LayerId, PgId, Sequence, UNKNOWN_CHECKSUM, checksum,
};
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::sync::Arc;

/// Names a leaf. The group of a chunk never changes, so layer and chunk alone are already unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafKey {
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// The placement group that the chunk belongs to.
    pub pg: PgId,
}

impl LeafKey {
    /// The leaf that knows where a group's blocks are.
    #[must_use]
    pub fn of(pg: PgId, range: &BlockRange) -> LeafKey {
        LeafKey { layer: range.layer, chunk: range.chunk, pg }
    }

    /// The place that follows the leaf in the order of layers and chunks.
    pub(crate) fn following(&self) -> Option<(LayerId, ChunkIndex)> {
        match self.chunk.0.checked_add(1) {
            Some(next) => Some((self.layer, ChunkIndex(next))),
            None => self.layer.0.checked_add(1).map(|next| (LayerId(next), ChunkIndex(0))),
        }
    }
}

/// Where one block is. All zero: nowhere, it reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    /// Block address on the device; 0 means that the block takes no space.
    pub address: u32,
    /// CRC-32C of the block's contents; of a block that is lost, of what it held.
    pub checksum: u32,
    /// Bytes stored at the address; 4096 for a block that is not compressed.
    pub length: u16,
    /// [`Entry::INHERITED`], and [`Entry::LOST`] or [`Entry::UNKNOWN`]. In the upper four bits the generation of the
    /// key that the block is encrypted under.
    pub flags: u16,
}

impl Entry {
    /// The block belongs to an ancestor's leaf, which accounts for its space.
    pub const INHERITED: u16 = 1;
    /// No copy could give the block. At its address are zeros.
    pub const LOST: u16 = 2;
    /// The leaf that said where the block is could not be read: only another copy knows what it holds. No address.
    /// Inherited if that leaf was an ancestor's, which this layer sees as well once it is known there.
    pub const UNKNOWN: u16 = 4;

    /// Where the key's generation begins.
    const KEY_SHIFT: u32 = 12;
    /// The bits that have it.
    const KEY: u16 = 0xf << Entry::KEY_SHIFT;

    /// The same block, encrypted under this generation of a key.
    #[must_use]
    pub fn under(self, key: KeyGeneration) -> Entry {
        Entry { flags: self.flags & !Entry::KEY | u16::from(key.number()) << Entry::KEY_SHIFT, ..self }
    }

    /// The generation of the key that the block is encrypted under, if it is.
    #[must_use]
    pub fn key(&self) -> KeyGeneration {
        KeyGeneration::of_bits(self.flags >> Entry::KEY_SHIFT)
    }

    /// What a reader has of the block: `None` if it reads as zeros, else the key's generation.
    #[must_use]
    pub(crate) fn data(&self) -> Option<KeyGeneration> {
        self.has_contents().then(|| self.key())
    }

    /// A block of which nothing is known.
    #[must_use]
    pub fn unknown() -> Entry {
        Entry { checksum: UNKNOWN_CHECKSUM.0, flags: Entry::UNKNOWN, ..Entry::default() }
    }

    /// Nothing is known of the block.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.flags & Entry::UNKNOWN != 0
    }

    /// The block may hold something: it does not just read as zeros.
    #[must_use]
    pub fn has_contents(&self) -> bool {
        self.address != 0 || self.is_unknown()
    }

    /// An entry that this leaf owns.
    #[must_use]
    pub fn own(address: u32, checksum: Checksum) -> Entry {
        Entry { address, checksum: checksum.0, length: azekura_base::BLOCK_SIZE as u16, flags: 0 }
    }

    /// The same block, as a descendant's leaf has it.
    #[must_use]
    pub fn inherited(self) -> Entry {
        Entry { flags: self.flags | Entry::INHERITED, ..self }
    }

    /// The block holds nothing that a reader may have.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.flags & Entry::LOST != 0
    }

    /// The checksum of what is at the address.
    #[must_use]
    pub(crate) fn stored_checksum(&self) -> Checksum {
        if self.is_lost() { checksum(&[0; azekura_base::BLOCK_SIZE]) } else { Checksum(self.checksum) }
    }

    /// The block is this layer's own, or may be: nothing that lies below it is seen through it.
    #[must_use]
    pub fn hides_ancestors(&self) -> bool {
        self.has_contents() && self.flags & Entry::INHERITED == 0
    }

    /// The block takes space, here or in an ancestor.
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        self.address != 0
    }

    /// The block takes space that this leaf accounts for.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.address != 0 && self.flags & Entry::INHERITED == 0
    }
}

/// Why an image is no leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeafError {
    /// It is not what was written.
    Damaged(&'static str),
    /// It is whole, and of a version that this program does not read.
    Version(u16),
}

impl fmt::Display for LeafError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeafError::Damaged(what) => write!(f, "a leaf image is damaged: {what}"),
            LeafError::Version(version) => {
                write!(f, "leaf format version {version} is not known to this program: a newer one has written it")
            }
        }
    }
}

impl std::error::Error for LeafError {}

/// Up to where the log is in a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeafStamps {
    /// [`Leaf::modified`].
    pub modified: Sequence,
    /// [`Leaf::log_upto`].
    pub log_upto: u64,
    /// [`Leaf::repaired_upto`].
    pub repaired_upto: u64,
}

impl LeafStamps {
    /// The later of both, each for itself.
    #[must_use]
    pub fn max(self, other: LeafStamps) -> LeafStamps {
        LeafStamps {
            modified: self.modified.max(other.modified),
            log_upto: self.log_upto.max(other.log_upto),
            repaired_upto: self.repaired_upto.max(other.repaired_upto),
        }
    }
}

/// What the saved map has under a leaf's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedLeaf {
    /// There is no such leaf.
    Absent,
    /// The leaf as it was last saved.
    Whole(LeafImage),
    /// There is one, and it is not what was last saved.
    Damaged(Box<DamagedLeaf>),
    /// There is one, and it can't be read. The rest of the map can.
    Refused(Box<DamagedLeaf>),
}

/// What is known of a saved leaf that is damaged, or can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedLeaf {
    /// What is wrong with it.
    pub what: String,
    /// Its stamps, if they are known.
    pub stamps: Option<LeafStamps>,
    /// Blocks that it owned, if that is known.
    pub own: Option<u32>,
}

/// A leaf. A layer that has a leaf for a chunk never looks at its ancestors for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leaf {
    /// The last committed write of the group that touched the chunk in this layer.
    pub modified: Sequence,
    /// Relocations and repairs up to this log sequence have been considered: replay skips them.
    pub log_upto: u64,
    /// The same for repairs alone.
    pub repaired_upto: u64,
    /// One entry a block.
    pub entries: Entries,
}

/// A leaf, shared between the cache and a checkpoint that is being saved.
pub type LeafImage = Arc<Leaf>;

const MAGIC: u32 = u32::from_le_bytes(*b"AZLF");
const VERSION: u16 = 2;
/// Some of its blocks are lost. Programs that know only the version before it must not take them for zeros.
const VERSION_WITH_LOST: u16 = 3;
/// Of some of its blocks nothing is known.
const VERSION_WITH_UNKNOWN: u16 = 4;
/// Some of its blocks are encrypted under another generation of their key than the first.
const VERSION_WITH_KEYS: u16 = 5;
/// Of some of its blocks nothing is known since an ancestor's leaf was damaged.
const VERSION_WITH_INHERITED_UNKNOWN: u16 = 6;
const BITMAP_BYTES: usize = CHUNK_BLOCKS / 8;
const ENTRY_BYTES: usize = size_of::<Entry>();

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ImageHeader {
    magic: u32,
    version: u16,
    entries: u16,
    crc: u32,
    pg: u32,
    layer: u64,
    chunk: u32,
    reserved: u32,
    modified: u64,
    log_upto: u64,
    repaired_upto: u64,
    allocated: [u8; BITMAP_BYTES],
}

const HEADER_BYTES: usize = size_of::<ImageHeader>();

impl Leaf {
    /// A leaf of which only the stamps are known.
    #[must_use]
    pub fn unknown(stamps: LeafStamps) -> Leaf {
        let LeafStamps { modified, log_upto, repaired_upto } = stamps;
        Leaf { modified, log_upto, repaired_upto, entries: Entries::all(Entry::unknown()) }
    }

    /// Up to where the log is in the leaf.
    #[must_use]
    pub fn stamps(&self) -> LeafStamps {
        LeafStamps { modified: self.modified, log_upto: self.log_upto, repaired_upto: self.repaired_upto }
    }

    /// Blocks that the leaf owns.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.entries.present().filter(|(_, entry)| entry.is_own()).count() as u32
    }

    /// Nothing is known of some of its blocks.
    #[must_use]
    pub fn has_unknown(&self) -> bool {
        self.entries.present().any(|(_, entry)| entry.is_unknown())
    }

    /// The checksum that an image carries of itself; 0 of one that is too short.
    #[must_use]
    pub fn image_crc(image: &[u8]) -> u32 {
        image.get(8..12).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    /// Whose an image says it is, whether or not the rest of it is whole.
    #[must_use]
    pub fn stated_key(image: &[u8]) -> Option<LeafKey> {
        let u32_at = |at: usize| image.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let layer = u64::from_le_bytes(image.get(16..24)?.try_into().ok()?);
        Some(LeafKey { layer: LayerId(layer), chunk: ChunkIndex(u32_at(24)?), pg: PgId(u32_at(12)?) })
    }

    /// A leaf of a child layer: the same blocks, all inherited, with the relocations and repairs that they have seen.
    #[must_use]
    pub fn child(&self) -> Leaf {
        let mut child = self.clone();
        child.modified = Sequence::ZERO;
        child.entries.present_mut().for_each(|entry| entry.flags |= Entry::INHERITED);
        child
    }

    /// Bytes of its image.
    #[must_use]
    pub(crate) fn image_bytes(&self) -> usize {
        HEADER_BYTES + self.entries.count() * ENTRY_BYTES
    }

    /// Memory that it takes, in bytes.
    #[must_use]
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Leaf>() + self.entries.heap_bytes()
    }

    /// The leaf as it is saved (docs/formats/map.md, "Leaf image").
    #[must_use]
    pub fn encode(&self, key: &LeafKey) -> Vec<u8> {
        let mut header = ImageHeader::zeroed();
        let count = self.entries.count();
        header.allocated = self.entries.bitmap();
        header.magic = MAGIC.to_le();
        header.version = self.version().to_le();
        header.entries = u16::to_le(count as u16);
        header.pg = key.pg.0.to_le();
        header.layer = key.layer.0.to_le();
        header.chunk = key.chunk.0.to_le();
        header.modified = self.modified.0.to_le();
        header.log_upto = self.log_upto.to_le();
        header.repaired_upto = self.repaired_upto.to_le();
        let mut image = Vec::with_capacity(self.image_bytes());
        image.extend_from_slice(bytemuck::bytes_of(&header));
        for (_, entry) in self.entries.present() {
            let wire = Entry {
                address: entry.address.to_le(),
                checksum: entry.checksum.to_le(),
                length: entry.length.to_le(),
                flags: entry.flags.to_le(),
            };
            image.extend_from_slice(bytemuck::bytes_of(&wire));
        }
        let crc = checksum(&image).0.to_le_bytes();
        image[8..12].copy_from_slice(&crc);
        image
    }

    /// The first version of the format that has all its entries.
    fn version(&self) -> u16 {
        let all = || self.entries.present().map(|(_, entry)| entry);
        let flags = all().fold(0, |flags, entry| flags | entry.flags);
        match flags {
            flags if flags & Entry::UNKNOWN != 0 && all().any(|entry| *entry == Entry::unknown().inherited()) => {
                VERSION_WITH_INHERITED_UNKNOWN
            }
            flags if flags & Entry::KEY != 0 => VERSION_WITH_KEYS,
            flags if flags & Entry::UNKNOWN != 0 => VERSION_WITH_UNKNOWN,
            flags if flags & Entry::LOST != 0 => VERSION_WITH_LOST,
            _ => VERSION,
        }
    }

    /// The leaf that was saved as `image`, and its key.
    ///
    /// # Errors
    /// When the image is damaged or of an unknown version.
    pub fn decode(image: &[u8]) -> Result<(LeafKey, Leaf), LeafError> {
        let damaged = LeafError::Damaged;
        let (head, body) = image.split_at_checked(HEADER_BYTES).ok_or(damaged("it is too short"))?;
        let mut header: ImageHeader = bytemuck::pod_read_unaligned(head);
        if u32::from_le(header.magic) != MAGIC {
            return Err(damaged("wrong magic"));
        }
        let stated = u32::from_le(header.crc);
        header.crc = 0;
        let crc = azekura_base::checksum_append(checksum(bytemuck::bytes_of(&header)), body);
        if crc.0 != stated {
            return Err(damaged("its checksum does not match"));
        }
        // Only now: a flipped bit in the version must not pass for another program's work.
        let flags = match u16::from_le(header.version) {
            VERSION => Entry::INHERITED,
            VERSION_WITH_LOST => Entry::INHERITED | Entry::LOST,
            VERSION_WITH_UNKNOWN => Entry::INHERITED | Entry::LOST | Entry::UNKNOWN,
            VERSION_WITH_KEYS | VERSION_WITH_INHERITED_UNKNOWN => {
                Entry::INHERITED | Entry::LOST | Entry::UNKNOWN | Entry::KEY
            }
            version => return Err(LeafError::Version(version)),
        };
        let allocated: u32 = header.allocated.iter().map(|b| b.count_ones()).sum();
        if allocated != u32::from(u16::from_le(header.entries)) || body.len() != allocated as usize * ENTRY_BYTES {
            return Err(damaged("its entries do not match its bitmap"));
        }
        let may_inherit = u16::from_le(header.version) >= VERSION_WITH_INHERITED_UNKNOWN;
        let mut entries = Vec::with_capacity(allocated as usize);
        for wire in body.chunks_exact(ENTRY_BYTES) {
            let wire: Entry = bytemuck::pod_read_unaligned(wire);
            let entry = Entry {
                address: u32::from_le(wire.address),
                checksum: u32::from_le(wire.checksum),
                length: u16::from_le(wire.length),
                flags: u16::from_le(wire.flags),
            };
            if entry.flags & !flags != 0 {
                return Err(damaged("an entry with flags that its version does not have"));
            }
            let is_unknown = entry == Entry::unknown() || may_inherit && entry == Entry::unknown().inherited();
            if !entry.has_contents() || entry.is_unknown() && !is_unknown {
                return Err(damaged("an entry without an address"));
            }
            entries.push(entry);
        }
        let leaf = Leaf {
            modified: Sequence(u64::from_le(header.modified)),
            log_upto: u64::from_le(header.log_upto),
            repaired_upto: u64::from_le(header.repaired_upto),
            entries: Entries::packed(&header.allocated, entries),
        };
        let key = LeafKey {
            layer: LayerId(u64::from_le(header.layer)),
            chunk: ChunkIndex(u32::from_le(header.chunk)),
            pg: PgId(u32::from_le(header.pg)),
        };
        Ok((key, leaf))
    }
}
