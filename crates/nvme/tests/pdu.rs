//! PDUs come out as they went in, cut anywhere, and bytes that are none do no harm.
#![allow(clippy::unwrap_used)]

use crate::support::{DATA_MAX, feed, read, sent, side_of, terms};
use azekura_base::Outbox;
use azekura_nvme::pdu::fatal::TerminateRequest;
use azekura_nvme::pdu::reader::{Reader, Received, Side, Taking};
use azekura_nvme::pdu::writer::put;
use azekura_nvme::pdu::*;
use bytes::Bytes;
use proptest::prelude::*;

fn digests() -> impl Strategy<Value = Digests> {
    any::<(bool, bool)>().prop_map(|(header, data)| Digests { header, data })
}

fn data_header() -> impl Strategy<Value = DataHeader> {
    any::<(u16, u16, u32, bool, bool)>().prop_map(|(command, transfer, offset, is_last, is_success)| DataHeader {
        command,
        transfer,
        offset,
        len: 0,
        is_last: is_last || is_success,
        is_success,
    })
}

fn terminate() -> impl Strategy<Value = TerminateRequest> {
    any::<(u16, u32)>().prop_map(|(status, info)| TerminateRequest { status, info })
}

/// Any PDU of an open connection from this side's peer, with data in pieces.
fn pdu(side: Side) -> impl Strategy<Value = (Pdu, Vec<Bytes>)> {
    let entry = proptest::collection::vec(any::<u8>(), 64);
    let r2t = any::<(u16, u16, u32, u32)>();
    let pdu = (entry, r2t, data_header(), terminate(), 0..4_u8).prop_map(move |(entry, r2t, data, end, which)| {
        let (command, transfer, offset, len) = r2t;
        match (side, which) {
            (Side::Controller, 0 | 1) => Pdu::Command(entry.try_into().unwrap()),
            (Side::Controller, 2) => Pdu::HostData(DataHeader { is_success: false, ..data }),
            (Side::Controller, _) => Pdu::HostTerminates(end),
            (Side::Host, 0) => Pdu::Response(entry[..16].try_into().unwrap()),
            (Side::Host, 1) => Pdu::ControllerData(data),
            (Side::Host, 2) => Pdu::ReadyToTransfer(ReadyToTransfer { command, transfer, offset, len }),
            (Side::Host, _) => Pdu::ControllerTerminates(end),
        }
    });
    let piece = proptest::collection::vec(any::<u8>(), 0..900).prop_map(Bytes::from);
    (pdu, proptest::collection::vec(piece, 0..4)).prop_map(|(mut pdu, mut data)| {
        let has_data = matches!(pdu.kind(), Kind::Command | Kind::HostData | Kind::ControllerData);
        if matches!(pdu.kind(), Kind::HostTerminates | Kind::ControllerTerminates) {
            let header = data.concat();
            data = vec![Bytes::copy_from_slice(&header[..header.len().min(128)])];
        } else if !has_data {
            data.clear();
        }
        if let Pdu::HostData(header) | Pdu::ControllerData(header) = &mut pdu {
            data.push(Bytes::from_static(&[7]));
            header.len = data.concat().len() as u32;
        }
        (pdu, data)
    })
}

fn conversation() -> impl Strategy<Value = (Side, Vec<(Pdu, Vec<Bytes>)>)> {
    prop_oneof![Just(Side::Controller), Just(Side::Host)]
        .prop_flat_map(|side| (Just(side), proptest::collection::vec(pdu(side), 1..6)))
}

