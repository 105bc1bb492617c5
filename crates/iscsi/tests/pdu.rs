//! PDUs come out as they went in, and bytes that are none do no harm.
#![allow(clippy::unwrap_used)]

use azekura_base::{Inbox, Outbox};
use azekura_iscsi::pdu::initiator::{LOGIN, LoginRequest, SCSI_COMMAND, ScsiCommand};
use azekura_iscsi::pdu::reader::{BadPdu, Pdu, Reader};
use azekura_iscsi::pdu::target::put;
use azekura_iscsi::pdu::{Bhs, Digests};
use bytes::Bytes;
use proptest::prelude::*;

const DATA_MAX: usize = 4096;

/// What a reader makes of a stream that comes in pieces.
fn read(stream: &[u8], piece: usize, digests: Digests) -> (Vec<Pdu>, Option<BadPdu>) {
    let (mut inbox, mut reader) = (Inbox::new(), Reader::default());
    reader.digests = digests;
    let (mut rest, mut pdus) = (stream, Vec::new());
    loop {
        loop {
            match reader.next(&mut inbox, DATA_MAX) {
                Ok(Some(pdu)) => pdus.push(pdu),
                Ok(None) => break,
                Err(bad) => return (pdus, Some(bad)),
            }
        }
        if rest.is_empty() {
            return (pdus, None);
        }
        let mut fill = inbox.take_fill();
        let count = rest.len().min(piece).min(fill.buf.len() - fill.at);
        fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
        inbox.filled(fill, count);
        rest = &rest[count..];
    }
}

fn sent(pdus: &[(Bhs, Vec<Bytes>)], digests: Digests) -> Vec<u8> {
    let mut outbox = Outbox::new();
    pdus.iter().for_each(|(bhs, data)| put(&mut outbox, digests, *bhs, data));
    let mut pieces = Vec::new();
    outbox.take(&mut pieces, usize::MAX, usize::MAX);
    pieces.concat()
}

fn digests() -> impl Strategy<Value = Digests> {
    any::<(bool, bool)>().prop_map(|(header, data)| Digests { header, data })
}

/// Any header without additional segments.
fn header() -> impl Strategy<Value = Bhs> {
    proptest::collection::vec(any::<u8>(), 48).prop_map(|bytes| {
        let mut bhs = Bhs(bytes.try_into().unwrap());
        bhs.0[4] = 0;
        bhs
    })
}

fn data() -> impl Strategy<Value = Vec<Bytes>> {
    let piece = proptest::collection::vec(any::<u8>(), 0..700).prop_map(Bytes::from);
    proptest::collection::vec(piece, 0..4)
}

proptest! {
    #[test]
    fn what_was_put_is_read(pdus in proptest::collection::vec((header(), data()), 1..6), digests in digests(),
        piece in 1..3000_usize) {
        let (read, bad) = read(&sent(&pdus, digests), piece, digests);
        prop_assert_eq!(bad, None);
        prop_assert_eq!(read.len(), pdus.len());
        for (read, (bhs, data)) in read.iter().zip(&pdus) {
            let mut bhs = *bhs;
            bhs.set_data_bytes(data.concat().len());
            prop_assert_eq!((read.bhs, &read.data[..], read.has_ahs), (bhs, &data.concat()[..], false));
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(bhs in header(), data in data(), bit in any::<u32>()) {
        let digests = Digests { header: true, data: true };
        let mut stream = sent(&[(bhs, data)], digests);
        let bit = bit as usize % (stream.len() * 8);
        stream[bit / 8] ^= 1 << (bit % 8);
        // A length that has grown may leave the reader waiting.
        prop_assert!(read(&stream, usize::MAX, digests).0.is_empty());
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000), digests in digests(),
        is_short in any::<bool>(), piece in 1..2000_usize) {
        let mut bytes = bytes;
        if is_short && bytes.len() > 8 {
            // Additional header segments and a data segment that are there.
            (bytes[4], bytes[5], bytes[6]) = (bytes[4] % 8, 0, bytes[6] % 4);
        }
        let (read, _) = read(&bytes, piece, digests);
        prop_assert!(read.iter().all(|pdu| pdu.data.len() == pdu.bhs.data_bytes() && pdu.data.len() <= DATA_MAX));
    }

    #[test]
    fn headers_have_their_fields(numbers in any::<[u32; 4]>(), cdb in any::<[u8; 16]>(), lun in any::<[u8; 8]>(),
        is_final in any::<bool>(), is_read in any::<bool>(), stages in 0..16_u8, isid in any::<[u8; 6]>()) {
        let [itt, len, cmd_sn, exp_stat_sn] = numbers;
        let (read_bytes, write_bytes) = if is_read { (len, 0) } else { (0, len) };
        let command = ScsiCommand { is_final, read_bytes, write_bytes, lun, itt, cdb };
        let bhs = command.bhs(cmd_sn, exp_stat_sn);
        prop_assert_eq!((ScsiCommand::of(&bhs), bhs.opcode(), bhs.cmd_sn()), (command, SCSI_COMMAND, cmd_sn));
        let login = LoginRequest { transit: is_final, goes_on: is_read, csg: stages >> 2, nsg: stages & 3,
            version_min: lun[0], isid, tsih: len as u16, itt, cmd_sn, exp_stat_sn };
        let bhs = login.bhs();
        prop_assert_eq!((LoginRequest::of(&bhs), bhs.opcode(), bhs.is_immediate()), (login, LOGIN, true));
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_comes() {
    let mut bhs = Bhs::new(SCSI_COMMAND);
    bhs.set_data_bytes(DATA_MAX + 1);
    let refused = read(&bhs.0, usize::MAX, Digests::default());
    assert_eq!(refused, (Vec::new(), Some(BadPdu::TooLong { bytes: DATA_MAX + 1, max: DATA_MAX })));
    bhs.set_data_bytes(0);
    bhs.0[4] = 1;
    let stream = [&bhs.0[..], &[0, 9, 1, 0]].concat();
    assert_eq!(read(&stream, usize::MAX, Digests::default()), (Vec::new(), Some(BadPdu::Ahs)));
}
