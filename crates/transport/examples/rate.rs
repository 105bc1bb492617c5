//! What TLS costs: `cargo run --release -p azekura-transport --example rate`. One thread seals and opens, as a node
//! that talks to itself would; either end has about one half of that.
#![allow(clippy::unwrap_used)]

use azekura_base::{Inbox, Outbox};
use azekura_transport::{Channel, Credentials, NodeKey, Opened};
use bytes::Bytes;
use std::time::Instant;

/// Bytes of each size in all.
const BYTES: usize = 512 << 20;
const HANDSHAKES: u32 = 500;

struct End(Channel, Outbox, Inbox, usize);

fn carry(from: &mut End, to: &mut End) {
    from.0.seal(&mut from.1, 0).unwrap();
    let mut pieces = Vec::new();
    from.0.outbox(&mut from.1).take(&mut pieces, usize::MAX, usize::MAX);
    for mut piece in pieces {
        while !piece.is_empty() {
            let inbox = to.0.inbox(&mut to.2);
            let mut fill = inbox.take_fill();
            let count = piece.len().min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&piece.split_to(count));
            inbox.filled(fill, count);
            if piece.is_empty() || inbox.available().len() > Inbox::PEEK_MAX {
                open(to);
            }
        }
    }
}

fn open(end: &mut End) {
    loop {
        let opened = end.0.open(&mut end.2).unwrap();
        let count = end.2.available().len();
        end.3 += count;
        end.2.consume(count);
        if opened != Opened::Part {
            return;
        }
    }
}

fn pair(credentials: &Credentials) -> (End, End) {
    let end = |channel| End(channel, Outbox::new(), Inbox::new(), 0);
    let (mut client, mut server) = (end(credentials.connect().unwrap()), end(credentials.accept().unwrap()));
    for _ in 0..2 {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    assert!(client.0.peer().is_some() && server.0.peer().is_some());
    (client, server)
}

fn main() {
    let credentials = Credentials::new(&NodeKey::generate().unwrap()).unwrap();
    let begin = Instant::now();
    for _ in 0..HANDSHAKES {
        pair(&credentials);
    }
    let each = begin.elapsed().as_secs_f64() * 1e3 / f64::from(HANDSHAKES);
    println!("handshake, both ends: {each:.2} ms");
    let (mut client, mut server) = pair(&credentials);
    for (name, size) in [("64 B", 64), ("4 KiB", 4 << 10), ("4 MiB", 4 << 20)] {
        let count = (BYTES / size).min(1 << 19);
        let payload = Bytes::from(vec![7; size]);
        server.3 = 0;
        let begin = Instant::now();
        for _ in 0..count {
            client.1.put_payload(payload.clone());
            while client.0.unsent_bytes(&client.1) > 0 {
                carry(&mut client, &mut server);
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(server.3, count * size);
        let rate = (count * size) as f64 / seconds / 1e6;
        println!("{name}: {rate:.0} MB/s sealed and opened, {:.0} ns a message", seconds * 1e9 / count as f64);
    }
}
