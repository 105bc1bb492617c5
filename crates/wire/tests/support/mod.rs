//! Messages as bytes, and back.

use azekura_base::*;
use azekura_wire::*;
use proptest::prelude::*;

/// Feeds `stream` to a decoder in pieces; the messages that come out, or the error that ends them.
pub fn decode(mut stream: &[u8], pieces: &[usize]) -> Result<Vec<Message>, WireError> {
    let (mut inbox, mut decoder, mut out) = (Inbox::new(), Decoder::default(), Vec::new());
    let mut piece = pieces.iter().cycle();
    loop {
        while let Some(message) = decoder.next(&mut inbox)? {
            out.push(message);
        }
        if stream.is_empty() {
            return Ok(out);
        }
        let mut fill = inbox.take_fill();
        let count = (*piece.next().unwrap()).min(stream.len()).min(fill.buf.len() - fill.at);
        fill.buf[fill.at..fill.at + count].copy_from_slice(&stream[..count]);
        stream = &stream[count..];
        inbox.filled(fill, count);
    }
}

pub fn bytes_of(messages: &[Message]) -> Vec<u8> {
    let mut out = Outbox::new();
    messages.iter().for_each(|m| encode(m, &mut out));
    let mut pieces = Vec::new();
    out.take(&mut pieces, usize::MAX, usize::MAX);
    assert!(out.is_empty());
    pieces.concat()
}

/// A greeting of this version.
pub fn hello() -> impl Strategy<Value = Hello> {
    let of = |(node, shard)| Endpoint { node: NodeId(node), shard: Shard(shard) };
    (any::<u128>(), any::<(u32, u8)>(), any::<(u32, u8)>(), any::<u64>()).prop_map(move |(cluster, from, to, n)| {
        Hello { version: VERSION, cluster, from: of(from), to: of(to), incarnation: n, connection: !n }
    })
}

/// A frame of this kind, with a valid checksum.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0u8; HEADER_SIZE];
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[4] = kind;
    frame[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend(body);
    let sum = checksum(&frame);
    frame[16..20].copy_from_slice(&sum.0.to_le_bytes());
    frame
}
