//! Each way in which a PDU can be wrong, and the Fatal Error Status and Information that say so.
#![allow(clippy::unwrap_used)]

use crate::support::{DATA_MAX, beginning, bytes_of, feed, read, read_fresh, sent, terms};
use azekura_base::Outbox;
use azekura_nvme::pdu::reader::{Reader, Side};
use azekura_nvme::pdu::transfers::Transfers;
use azekura_nvme::pdu::*;
use bytes::Bytes;

const BOTH: Digests = Digests { header: true, data: true };
const NONE: Digests = Digests { header: false, data: false };

fn host_data(len: u32) -> (Pdu, Vec<Bytes>) {
    let header = DataHeader { command: 1, transfer: 2, offset: 0, len, is_last: true, is_success: false };
    (Pdu::HostData(header), vec![Bytes::from(vec![9; len as usize])])
}

/// A write of 512 bytes in its capsule.
fn command() -> (Pdu, Vec<Bytes>) {
    (Pdu::Command([1; 64]), vec![Bytes::from(vec![9; 512])])
}

/// What a controller makes of this PDU after these bytes of it were changed. Header digests are put right.
fn wrong(pdu: &(Pdu, Vec<Bytes>), terms: &Terms, changes: &[(usize, u8)]) -> Option<Fatal> {
    let mut stream = sent(std::slice::from_ref(pdu), terms);
    changes.iter().for_each(|(at, byte)| stream[*at] = *byte);
    let size = pdu.0.kind().header_size();
    if terms.digests.header {
        let digest = azekura_base::checksum(&stream[..size]).0.to_le_bytes();
        stream[size..size + 4].copy_from_slice(&digest);
    }
    let (_, end) = read(Side::Controller, &stream, usize::MAX, terms);
    if let Some(end) = &end {
        // It goes back with its sender's header, or with as much of it as was looked at.
        assert!(stream.starts_with(&end.header) && (end.header.len() == size || end.header.len() == 8));
    }
    end.map(|end| end.fatal)
}

#[test]
fn fields_of_the_common_header() {
    for digests in [NONE, BOTH] {
        let terms = terms(digests, 0);
        for pdu in [host_data(512), command()] {
            let at = |at, byte| wrong(&pdu, &terms, &[(at, byte)]);
            assert_eq!(wrong(&pdu, &terms, &[]), None);
            for kind in [8, 10, 0xff, 1, 3, 5, 7, 9] {
                assert_eq!(at(0, kind), Some(Fatal::InvalidField(0)), "type {kind}");
            }
            assert_eq!(at(0, 0), Some(Fatal::Sequence));
            // A digest that is not agreed on, or none where one is.
            let flags = if digests.header { 3 } else { 0 };
            assert_eq!(at(1, flags ^ 1), Some(Fatal::InvalidField(1)));
            assert_eq!(at(1, flags ^ 2), Some(Fatal::InvalidField(1)));
            assert_eq!(at(2, 25), Some(Fatal::InvalidField(2)));
            // Data within the header, or nowhere that data may begin, or behind the end of all.
            for offset in [0, 8, 73, 75] {
                assert_eq!(at(3, offset), Some(Fatal::InvalidField(3)), "PDO {offset}");
            }
            assert_eq!(wrong(&pdu, &terms, &[(4, 20), (5, 0)]), Some(Fatal::InvalidField(4)));
            // Of two wrong fields the first.
            assert_eq!(wrong(&pdu, &terms, &[(2, 25), (3, 1), (4, 20), (5, 0)]), Some(Fatal::InvalidField(2)));
            assert_eq!(wrong(&pdu, &terms, &[(3, 1), (4, 20), (5, 0)]), Some(Fatal::InvalidField(3)));
        }
    }
}

#[test]
fn alignment_is_what_the_controller_has_said() {
    let pdu = host_data(512);
    for alignment in 0..32_u8 {
        let terms = terms(NONE, alignment);
        let bytes = (usize::from(alignment) + 1) * 4;
        let stream = sent(std::slice::from_ref(&pdu), &terms);
        assert_eq!(usize::from(stream[3]), 24_usize.next_multiple_of(bytes));
        let at_next = |offset: u8| {
            let plen = (u32::from(offset) + 512).to_le_bytes();
            wrong(&pdu, &terms, &[(3, offset), (4, plen[0]), (5, plen[1])])
        };
        if alignment > 0 {
            assert_eq!(at_next(stream[3].wrapping_add(4)), Some(Fatal::InvalidField(3)));
        }
    }
}

