//! PDUs into a stream of bytes.

use super::fatal::{Terminate, TerminateRequest};
use super::header::{HAS_DATA_DIGEST, HAS_HEADER_DIGEST, Pdu};
use super::{ALIGNMENT_MAX, Digests, HEADER_MAX, Terms, digest, put_at};
use azekura_base::{Outbox, checksum, checksum_append};
use bytes::Bytes;

/// Puts a PDU with its data into the outbox. `terms` are those of who receives it; before there are any, and for the
/// PDUs that begin and end a connection, all are the same.
///
/// # Panics
/// When a PDU has data that can't have any, or none that must, or DATAL says otherwise.
pub fn put(outbox: &mut Outbox, terms: &Terms, pdu: &Pdu, data: &[Bytes]) {
    let (kind, len) = (pdu.kind(), data.iter().map(Bytes::len).sum::<usize>());
    check(pdu, len);
    let size = kind.header_size();
    let digests = if kind.is_bare() { Digests::default() } else { terms.digests };
    let end = size + digests.header_bytes();
    let head = if kind.is_bare() || len == 0 { end } else { terms.data_offset(size) };
    let has_data_digest = digests.data && len > 0;
    let plen = head + len + if has_data_digest { super::DIGEST_SIZE } else { 0 };
    let mut header = pdu.header();
    header[1] |= if digests.header { HAS_HEADER_DIGEST } else { 0 };
    header[1] |= if has_data_digest { HAS_DATA_DIGEST } else { 0 };
    // An offset of data is there where there is data; the PDUs that end a connection have none (PDO is reserved).
    header[3] = if kind.is_bare() || len == 0 { 0 } else { head as u8 };
    put_at(&mut header, 4, &(plen as u32).to_le_bytes());
    outbox.put(&header[..size]);
    if digests.header {
        outbox.put(&digest(&header[..size]));
    }
    outbox.put(&[0; 4 * (ALIGNMENT_MAX as usize + 1)][..head - end]);
    data.iter().for_each(|piece| outbox.put_payload(piece.clone()));
    if has_data_digest {
        let sum = data.iter().fold(checksum(&[]), |sum, piece| checksum_append(sum, piece));
        outbox.put(&sum.0.to_le_bytes());
    }
}

/// Puts a C2HTermReq into the outbox, if the host [is told](Terminate::is_told): nothing follows it (TCP section
/// 3.5.1).
pub fn terminate(outbox: &mut Outbox, terminate: &Terminate) {
    if !terminate.is_told() {
        return;
    }
    let pdu = Pdu::ControllerTerminates(TerminateRequest::from(terminate.fatal));
    let terms = Terms { digests: Digests::default(), alignment: 0, capsule_data_max: 0, data_max: 0 };
    put(outbox, &terms, &pdu, std::slice::from_ref(&terminate.header));
}

fn check(pdu: &Pdu, len: usize) {
    match pdu {
        Pdu::HostData(data) | Pdu::ControllerData(data) => {
            assert!(len > 0 && len == data.len as usize, "{len} bytes for a header that says {}", data.len);
        }
        Pdu::HostTerminates(_) | Pdu::ControllerTerminates(_) => assert!(len <= HEADER_MAX, "a header of {len} bytes"),
        Pdu::Command(_) => {}
        _ => assert_eq!(len, 0, "data with a PDU that has none: {:?}", pdu.kind()),
    }
}
