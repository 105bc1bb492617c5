//! The superblock: what the device is, twice, in blocks 0 and 1.

use super::batch::LOG_VERSION;
use crate::effect::OpenError;
use crate::options::{Identity, Options};
use azekura_base::{BLOCK_SIZE, DeviceId, PageBuf, checksum};
use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

const MAGIC: [u8; 8] = *b"AZKSTORE";

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: u16,
    reserved: u16,
    crc: u32,
    cluster: [u8; 16],
    device: u32,
    segments: u32,
    segment_blocks: u32,
    superblock_area_blocks: u32,
    instance: u64,
}

/// The decoded superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub identity: Identity,
    pub segments: u32,
    pub segment_blocks: u32,
}

impl Superblock {
    /// Bytes to read at offset 0: both copies.
    pub const BYTES: usize = 2 * BLOCK_SIZE;

    pub fn encode(options: &Options, identity: &Identity) -> Bytes {
        let mut wire = Wire {
            magic: MAGIC,
            version: LOG_VERSION,
            reserved: 0,
            crc: 0,
            cluster: identity.cluster.to_le_bytes(),
            device: identity.device.0,
            segments: options.segments,
            segment_blocks: options.segment_blocks,
            superblock_area_blocks: crate::SUPERBLOCK_AREA_BLOCKS,
            instance: identity.instance,
        };
        wire.crc = checksum(bytemuck::bytes_of(&wire)).0;
        let mut buf = PageBuf::zeroed(Self::BYTES);
        buf[..size_of::<Wire>()].copy_from_slice(bytemuck::bytes_of(&wire));
        buf.copy_within(..BLOCK_SIZE, BLOCK_SIZE);
        buf.freeze()
    }

    /// The first good copy in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, OpenError> {
        let mut error = OpenError::NotFormatted;
        for copy in bytes.chunks(BLOCK_SIZE) {
            match decode_copy(copy) {
                Ok(superblock) => return Ok(superblock),
                Err(OpenError::NotFormatted) => {}
                Err(other) => error = other,
            }
        }
        Err(error)
    }
}

fn decode_copy(copy: &[u8]) -> Result<Superblock, OpenError> {
    let head = copy.get(..size_of::<Wire>()).ok_or(OpenError::NotFormatted)?;
    let mut wire: Wire = bytemuck::pod_read_unaligned(head);
    if wire.magic != MAGIC {
        return Err(OpenError::NotFormatted);
    }
    if wire.version != LOG_VERSION {
        return Err(OpenError::Version(wire.version));
    }
    let stated = wire.crc;
    wire.crc = 0;
    if checksum(bytemuck::bytes_of(&wire)).0 != stated || wire.superblock_area_blocks != crate::SUPERBLOCK_AREA_BLOCKS {
        return Err(OpenError::Damaged("the superblock fails its checksum".into()));
    }
    Ok(Superblock {
        identity: Identity {
            cluster: u128::from_le_bytes(wire.cluster),
            device: DeviceId(wire.device),
            instance: wire.instance,
        },
        segments: wire.segments,
        segment_blocks: wire.segment_blocks,
    })
}
