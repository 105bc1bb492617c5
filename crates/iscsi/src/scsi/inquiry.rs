//! INQUIRY and the vital product data (SPC-4 sections 6.6 and 7.8, SBC-3 section 6.5).

use super::sense::Sense;
use super::{
    COMPARED_BLOCKS_MAX, Cdb, Disk, Plan, TRANSFER_BYTES_MAX, TRANSFER_BYTES_OPTIMAL, UNMAP_BYTES_MAX,
    UNMAP_DESCRIPTORS_MAX, access, copy,
};

const VENDOR: &[u8; 8] = b"AZEKURA ";
const PRODUCT: &[u8; 16] = b"Volume          ";
const REVISION: &[u8; 4] = b"1   ";
/// All pages, in order.
const PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2];

/// INQUIRY of a logical unit; `None`: of one that is not there.
pub(crate) fn inquiry(unit: Option<&Disk>, cdb: Cdb<'_>) -> Plan {
    let (room, page) = (u32::from(cdb.u16(3)), cdb.0[2]);
    // CMDDT is obsolete; a page without EVPD makes no sense.
    if cdb.has(1, 2) || !cdb.has(1, 1) && page != 0 {
        return Plan::Check(Sense::FIELD);
    }
    if !cdb.has(1, 1) {
        return Plan::data(standard(unit.is_some()), room);
    }
    let Some(disk) = unit else { return Plan::Check(Sense::NO_LUN) };
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => serial_number(disk).into_bytes(),
        0x83 => identification(disk),
        0x86 => extended(),
        0x8f => copy::vital_product_data(disk),
        0xb0 => block_limits(disk),
        0xb1 => characteristics(),
        0xb2 => provisioning(),
        _ => return Plan::Check(Sense::FIELD),
    };
    let mut bytes = vec![0, page];
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&body);
    Plan::data(bytes, room)
}

/// Standard inquiry data (SPC-4 section 6.6.2).
fn standard(is_there: bool) -> Vec<u8> {
    const CMDQUE: u8 = 0x02;
    /// 3PC: EXTENDED COPY is there.
    const COPIES: u8 = 0x08;
    // SAM-5, iSCSI, SPC-4 and SBC-3, without a version of theirs (SPC-4 section 6.6.2.1).
    const DESCRIPTORS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];
    let mut bytes = vec![0; 96];
    // A logical unit that there is not: not to be connected, of unknown type.
    bytes[0] = if is_there { 0x00 } else { 0x7f };
    (bytes[2], bytes[3], bytes[4], bytes[5], bytes[7]) = (0x06, 0x02, 96 - 5, access::IMPLICIT | COPIES, CMDQUE);
    bytes[8..16].copy_from_slice(VENDOR);
    bytes[16..32].copy_from_slice(PRODUCT);
    bytes[32..36].copy_from_slice(REVISION);
    for (place, version) in bytes[58..].chunks_exact_mut(2).zip(DESCRIPTORS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

fn serial_number(disk: &Disk) -> String {
    format!("{:016x}", disk.id)
}

/// The NAA designator, locally assigned (SPC-4 section 7.8.6.6.4): 60 bits.
pub(super) fn naa(disk: &Disk) -> [u8; 8] {
    (0x3 << 60 | disk.id & (u64::MAX >> 4)).to_be_bytes()
}

/// Device identification (SPC-4 section 7.8.6): what names the disk for ever, in three ways, and the port by which
/// it is seen.
fn identification(disk: &Disk) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF8: u8 = 3;
    /// Of the target port, and the protocol identifier is iSCSI's.
    const PORT: u8 = 0x90;
    let mut bytes = Vec::new();
    let mut put = |set: u8, kind: u8, id: &[u8]| {
        let set = if kind & 0x80 != 0 { 0x50 | set } else { set };
        bytes.extend_from_slice(&[set, kind, 0, id.len() as u8]);
        bytes.extend_from_slice(id);
    };
    put(BINARY, 3, &naa(disk));
    put(ASCII, 1, &[&VENDOR[..], serial_number(disk).as_bytes()].concat());
    let number = u32::from(disk.port).to_be_bytes();
    put(BINARY, PORT | 4, &number);
    put(BINARY, PORT | 5, &number);
    if !disk.target.is_empty() {
        let name = &disk.target;
        // SCSI name strings end with a zero and have a multiple of four bytes.
        let padded = |mut name: Vec<u8>| {
            name.resize(name.len() / 4 * 4 + 4, 0);
            name
        };
        put(UTF8, PORT | 8, &padded(format!("{name},t,{:#06x}", disk.port).into_bytes()));
        put(UTF8, 0x80 | 0x20 | 8, &padded(name.clone().into_bytes()));
    }
    bytes
}

/// Extended INQUIRY data (SPC-4 section 7.8.7).
fn extended() -> Vec<u8> {
    const SIMPSUP: u8 = 0x01;
    let mut bytes = vec![0; 60];
    bytes[1] = SIMPSUP;
    bytes
}

/// Block limits (SBC-3 section 6.5.3), all in logical blocks.
fn block_limits(disk: &Disk) -> Vec<u8> {
    const WSNZ: u8 = 1;
    const UGAVALID: u32 = 1 << 31;
    let physical = 1_u32 << disk.block.physical_power();
    let transfer = disk.whole_blocks(TRANSFER_BYTES_MAX);
    let mut bytes = vec![0; 60];
    let mut put = |at: usize, value: &[u8]| bytes[at - 4..at - 4 + value.len()].copy_from_slice(value);
    put(4, &[WSNZ, if disk.compares { COMPARED_BLOCKS_MAX } else { 0 }]);
    put(6, &(physical as u16).to_be_bytes());
    put(8, &transfer.to_be_bytes());
    put(12, &disk.whole_blocks(TRANSFER_BYTES_OPTIMAL).to_be_bytes());
    put(20, &disk.whole_blocks(UNMAP_BYTES_MAX).to_be_bytes());
    put(24, &u32::from(UNMAP_DESCRIPTORS_MAX).to_be_bytes());
    // Where any block is as good as another, none is said: QEMU's initiator (7.2) would keep a map of what is
    // allocated by it, and ask itself about a length that is not in blocks of 4 KiB, which an assertion ends it for.
    if physical > 1 {
        put(28, &physical.to_be_bytes());
        put(32, &UGAVALID.to_be_bytes());
    }
    put(36, &u64::from(transfer).to_be_bytes());
    bytes
}

/// Block device characteristics (SBC-3 section 6.5.2): nothing turns.
fn characteristics() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[1] = 1;
    bytes
}

/// Logical block provisioning (SBC-3 section 6.5.4): thin, by UNMAP and both WRITE SAME.
fn provisioning() -> Vec<u8> {
    const LBPU_LBPWS_LBPWS10: u8 = 0xe0;
    const LBPRZ: u8 = 0x04;
    const THIN: u8 = 2;
    vec![0, LBPU_LBPWS_LBPWS10 | LBPRZ, THIN, 0]
}
