//! The bytes of each PDU, as the figures of TCP section 3.6.2 and the structures of Linux's nvme-tcp.h have them.
#![allow(clippy::unwrap_used)]

use crate::support::{sent, terms};
use azekura_nvme::pdu::fatal::TerminateRequest;
use azekura_nvme::pdu::*;
use bytes::Bytes;

const NONE: Digests = Digests { header: false, data: false };
const BOTH: Digests = Digests { header: true, data: true };

/// The PDU, alone: its bytes begin with these, and are so many.
fn is(pdu: Pdu, data: &'static [u8], terms: &Terms, beginning: &[u8], len: usize) -> Vec<u8> {
    let data = if data.is_empty() { Vec::new() } else { vec![Bytes::from_static(data)] };
    let stream = sent(&[(pdu, data)], terms);
    assert_eq!(&stream[..beginning.len()], beginning, "{:?}", pdu.kind());
    assert_eq!(stream.len(), len, "{:?}", pdu.kind());
    stream
}

#[test]
fn initialization() {
    let terms = terms(BOTH, 7);
    let request = InitializeRequest { version: 0, alignment: 3, digests: BOTH, r2t_max: 0x0102_0304 };
    let bytes = [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 4, 3, 2, 1, 0];
    is(Pdu::InitializeRequest(request), &[], &terms, &bytes, 128);
    let digests = Digests { header: false, data: true };
    let response = InitializeResponse { version: 0, alignment: 1, digests, data_max: 0x0004_0000 };
    let bytes = [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 1, 2, 0, 0, 4, 0, 0];
    is(Pdu::InitializeResponse(response), &[], &terms, &bytes, 128);
}

#[test]
fn ends() {
    let request = TerminateRequest { status: 3, info: 0x0403_0201 };
    let bytes = [2, 0, 24, 0, 28, 0, 0, 0, 3, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 8, 7, 6];
    is(Pdu::HostTerminates(request), &[9, 8, 7, 6], &terms(BOTH, 7), &bytes, 28);
    let bytes = [3, 0, 24, 0, 28, 0, 0, 0, 3, 0, 1, 2, 3, 4, 0];
    is(Pdu::ControllerTerminates(request), &[9, 8, 7, 6], &terms(BOTH, 7), &bytes, 28);
}

#[test]
fn capsules() {
    let bytes = [4, 0, 72, 0, 72, 0, 0, 0, 0x11, 0x11];
    is(Pdu::Command([0x11; 64]), &[], &terms(NONE, 7), &bytes, 72);
    let bytes = [4, 0, 72, 72, 76, 0, 0, 0, 0x11, 0x11];
    is(Pdu::Command([0x11; 64]), b"abcd", &terms(NONE, 0), &bytes, 76);
    // Both digests, and data at a multiple of 32 bytes: header, digest, padding, data, digest.
    let bytes = [4, 3, 72, 96, 109, 0, 0, 0, 0x11, 0x11];
    let stream = is(Pdu::Command([0x11; 64]), b"123456789", &terms(BOTH, 7), &bytes, 109);
    assert_eq!((&stream[76..96], &stream[96..105]), (&[0; 20][..], &b"123456789"[..]));
    // The check value of CRC-32C, its least significant byte first.
    assert_eq!(stream[105..], [0x83, 0x92, 0x06, 0xe3]);
    let bytes = [5, 1, 24, 0, 28, 0, 0, 0, 0x22, 0x22];
    is(Pdu::Response([0x22; 16]), &[], &terms(BOTH, 7), &bytes, 28);
}

#[test]
fn transfers() {
    let r2t = ReadyToTransfer { command: 0x0201, transfer: 0x0403, offset: 0x1000, len: 0x2000 };
    let bytes = [9, 0, 24, 0, 24, 0, 0, 0, 1, 2, 3, 4, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    is(Pdu::ReadyToTransfer(r2t), &[], &terms(NONE, 0), &bytes, 24);
    let data =
        DataHeader { command: 0x0201, transfer: 0x0403, offset: 0x1000, len: 4, is_last: true, is_success: true };
    let bytes = [6, 4, 24, 24, 28, 0, 0, 0, 1, 2, 3, 4, 0, 0x10, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'];
    is(Pdu::HostData(data), b"abcd", &terms(NONE, 0), &bytes, 28);
    let bytes = [7, 15, 24, 28, 36, 0, 0, 0, 1, 2, 3, 4, 0, 0x10, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    is(Pdu::ControllerData(data), b"abcd", &terms(BOTH, 0), &bytes, 36);
}
