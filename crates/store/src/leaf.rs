//! A leaf of the map: where the 1,024 blocks of one chunk of one layer are.

use crate::effect::MapError;
use azekura_base::{CHUNK_BLOCKS, Checksum, ChunkIndex, LayerId, PgId, Sequence, checksum};
use bytemuck::{Pod, Zeroable};
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
    /// [`Entry::INHERITED`], [`Entry::LOST`], both or 0.
    pub flags: u16,
}

impl Entry {
    /// The block belongs to an ancestor's leaf, which accounts for its space.
    pub const INHERITED: u16 = 1;
    /// No copy could give the block. At its address are zeros.
    pub const LOST: u16 = 2;

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

/// A leaf. A layer that has a leaf for a chunk never looks at its ancestors for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The last committed write of the group that touched the chunk in this layer.
    pub modified: Sequence,
    /// Relocations and copies up to this log sequence have been considered: replay skips them.
    pub log_upto: u64,
    /// The same for copies from another replica.
    pub copied_upto: u64,
    /// One entry a block.
    pub entries: [Entry; CHUNK_BLOCKS],
}

/// A leaf, shared between the cache and a checkpoint that is being saved.
pub type LeafImage = Arc<Leaf>;

impl Default for Leaf {
    fn default() -> Leaf {
        Leaf { modified: Sequence::ZERO, log_upto: 0, copied_upto: 0, entries: [Entry::default(); CHUNK_BLOCKS] }
    }
}

const MAGIC: u32 = u32::from_le_bytes(*b"AZLF");
const VERSION: u16 = 2;
/// Some of its blocks are lost. Programs that know only the version before it must not take them for zeros.
const VERSION_WITH_LOST: u16 = 3;
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
    copied_upto: u64,
    allocated: [u8; BITMAP_BYTES],
}

const HEADER_BYTES: usize = size_of::<ImageHeader>();

impl Leaf {
    /// A leaf of a child layer: the same blocks, all inherited, with the relocations and copies that they have seen.
    #[must_use]
    pub fn child(&self) -> Leaf {
        let mut child = self.clone();
        child.modified = Sequence::ZERO;
        for entry in child.entries.iter_mut().filter(|e| e.is_allocated()) {
            entry.flags |= Entry::INHERITED;
        }
        child
    }

    /// The leaf as it is saved (docs/formats/map.md, "Leaf image").
    #[must_use]
    pub fn encode(&self, key: &LeafKey) -> Vec<u8> {
        let mut header = ImageHeader::zeroed();
        let mut count = 0;
        for (block, _) in self.entries.iter().enumerate().filter(|(_, e)| e.is_allocated()) {
            header.allocated[block / 8] |= 1 << (block % 8);
            count += 1;
        }
        header.magic = MAGIC.to_le();
        let lost = self.entries.iter().any(Entry::is_lost);
        header.version = if lost { VERSION_WITH_LOST } else { VERSION }.to_le();
        header.entries = u16::to_le(count);
        header.pg = key.pg.0.to_le();
        header.layer = key.layer.0.to_le();
        header.chunk = key.chunk.0.to_le();
        header.modified = self.modified.0.to_le();
        header.log_upto = self.log_upto.to_le();
        header.copied_upto = self.copied_upto.to_le();
        let mut image = Vec::with_capacity(HEADER_BYTES + usize::from(count) * ENTRY_BYTES);
        image.extend_from_slice(bytemuck::bytes_of(&header));
        for entry in self.entries.iter().filter(|e| e.is_allocated()) {
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

    /// The leaf that was saved as `image`, and its key.
    ///
    /// # Errors
    /// When the image is damaged or of an unknown version.
    pub fn decode(image: &[u8]) -> Result<(LeafKey, Leaf), MapError> {
        let damaged = |what: &str| MapError::Failed(format!("a leaf image is damaged: {what}"));
        let (head, body) = image.split_at_checked(HEADER_BYTES).ok_or_else(|| damaged("it is too short"))?;
        let mut header: ImageHeader = bytemuck::pod_read_unaligned(head);
        if u32::from_le(header.magic) != MAGIC {
            return Err(damaged("wrong magic"));
        }
        let flags = match u16::from_le(header.version) {
            VERSION => Entry::INHERITED,
            VERSION_WITH_LOST => Entry::INHERITED | Entry::LOST,
            version => return Err(MapError::Failed(format!("leaf format version {version} is not known"))),
        };
        let stated = u32::from_le(header.crc);
        header.crc = 0;
        let crc = azekura_base::checksum_append(checksum(bytemuck::bytes_of(&header)), body);
        if crc.0 != stated {
            return Err(damaged("its checksum does not match"));
        }
        let allocated: u32 = header.allocated.iter().map(|b| b.count_ones()).sum();
        if allocated != u32::from(u16::from_le(header.entries)) || body.len() != allocated as usize * ENTRY_BYTES {
            return Err(damaged("its entries do not match its bitmap"));
        }
        let mut leaf = Leaf {
            modified: Sequence(u64::from_le(header.modified)),
            log_upto: u64::from_le(header.log_upto),
            copied_upto: u64::from_le(header.copied_upto),
            ..Leaf::default()
        };
        let blocks = (0..CHUNK_BLOCKS).filter(|b| header.allocated[b / 8] & (1 << (b % 8)) != 0);
        for (block, wire) in blocks.zip(body.chunks_exact(ENTRY_BYTES)) {
            let wire: Entry = bytemuck::pod_read_unaligned(wire);
            leaf.entries[block] = Entry {
                address: u32::from_le(wire.address),
                checksum: u32::from_le(wire.checksum),
                length: u16::from_le(wire.length),
                flags: u16::from_le(wire.flags),
            };
            if !leaf.entries[block].is_allocated() {
                return Err(damaged("an entry without an address"));
            }
            if leaf.entries[block].flags & !flags != 0 {
                return Err(damaged("an entry with flags that its version does not have"));
            }
        }
        let key = LeafKey {
            layer: LayerId(u64::from_le(header.layer)),
            chunk: ChunkIndex(u32::from_le(header.chunk)),
            pg: PgId(u32::from_le(header.pg)),
        };
        Ok((key, leaf))
    }
}