proptest! {
    #[test]
    fn what_was_put_is_read((side, pdus) in conversation(), digests in digests(), alignment in 0..32_u8,
        piece in 1..3000_usize) {
        let terms = terms(digests, alignment);
        let (read, end) = read(side, &sent(&pdus, &terms), piece, &terms);
        prop_assert_eq!(end, None);
        let read: Vec<_> = read.into_iter().map(|read| (read.pdu, read.data.to_vec(), read.is_intact)).collect();
        let put: Vec<_> = pdus.iter().map(|(pdu, data)| (*pdu, data.concat(), true)).collect();
        prop_assert_eq!(read, put);
    }

    #[test]
    fn skipped_data_leaves_the_stream_in_step((side, pdus) in conversation(), digests in digests(),
        piece in 1..3000_usize) {
        let terms = terms(digests, 0);
        let stream = sent(&pdus, &terms);
        let (mut reader, mut read) = (Reader::new(side), Vec::new());
        feed(&mut reader, side, &stream, piece, &terms, &mut |reader, inbox| {
            Ok(reader.next_if(inbox, &mut |_, _| Ok(Taking::Skip))?.map(|received| read.push(received)).is_some())
        }).unwrap();
        prop_assert!(read.iter().all(|read| read.is_intact));
        prop_assert!(read.iter().zip(&pdus).all(|(read, (pdu, _))| read.pdu == *pdu));
        prop_assert_eq!(read.len(), pdus.len());
    }

    #[test]
    fn a_flipped_bit_is_noticed((side, pdus) in conversation(), alignment in 0..32_u8, bit in any::<u32>()) {
        // PDUs that end a connection have no digests.
        let has_digests = |pdu: &Pdu| !matches!(pdu.kind(), Kind::HostTerminates | Kind::ControllerTerminates);
        let Some((pdu, data)) = pdus.iter().find(|(pdu, _)| has_digests(pdu)) else { return Ok(()) };
        let terms = terms(Digests { header: true, data: true }, alignment);
        let mut stream = sent(&[(*pdu, data.clone())], &terms);
        let bit = bit as usize % (stream.len() * 8);
        stream[bit / 8] ^= 1 << (bit % 8);
        let (read, end) = read(side, &stream, usize::MAX, &terms);
        // Bytes between the header's digest and data have none. A type that becomes another one ends as something else.
        let head = pdu.kind().header_size() + 4;
        if data.is_empty() || data.concat().is_empty() || bit / 8 < head {
            let is_other = matches!(read.first(), Some(Received { pdu: other, .. }) if other.kind() != pdu.kind());
            prop_assert!(end.is_some() || read.is_empty() || is_other, "{:?}", read);
        } else if bit / 8 >= usize::from(stream[3]) {
            prop_assert!(end.is_none() && read.len() == 1 && !read[0].is_intact);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..1000), digests in digests(),
        alignment in 0..32_u8, kind in 0..10_u8, is_likely in any::<bool>(), plen in 0..2000_u32,
        piece in 1..1000_usize) {
        let (mut bytes, terms) = (bytes, terms(digests, alignment));
        if is_likely && bytes.len() > 8 {
            let size = Kind::of(kind).map_or(24, Kind::header_size);
            bytes[0] = kind;
            bytes[1] = bytes[1] & 0xfc | u8::from(digests.header) | u8::from(digests.data) << 1;
            bytes[2] = size as u8;
            bytes[3] = terms.data_offset(size) as u8;
            bytes[4..8].copy_from_slice(&plen.to_le_bytes());
        }
        for side in [Side::Controller, Side::Host] {
            let whole = read(side, &bytes, usize::MAX, &terms);
            // However the stream is cut, the same is read and the same is wrong.
            prop_assert_eq!(&read(side, &bytes, piece, &terms), &whole);
            prop_assert!(whole.0.iter().all(|read| read.data.len() <= DATA_MAX as usize));
        }
    }

    #[test]
    fn any_beginning_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..4_u8,
        piece in 1..200_usize) {
        let mut bytes = bytes;
        if bytes.len() > 8 {
            (bytes[0], bytes[2]) = (kind, if kind < 2 { 128 } else { 24 });
            bytes[4..8].copy_from_slice(&128_u32.to_le_bytes());
        }
        for side in [Side::Controller, Side::Host] {
            let whole = crate::support::read_fresh(side, &bytes, usize::MAX);
            prop_assert_eq!(&crate::support::read_fresh(side, &bytes, piece), &whole);
        }
    }

    #[test]
    fn initialization_comes_as_it_was_put(version in any::<u16>(), alignment in any::<u8>(), digests in digests(),
        number in any::<u32>()) {
        for pdu in [
            Pdu::InitializeRequest(InitializeRequest { version, alignment, digests, r2t_max: number }),
            Pdu::InitializeResponse(InitializeResponse { version, alignment, digests, data_max: number }),
        ] {
            let mut outbox = Outbox::new();
            put(&mut outbox, &terms(Digests { header: true, data: true }, 31), &pdu, &[]);
            let stream = crate::support::bytes_of(&mut outbox);
            let (read, end) = crate::support::read_fresh(side_of(pdu.kind()), &stream, 5);
            prop_assert_eq!((read.len(), read[0].pdu, end), (1, pdu, None));
        }
    }
}

#[test]
fn memory_is_not_taken_before_data_is_let_in() {
    let terms = Terms { data_max: 16 << 20, ..terms(Digests::default(), 0) };
    let header = DataHeader { command: 1, transfer: 2, offset: 0, len: 16 << 20, is_last: true, is_success: false };
    let stream = sent(&[(Pdu::HostData(header), vec![Bytes::from(vec![1; 16 << 20])])], &terms);
    let mut asked = 0;
    let mut reader = Reader::new(Side::Controller);
    feed(&mut reader, Side::Controller, &stream[..4000], 4000, &terms, &mut |reader, inbox| {
        let next = reader.next_if(inbox, &mut |pdu, _| {
            assert_eq!(*pdu, Pdu::HostData(header));
            asked += 1;
            Ok(Taking::Later)
        })?;
        assert!(next.is_none() && inbox.memory_bytes() < 1 << 20);
        Ok(false)
    })
    .unwrap();
    assert!(asked > 0);
}