#[test]
fn lengths() {
    let with = terms(BOTH, 0);
    assert_eq!(wrong(&host_data(DATA_MAX), &with, &[]), None);
    let larger = Terms { data_max: DATA_MAX * 2, capsule_data_max: DATA_MAX * 2, ..with };
    let stream = sent(&[host_data(DATA_MAX + 4)], &larger);
    let (_, end) = read(Side::Controller, &stream[..28], usize::MAX, &with);
    assert_eq!(end.unwrap().fatal, Fatal::LimitExceeded, "refused before it comes");
    let large = (Pdu::Command([1; 64]), vec![Bytes::from(vec![1; DATA_MAX as usize + 4])]);
    let (_, end) = read(Side::Controller, &sent(&[large], &larger), usize::MAX, &with);
    assert_eq!(end.unwrap().fatal, Fatal::InvalidField(4));
    // DATAL is not what comes.
    assert_eq!(wrong(&host_data(512), &with, &[(17, 1)]), Some(Fatal::InvalidField(16)));
    // No data at all.
    let empty = [(4, 28), (5, 0)];
    assert_eq!(wrong(&host_data(512), &with, &empty), Some(Fatal::InvalidField(4)));
    // The last length that there is does not wrap.
    let most = [(4, 0xff), (5, 0xff), (6, 0xff), (7, 0xff)];
    assert_eq!(wrong(&host_data(512), &with, &most), Some(Fatal::LimitExceeded));
    assert_eq!(wrong(&command(), &with, &most), Some(Fatal::InvalidField(4)));
}

#[test]
fn digests() {
    let terms = terms(BOTH, 0);
    let mut stream = sent(&[command(), command()], &terms);
    stream[100] ^= 1;
    let (read_on, end) = read(Side::Controller, &stream, usize::MAX, &terms);
    assert_eq!(read_on.iter().map(|read| read.is_intact).collect::<Vec<_>>(), [false, true], "the connection goes on");
    assert_eq!(end, None);
    stream[20] ^= 1;
    let sent_digest = u32::from_le_bytes(stream[72..76].try_into().unwrap());
    let (_, end) = read(Side::Controller, &stream, usize::MAX, &terms);
    let end = end.unwrap();
    assert_eq!((end.fatal, end.fatal.status(), end.fatal.info()), (Fatal::HeaderDigest(sent_digest), 3, sent_digest));
}

#[test]
fn the_beginning_of_a_connection() {
    let begin = beginning(Side::Controller);
    let (_, end) = read_fresh(Side::Controller, &sent(&[command()], &terms(NONE, 0)), usize::MAX);
    assert_eq!(end.unwrap().fatal, Fatal::Sequence, "a command before all else");
    for (at, fatal) in [(2, 2), (4, 4)] {
        let mut begin = begin.clone();
        begin[at] -= 4;
        let (_, end) = read_fresh(Side::Controller, &begin, usize::MAX);
        assert_eq!(end.unwrap().fatal, Fatal::InvalidField(fatal));
    }
    let request = InitializeRequest { version: 0, alignment: 31, digests: BOTH, r2t_max: 0 };
    let offer = Offer { digests: Digests { header: true, data: false }, alignment: 3, ..Offer::default() };
    let response = request.answer(&offer).unwrap();
    assert_eq!(response, InitializeResponse { version: 0, alignment: 3, digests: offer.digests, data_max: 1 << 20 });
    assert_eq!((response.to_controller(&offer).alignment, response.to_host(&request, 1).alignment), (3, 31));
    assert_eq!(InitializeRequest { version: 1, ..request }.answer(&offer), Err(Fatal::Unsupported(8)));
    assert_eq!(InitializeRequest { alignment: 32, ..request }.answer(&offer), Err(Fatal::InvalidField(10)));
    let small = Offer { data_max: 1, ..offer };
    assert_eq!(request.answer(&small).unwrap().data_max, 4096, "no less may be offered");
}

