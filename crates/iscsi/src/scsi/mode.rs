//! Mode pages (SPC-4 sections 6.10 to 6.14 and 7.5, SBC-3 section 6.4): what they say, and that it can't be changed.

use super::opcodes::{MODE_SELECT_10, MODE_SENSE_10};
use super::sense::Sense;
use super::{Cdb, Disk, PARAMETERS_MAX, Plan, Use};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
const PAGES: [u8; 3] = [CACHING, CONTROL, EXCEPTIONS];

/// A page as it is. All that is answered is durable: there is no write cache (WCE 0).
fn page(code: u8) -> Vec<u8> {
    let len = match code {
        CACHING => 18,
        _ => 10,
    };
    let mut bytes = vec![0; 2 + len];
    (bytes[0], bytes[1]) = (code, len as u8);
    if code == CONTROL {
        // Commands may be done in any order; who has one that another initiator ends is told TASK ABORTED (TAS); no
        // limit of how long one is busy.
        bytes[3] = 0x10;
        bytes[5] = 0x40;
        bytes[8..10].copy_from_slice(&u16::MAX.to_be_bytes());
    }
    bytes
}

/// MODE SENSE (SPC-4 sections 6.13 and 6.14).
pub(crate) fn sense(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    const CHANGEABLE: u8 = 1;
    const SAVED: u8 = 3;
    let is_long = cdb.opcode() == MODE_SENSE_10;
    let room = if is_long { u32::from(cdb.u16(7)) } else { u32::from(cdb.0[4]) };
    let (control, code, subpage) = (cdb.0[2] >> 6, cdb.0[2] & 0x3f, cdb.0[3]);
    if control == SAVED {
        return Plan::Check(Sense::SAVING);
    }
    let is_known = PAGES.contains(&code) && matches!(subpage, 0 | 0xff) || code == ALL && matches!(subpage, 0 | 0xff);
    if !is_known {
        return Plan::Check(Sense::FIELD);
    }
    let mut pages = Vec::new();
    for code in PAGES.into_iter().filter(|known| code == ALL || *known == code) {
        let mut page = page(code);
        if control == CHANGEABLE {
            page[2..].fill(0);
        }
        pages.extend(page);
    }
    let has_blocks = !cdb.has(1, 0x08);
    let is_wide = is_long && cdb.has(1, 0x10);
    let blocks = if has_blocks { block_descriptor(disk, is_wide) } else { Vec::new() };
    let mut bytes = header(disk, is_long, is_wide && has_blocks, blocks.len(), pages.len());
    bytes.extend(blocks);
    bytes.extend(pages);
    Plan::data(bytes, room)
}

/// The header (SPC-4 section 7.5.5).
fn header(disk: &Disk, is_long: bool, is_wide: bool, blocks: usize, pages: usize) -> Vec<u8> {
    const DPOFUA: u8 = 0x10;
    let specific = DPOFUA | u8::from(disk.is_read_only) << 7;
    if is_long {
        let len = ((6 + blocks + pages) as u16).to_be_bytes();
        vec![len[0], len[1], 0, specific, u8::from(is_wide), 0, 0, blocks as u8]
    } else {
        vec![(3 + blocks + pages) as u8, 0, specific, blocks as u8]
    }
}

/// Short or long LBA mode parameter block descriptor (SBC-3 section 6.4.2).
fn block_descriptor(disk: &Disk, is_wide: bool) -> Vec<u8> {
    let size = disk.block_bytes().to_be_bytes();
    if is_wide {
        [&disk.blocks.to_be_bytes()[..], &[0; 4], &size].concat()
    } else {
        let blocks = u32::try_from(disk.blocks).unwrap_or(u32::MAX).to_be_bytes();
        [blocks, size].concat()
    }
}

/// MODE SELECT (SPC-4 sections 6.11 and 6.12), before its parameters have come.
pub(crate) fn select(cdb: Cdb<'_>) -> Plan {
    let is_long = cdb.opcode() == MODE_SELECT_10;
    let bytes = if is_long { u32::from(cdb.u16(7)) } else { u32::from(cdb.0[4]) };
    // Pages are as the standard says (PF), and are not saved.
    if cdb.has(1, 0x01) || !cdb.has(1, 0x10) {
        return Plan::Check(Sense::FIELD);
    }
    match bytes {
        0 => Plan::good(),
        _ if bytes > PARAMETERS_MAX => Plan::Check(Sense::LIST_LENGTH),
        _ => Plan::Take(bytes, Use::ModeSelect { is_long }),
    }
}

/// MODE SELECT's parameters: nothing can be changed, so only pages as they are may be in them.
///
/// # Errors
/// When they are too short, or want something else.
pub fn check_selected(disk: &Disk, bytes: &[u8], is_long: bool) -> Result<(), Sense> {
    let header = if is_long { 8 } else { 4 };
    let (head, rest) = bytes.split_at_checked(header).ok_or(Sense::LIST_LENGTH)?;
    let blocks = if is_long { usize::from(u16::from_be_bytes([head[6], head[7]])) } else { usize::from(head[3]) };
    let (blocks, mut pages) = rest.split_at_checked(blocks).ok_or(Sense::LIST_LENGTH)?;
    if !blocks.is_empty() && !blocks.ends_with(&disk.block_bytes().to_be_bytes()[1..]) {
        return Err(Sense::PARAMETER);
    }
    while !pages.is_empty() {
        let [code, len, ..] = pages else { return Err(Sense::LIST_LENGTH) };
        let (one, rest) = pages.split_at_checked(2 + usize::from(*len)).ok_or(Sense::LIST_LENGTH)?;
        let code = code & 0x7f;
        if !PAGES.contains(&code) || one[1..] != page(code)[1..] {
            return Err(Sense::PARAMETER);
        }
        pages = rest;
    }
    Ok(())
}
