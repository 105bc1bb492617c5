//! Protocol data units (TCP section 3.6): what they say, and how they come and go.

pub mod fatal;
pub mod header;
pub mod initialize;
pub mod reader;
pub mod transfers;
pub mod writer;

pub use fatal::{Fatal, Terminate};
pub use header::{DataHeader, Kind, Pdu, ReadyToTransfer};
pub use initialize::{InitializeRequest, InitializeResponse, Offer};

pub(crate) use crate::fields::{put_at, u16_at, u32_at};
use azekura_base::checksum;

/// Bytes of the common header (TCP section 3.6.1).
pub const COMMON_SIZE: usize = 8;
/// Bytes of the longest header, that of ICReq and ICResp.
pub const HEADER_MAX: usize = 128;
/// Bytes of a digest (TCP section 3.3.1).
pub const DIGEST_SIZE: usize = 4;
/// The largest value of HPDA and CPDA: data begins at a multiple of 128 bytes (TCP sections 3.6.2.2 and 3.6.2.3).
pub const ALIGNMENT_MAX: u8 = 31;

/// Which of the two digests (TCP section 3.3.1) are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC-32C behind the header.
    pub header: bool,
    /// CRC-32C behind the data.
    pub data: bool,
}

impl Digests {
    /// Bytes that follow a header.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        if self.header { DIGEST_SIZE } else { 0 }
    }

    /// Bytes that follow data.
    #[must_use]
    pub fn data_bytes(self) -> usize {
        if self.data { DIGEST_SIZE } else { 0 }
    }
}

/// What both sides have agreed on for PDUs in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Digests, the same in both directions.
    pub digests: Digests,
    /// How data is aligned: CPDA for what a controller receives, HPDA for what a host receives. In dwords, 0's based.
    pub alignment: u8,
    /// The most data of a CapsuleCmd PDU, in bytes.
    pub capsule_data_max: u32,
    /// The most data of an H2CData or C2HData PDU, in bytes.
    pub data_max: u32,
}

impl Terms {
    /// Where data of a PDU begins whose header has so many bytes, with nothing in between that need not be.
    #[must_use]
    pub fn data_offset(&self, header_size: usize) -> usize {
        (header_size + self.digests.header_bytes()).next_multiple_of(self.alignment_bytes())
    }

    /// Data begins at a multiple of this.
    #[must_use]
    pub fn alignment_bytes(&self) -> usize {
        (usize::from(self.alignment.min(ALIGNMENT_MAX)) + 1) * 4
    }
}

/// A digest as it is sent: CRC-32C, its first byte the least significant one (TCP section 3.3.1.1).
pub(crate) fn digest(bytes: &[u8]) -> [u8; DIGEST_SIZE] {
    checksum(bytes).0.to_le_bytes()
}