#[test]
fn data_that_nobody_has_asked_for() {
    let mut transfers = Transfers::new(2);
    let asked = transfers.ask(7, 4096, 8192).unwrap();
    let header = |offset, len, is_last| DataHeader {
        command: 7,
        transfer: asked.transfer,
        offset,
        len,
        is_last,
        is_success: false,
    };
    let check = |header| transfers.check(&header);
    assert_eq!(
        check(DataHeader { transfer: asked.transfer + 1, ..header(4096, 512, false) }),
        Err(Fatal::InvalidField(10))
    );
    assert_eq!(check(DataHeader { command: 8, ..header(4096, 512, false) }), Err(Fatal::InvalidField(8)));
    assert_eq!(check(header(0, 4096, false)), Err(Fatal::OutOfRange));
    assert_eq!(check(header(8192, 8192, true)), Err(Fatal::OutOfRange));
    assert_eq!(check(header(u32::MAX, 4, true)), Err(Fatal::OutOfRange));
    assert_eq!(check(header(8192, 4096, true)), Err(Fatal::Sequence), "with a gap");
    assert_eq!(check(header(4096, 8192, false)), Err(Fatal::InvalidField(1)), "the last does not say so");
    assert_eq!(check(header(4096, 4096, true)), Err(Fatal::InvalidField(1)), "one that is not the last does");
    assert_eq!(transfers.came(&header(4096, 4096, false)), Ok(false));
    assert_eq!(transfers.came(&header(4096, 4096, false)), Err(Fatal::Sequence), "twice");
    assert_eq!(transfers.came(&header(8192, 4096, true)), Ok(true));
    assert_eq!(transfers.came(&header(8192, 4096, true)), Err(Fatal::InvalidField(10)), "after its end");
    // As many as there may be, each with a name of its own.
    let (one, two) = (transfers.ask(1, 0, 4).unwrap(), transfers.ask(1, 4, 4).unwrap());
    assert!(one.transfer != two.transfer && one.transfer != asked.transfer);
    assert_eq!((transfers.ask(1, 8, 4), transfers.len()), (None, 2));
    assert_eq!(Transfers::new(1).ask(1, u32::MAX, 2), None);
    assert_eq!(Transfers::new(1).ask(1, 0, 0), None);
}

#[test]
fn what_is_wrong_with_a_transfer_comes_out_of_the_reader() {
    let (terms, transfers) = (terms(BOTH, 0), Transfers::new(1));
    let mut reader = Reader::new(Side::Controller);
    let end = feed(&mut reader, Side::Controller, &sent(&[host_data(512)], &terms), 7, &terms, &mut |reader, inbox| {
        let next = reader.next_if(inbox, &mut |pdu, _| match pdu {
            Pdu::HostData(header) => transfers.check(header).map(|()| reader::Taking::Take),
            _ => Ok(reader::Taking::Take),
        });
        Ok(next?.is_some())
    });
    let end = end.unwrap_err();
    assert_eq!((end.fatal, end.header.len()), (Fatal::InvalidField(10), 24));
    // The host hears of it, with its own header.
    let mut outbox = Outbox::new();
    writer::terminate(&mut outbox, &end);
    let stream = bytes_of(&mut outbox);
    let (read, _) = read(Side::Host, &stream, usize::MAX, &terms);
    let request = fatal::TerminateRequest { status: 1, info: 10 };
    assert_eq!((read[0].pdu, &read[0].data), (Pdu::ControllerTerminates(request), &end.header));
}

#[test]
fn a_wrong_word_that_a_connection_ends_is_not_answered() {
    let terms = terms(NONE, 0);
    let request = fatal::TerminateRequest { status: 1, info: 0 };
    let mut stream = sent(&[(Pdu::HostTerminates(request), vec![Bytes::from(vec![0; 128])])], &terms);
    assert_eq!(read(Side::Controller, &stream, 9, &terms).1, None);
    // Before anything is agreed on, too.
    assert_eq!(read_fresh(Side::Controller, &stream, 9).1, None);
    stream[4] = 153;
    let end = read(Side::Controller, &stream, 9, &terms).1.unwrap();
    let mut outbox = Outbox::new();
    writer::terminate(&mut outbox, &end);
    assert!(end.fatal == Fatal::InvalidField(4) && outbox.is_empty());
}

/// SUCCESS ends a command, so no more of its data may follow (TCP section 3.6.2.9).
#[test]
fn a_command_ends_with_its_last_data_only() {
    let terms = terms(NONE, 0);
    let header = DataHeader { command: 1, transfer: 0, offset: 0, len: 4, is_last: true, is_success: true };
    let mut stream = sent(&[(Pdu::ControllerData(header), vec![Bytes::from_static(b"abcd")])], &terms);
    assert_eq!(read(Side::Host, &stream, 9, &terms).1, None);
    stream[1] &= !4;
    assert_eq!(read(Side::Host, &stream, 9, &terms).1.unwrap().fatal, Fatal::InvalidField(1));
}
