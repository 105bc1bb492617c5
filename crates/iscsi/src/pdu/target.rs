//! What a target sends (RFC 7143 sections 11.4 to 11.20).

use super::{Bhs, Digests, digest, padding};
use azekura_base::{Outbox, checksum, checksum_append};
use bytes::Bytes;

/// NOP-In (section 11.19).
pub const NOP_IN: u8 = 0x20;
/// SCSI Response (section 11.4).
pub const SCSI_RESPONSE: u8 = 0x21;
/// Task Management Function Response (section 11.6).
pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
/// Login Response (section 11.13).
pub const LOGIN_RESPONSE: u8 = 0x23;
/// Text Response (section 11.11).
pub const TEXT_RESPONSE: u8 = 0x24;
/// SCSI Data-In (section 11.7).
pub const DATA_IN: u8 = 0x25;
/// Logout Response (section 11.15).
pub const LOGOUT_RESPONSE: u8 = 0x26;
/// Ready To Transfer (section 11.8).
pub const R2T: u8 = 0x31;
/// Reject (section 11.17).
pub const REJECT: u8 = 0x3f;

/// Puts a PDU with the data segment `data` into the outbox.
pub fn put(outbox: &mut Outbox, digests: Digests, bhs: Bhs, data: &[Bytes]) {
    let mut bhs = bhs;
    let len: usize = data.iter().map(Bytes::len).sum();
    bhs.set_data_bytes(len);
    outbox.put(&bhs.0);
    if digests.header {
        outbox.put(&digest(&bhs.0));
    }
    data.iter().for_each(|piece| outbox.put_payload(piece.clone()));
    let pad = &[0; 3][..padding(len)];
    outbox.put(pad);
    if digests.data && len > 0 {
        let sum = data.iter().fold(checksum(&[]), |sum, piece| checksum_append(sum, piece));
        outbox.put(&checksum_append(sum, pad).0.to_le_bytes());
    }
}

/// Why a PDU is refused (section 11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// Lost PDUs are not sent again at error recovery level 0.
    Snack = 0x03,
    /// It has no place here.
    Protocol = 0x04,
    /// This target does not know it.
    NotSupported = 0x05,
    /// There are too many immediate requests.
    Immediate = 0x06,
    /// The tag names a task that is under way.
    TaskInProgress = 0x07,
    /// A field has a value that makes no sense.
    InvalidField = 0x09,
}
