//! The discovery log page (Base section 5.16.1.23): which subsystems there are, and where.

use crate::command::fabrics::NAME_SIZE;
use crate::fields::put_at;
use crate::names::subsystem_name;
use azekura_frontend::{Exports, Listing};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

/// Bytes of the page's header, and of each of its entries.
pub const ENTRY_SIZE: usize = 1024;
/// The most subsystems that are listed.
pub const LISTED_MAX: usize = 1 << 16;

/// Names of subsystems, each in a field of [`NAME_SIZE`] bytes.
fn fields(names: &mut dyn Iterator<Item = &str>) -> Listing {
    let mut bytes = Vec::new();
    for name in names.filter_map(subsystem_name) {
        let at = bytes.len();
        bytes.resize(at + NAME_SIZE, 0);
        put_at(&mut bytes, at, name.as_bytes());
        if bytes.len() > LISTED_MAX * NAME_SIZE {
            return None;
        }
    }
    Some(bytes.into())
}

/// The page of a node whose subsystems are reached at `portal`, from byte `offset` on: made of no more than is asked
/// for.
#[must_use]
pub fn page(exports: &dyn Exports, portal: Option<SocketAddr>, offset: u64, len: usize) -> Vec<u8> {
    let make = |exports: &mut dyn Iterator<Item = (&str, &str)>| fields(&mut exports.map(|(name, _)| name));
    // Where nobody can be sent, there is nothing to list.
    let names = portal.and_then(|_| exports.listing("nvme", &make)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(len);
    let (mut index, mut skip) = (offset / ENTRY_SIZE as u64, (offset % ENTRY_SIZE as u64) as usize);
    while bytes.len() < len {
        let whole = match (index, portal) {
            (0, _) => header(&names, portal),
            (_, Some(portal)) => entry(&names, portal, index - 1),
            _ => vec![0; ENTRY_SIZE],
        };
        let part = &whole[skip..];
        bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
        (index, skip) = (index + 1, 0);
    }
    bytes
}

fn header(names: &Bytes, portal: Option<SocketAddr>) -> Vec<u8> {
    let mut bytes = vec![0; ENTRY_SIZE];
    // GENCTR: another one whenever something else is listed.
    let at = portal.map_or_else(String::new, |portal| portal.to_string());
    let sum = azekura_base::checksum_append(azekura_base::checksum(names), at.as_bytes());
    put_at(&mut bytes, 0, &u64::from(sum.0).to_le_bytes());
    put_at(&mut bytes, 8, &((names.len() / NAME_SIZE) as u64).to_le_bytes());
    bytes
}

fn entry(names: &Bytes, portal: SocketAddr, index: u64) -> Vec<u8> {
    const TCP: u8 = 3;
    const NVM: u8 = 2;
    /// The host may turn flow control of submission queues off, and a secure channel is not required.
    const TREQ: u8 = 1 << 2 | 2;
    let mut bytes = vec![0; ENTRY_SIZE];
    let at = usize::try_from(index).ok().and_then(|index| index.checked_mul(NAME_SIZE));
    let Some(name) = at.and_then(|at| names.get(at..at + NAME_SIZE)) else { return bytes };
    let family = if portal.is_ipv4() { 1 } else { 2 };
    bytes[..4].copy_from_slice(&[TCP, family, NVM, TREQ]);
    // PORTID, CNTLID (one is chosen at Connect), ASQSZ.
    put_at(&mut bytes, 4, &1_u16.to_le_bytes());
    put_at(&mut bytes, 6, &0xffff_u16.to_le_bytes());
    put_at(&mut bytes, 8, &crate::ADMIN_ENTRIES.to_le_bytes());
    put_at(&mut bytes, 32, portal.port().to_string().as_bytes());
    put_at(&mut bytes, 256, name);
    let address = match portal.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.to_string(),
    };
    put_at(&mut bytes, 512, address.as_bytes());
    bytes
}
