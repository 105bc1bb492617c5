//! Protocol data units (RFC 7143 section 11): basic header segments, and how they come and go.

pub mod initiator;
pub mod reader;
pub mod target;

use azekura_base::checksum;

/// Bytes of a basic header segment (section 11.2.1).
pub const BHS_SIZE: usize = 48;
/// A task tag that names nothing (section 11.2.1.8), for either side's.
pub const NO_TAG: u32 = u32::MAX;

/// Which of the two digests (section 13.1) follow headers and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// CRC-32C behind the header.
    pub header: bool,
    /// CRC-32C behind the data segment and its padding.
    pub data: bool,
}

/// The bytes that a data segment is padded with, to a multiple of four (section 11.2.3).
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// A digest as it is sent: CRC-32C, its first byte the least significant one (section 13.1).
pub(crate) fn digest(bytes: &[u8]) -> [u8; 4] {
    checksum(bytes).0.to_le_bytes()
}

/// A basic header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_SIZE]);

impl Bhs {
    /// All zeros but the opcode.
    #[must_use]
    pub fn new(opcode: u8) -> Bhs {
        let mut bytes = [0; BHS_SIZE];
        bytes[0] = opcode;
        Bhs(bytes)
    }

    /// The opcode (section 11.2.1.2).
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The request is marked for immediate delivery (section 4.2.2.1).
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// The highest bit of byte 1: F, or T in a login.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// Bytes of all additional header segments.
    #[must_use]
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without padding.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Says how long the data segment is: at most 2^24 - 1 bytes.
    pub fn set_data_bytes(&mut self, len: usize) {
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    /// The 16-bit number at byte `at`.
    #[must_use]
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// The 32-bit number at byte `at`.
    #[must_use]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Puts bytes at `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts a 32-bit number at `at`.
    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    /// The logical unit that it names.
    #[must_use]
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// The initiator's task tag.
    #[must_use]
    pub fn itt(&self) -> u32 {
        self.u32(16)
    }

    /// The command sequence number of a request.
    #[must_use]
    pub fn cmd_sn(&self) -> u32 {
        self.u32(24)
    }
}
