//! Log pages (Base section 5.16.1): what controllers tell of themselves. What is not named here is zero.

use crate::fields::put_at;

/// LID: which log pages there are.
pub const SUPPORTED: u8 = 0x00;
/// LID: errors; there are none.
pub const ERRORS: u8 = 0x01;
/// LID: health.
pub const SMART: u8 = 0x02;
/// LID: firmware.
pub const FIRMWARE: u8 = 0x03;
/// LID: namespaces that have changed.
pub const CHANGED_NAMESPACES: u8 = 0x04;
/// LID: what commands do.
pub const EFFECTS: u8 = 0x05;
/// LID: how good a path to namespaces this controller is.
pub const ACCESS: u8 = 0x0c;
/// LID: where subsystems are.
pub const DISCOVERY: u8 = 0x70;
/// LID: what others have done to the host's registration ([`crate::reservations::notices`]).
pub const RESERVATIONS: u8 = 0x80;

/// Bytes of an entry of the log of errors (Base section 5.16.1.2).
const ERROR_SIZE: usize = 64;

/// Supported Log Pages (Base section 5.16.1.1).
#[must_use]
pub fn supported(pages: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    // LSUPP.
    pages.iter().for_each(|page| bytes[usize::from(*page) * 4] = 1);
    bytes
}

/// Error Information (Base section 5.16.1.2): one entry (ELPE is 0) without an error.
#[must_use]
pub fn errors() -> Vec<u8> {
    vec![0; ERROR_SIZE]
}

/// SMART / Health Information (Base section 5.16.1.3): nothing wears out, and it is as warm as a room.
#[must_use]
pub fn smart() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    // Kelvin; 0 would be a broken sensor.
    put_at(&mut bytes, 1, &295_u16.to_le_bytes());
    (bytes[3], bytes[4]) = (100, 10);
    bytes
}

/// Firmware Slot Information (Base section 5.16.1.4).
#[must_use]
pub fn firmware(revision: &str) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[0] = 1;
    bytes[8..16].fill(b' ');
    let len = revision.len().min(8);
    put_at(&mut bytes, 8, &revision.as_bytes()[..len]);
    bytes
}

/// Changed Namespace List (Base section 5.16.1.5).
#[must_use]
pub fn changed_namespaces(has_changed: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0] = u8::from(has_changed);
    bytes
}

/// Commands Supported and Effects (Base section 5.16.1.6): of those that there are, the ones that change blocks.
#[must_use]
pub fn effects(admin: &[u8], io: &[u8], writes: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    // CSUPP, and LBCC.
    admin.iter().for_each(|opcode| bytes[usize::from(*opcode) * 4] = 1);
    io.iter().for_each(|opcode| bytes[1024 + usize::from(*opcode) * 4] = 1);
    writes.iter().for_each(|opcode| bytes[1024 + usize::from(*opcode) * 4] |= 2);
    bytes
}

/// ANA state (Base section 8.1.1.3): commands are carried out.
pub const OPTIMIZED: u8 = 0x01;
/// ANA state (Base section 8.1.1.4): commands are carried out, and other controllers do so better.
pub const NON_OPTIMIZED: u8 = 0x02;

/// Asymmetric Namespace Access (Base section 5.16.1.13): one group, of one namespace, whose state has not changed since
/// the controller began. `groups_only` (RGO): its namespaces are not named.
#[must_use]
pub fn access(group: u32, namespace: u32, state: u8, groups_only: bool) -> Vec<u8> {
    let mut bytes = vec![0; if groups_only { 48 } else { 52 }];
    // After the change count: how many groups; then of the group its number, namespaces, change count and state.
    put_at(&mut bytes, 8, &1_u16.to_le_bytes());
    put_at(&mut bytes, 16, &group.to_le_bytes());
    bytes[32] = state;
    if !groups_only {
        put_at(&mut bytes, 20, &1_u32.to_le_bytes());
        put_at(&mut bytes, 48, &namespace.to_le_bytes());
    }
    bytes
}

/// The part of a page that a host asks for: beyond its end there are zeros.
#[must_use]
pub fn part(page: &[u8], offset: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = page.iter().skip(offset).take(len).copied().collect();
    bytes.resize(len, 0);
    bytes
}
