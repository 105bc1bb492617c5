//! Streams of PDUs, cut into pieces.
#![allow(dead_code, clippy::unwrap_used)]

pub mod host;
pub mod hosts;

use azekura_base::{Inbox, Outbox};
use azekura_nvme::pdu::reader::{Reader, Received, Side};
use azekura_nvme::pdu::writer::put;
use azekura_nvme::pdu::*;
use bytes::Bytes;

pub const DATA_MAX: u32 = 4096;

pub fn terms(digests: Digests, alignment: u8) -> Terms {
    Terms { digests, alignment, capsule_data_max: DATA_MAX, data_max: DATA_MAX }
}

/// Who reads PDUs of this kind.
pub fn side_of(kind: Kind) -> Side {
    if kind.is_from_host() { Side::Controller } else { Side::Host }
}

pub fn bytes_of(outbox: &mut Outbox) -> Vec<u8> {
    let mut pieces = Vec::new();
    outbox.take(&mut pieces, usize::MAX, usize::MAX);
    pieces.concat()
}

pub fn sent(pdus: &[(Pdu, Vec<Bytes>)], terms: &Terms) -> Vec<u8> {
    let mut outbox = Outbox::new();
    pdus.iter().for_each(|(pdu, data)| put(&mut outbox, terms, pdu, data));
    bytes_of(&mut outbox)
}

/// What begins a connection, for who reads on this side.
pub fn beginning(side: Side) -> Vec<u8> {
    let digests = Digests::default();
    let pdu = match side {
        Side::Controller => Pdu::InitializeRequest(InitializeRequest { version: 0, alignment: 0, digests, r2t_max: 0 }),
        Side::Host => {
            Pdu::InitializeResponse(InitializeResponse { version: 0, alignment: 0, digests, data_max: DATA_MAX })
        }
    };
    sent(&[(pdu, Vec::new())], &terms(digests, 0))
}

/// Gives a reader a stream in pieces; `next` says whether there may be more in what has come.
fn feed_from(
    reader: &mut Reader,
    inbox: &mut Inbox,
    stream: &[u8],
    piece: usize,
    next: &mut dyn FnMut(&mut Reader, &mut Inbox) -> Result<bool, Terminate>,
) -> Result<(), Terminate> {
    let mut rest = stream;
    loop {
        while next(reader, inbox)? {}
        if rest.is_empty() {
            return Ok(());
        }
        let mut fill = inbox.take_fill();
        let count = rest.len().min(piece).min(fill.buf.len() - fill.at);
        fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
        inbox.filled(fill, count);
        rest = &rest[count..];
    }
}

/// As [`feed_from`], once both sides have agreed on these terms.
pub fn feed(
    reader: &mut Reader,
    side: Side,
    stream: &[u8],
    piece: usize,
    terms: &Terms,
    next: &mut dyn FnMut(&mut Reader, &mut Inbox) -> Result<bool, Terminate>,
) -> Result<(), Terminate> {
    let mut inbox = Inbox::new();
    feed_from(reader, &mut inbox, &beginning(side), 128, &mut |reader, inbox| Ok(reader.next(inbox)?.is_some()))?;
    reader.agree(*terms);
    feed_from(reader, &mut inbox, stream, piece, next)
}

/// What a reader makes of a stream.
pub fn read(side: Side, stream: &[u8], piece: usize, terms: &Terms) -> (Vec<Received>, Option<Terminate>) {
    let (mut reader, mut read) = (Reader::new(side), Vec::new());
    let end = feed(&mut reader, side, stream, piece, terms, &mut |reader, inbox| {
        Ok(reader.next(inbox)?.map(|received| read.push(received)).is_some())
    });
    (read, end.err())
}

/// What a reader makes of a stream that begins with it.
pub fn read_fresh(side: Side, stream: &[u8], piece: usize) -> (Vec<Received>, Option<Terminate>) {
    let (mut reader, mut read) = (Reader::new(side), Vec::new());
    let end = feed_from(&mut reader, &mut Inbox::new(), stream, piece, &mut |reader, inbox| {
        Ok(reader.next(inbox)?.map(|received| read.push(received)).is_some())
    });
    (read, end.err())
}
