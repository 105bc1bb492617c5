//! The discovery log page (Base section 5.16.1.23): which subsystems there are, and where: each at every node.

use crate::command::fabrics::NAME_SIZE;
use crate::fields::put_at;
use crate::names::subsystem_name;
use azekura_frontend::{Exports, Listing, Portal};
use bytes::Bytes;
use std::net::SocketAddr;

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

/// The page of a node whose subsystems are reached at `portal`, and at the portals of all other nodes, from byte
/// `offset` on: made of no more than is asked for.
#[must_use]
pub fn page(exports: &dyn Exports, portal: Option<SocketAddr>, offset: u64, len: usize) -> Vec<u8> {
    let make = |exports: &mut dyn Iterator<Item = (&str, &str)>| fields(&mut exports.map(|(name, _)| name));
    // Where nobody can be sent, there is nothing to list.
    let names = portal.and_then(|_| exports.listing("nvme", &make)).unwrap_or_default();
    let portals: Vec<Portal> = portal.map(|own| exports.portals().all("nvme", own).collect()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(len);
    let (mut index, mut skip) = (offset / ENTRY_SIZE as u64, (offset % ENTRY_SIZE as u64) as usize);
    while bytes.len() < len {
        let whole = match index {
            0 => header(&names, &portals),
            _ => entry(&names, &portals, index - 1),
        };
        let part = &whole[skip..];
        bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
        (index, skip) = (index + 1, 0);
    }
    bytes
}

fn header(names: &Bytes, portals: &[Portal]) -> Vec<u8> {
    let mut bytes = vec![0; ENTRY_SIZE];
    // GENCTR: another one whenever something else is listed.
    let sum = portals.iter().fold(azekura_base::checksum(names), |sum, portal| {
        azekura_base::checksum_append(sum, portal.address.to_string().as_bytes())
    });
    put_at(&mut bytes, 0, &u64::from(sum.0).to_le_bytes());
    let count = (names.len() / NAME_SIZE * portals.len()) as u64;
    put_at(&mut bytes, 8, &count.to_le_bytes());
    bytes
}

/// The entry of this number: each subsystem has one for each portal.
fn entry(names: &Bytes, portals: &[Portal], index: u64) -> Vec<u8> {
    const TCP: u8 = 3;
    const NVM: u8 = 2;
    /// The host may turn flow control of submission queues off, and a secure channel is not required.
    const TREQ: u8 = 1 << 2 | 2;
    let mut bytes = vec![0; ENTRY_SIZE];
    let place = |index: usize| Some((index / portals.len().max(1), portals.get(index % portals.len().max(1))?));
    let Some((subsystem, portal)) = usize::try_from(index).ok().and_then(place) else { return bytes };
    let at = subsystem.checked_mul(NAME_SIZE);
    let Some(name) = at.and_then(|at| names.get(at..at.checked_add(NAME_SIZE)?)) else { return bytes };
    let family = if portal.address.is_ipv4() { 1 } else { 2 };
    bytes[..4].copy_from_slice(&[TCP, family, NVM, TREQ]);
    // PORTID, CNTLID (one is chosen at Connect), ASQSZ.
    put_at(&mut bytes, 4, &Portal::group(portal.node).to_le_bytes());
    put_at(&mut bytes, 6, &0xffff_u16.to_le_bytes());
    put_at(&mut bytes, 8, &crate::ADMIN_ENTRIES.to_le_bytes());
    put_at(&mut bytes, 32, portal.address.port().to_string().as_bytes());
    put_at(&mut bytes, 256, name);
    put_at(&mut bytes, 512, portal.address.ip().to_string().as_bytes());
    bytes
}
