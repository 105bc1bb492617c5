//! Prints what a session costs: nanoseconds a request, on one thread, without sockets or storage.
//!
//! `cargo run --release -p azekura-nbd --example rate`

use azekura_base::VolumeId;
use azekura_frontend::{Export, Exports, Listing, MakeListing};
use azekura_nbd::numbers::{
    CMD_READ, CMD_WRITE, FLAG_C_FIXED_NEWSTYLE, FLAG_C_NO_ZEROES, IHAVEOPT, OPT_EXPORT_NAME, OPT_STRUCTURED_REPLY,
    REQUEST_MAGIC,
};
use azekura_nbd::{Command, Event, ReadPiece, Session};
use bytes::Bytes;
use std::time::{Duration, Instant};

struct One;

impl Exports for One {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut [("vol1", "")].into_iter())
    }

    fn find(&self, _: &str) -> Option<Export> {
        Some(Export::new("vol1", VolumeId(1), 1 << 30))
    }
}

fn feed(session: &mut Session, mut stream: &[u8]) -> usize {
    let mut fill = session.inbox_mut().take_fill();
    let count = stream.len().min(fill.buf.len() - fill.at);
    stream = &stream[..count];
    fill.buf[fill.at..fill.at + count].copy_from_slice(stream);
    session.inbox_mut().filled(fill, count);
    count
}

fn option(option: u32) -> Vec<u8> {
    [&IHAVEOPT.to_be_bytes()[..], &option.to_be_bytes(), &[0; 4]].concat()
}

fn request(command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let (flags, command) = ([0, 0], command.to_be_bytes());
    let magic = REQUEST_MAGIC.to_be_bytes();
    [&magic[..], &flags, &command, &cookie.to_be_bytes(), &offset.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// Time a request that the session takes, over at least `rounds` times the requests in `stream`.
fn measure(structured: bool, stream: &[u8], rounds: u32, data: &Bytes) -> Duration {
    let mut session = Session::new();
    let flags = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes();
    let negotiate = if structured { option(OPT_STRUCTURED_REPLY) } else { Vec::new() };
    feed(&mut session, &[&flags[..], &negotiate, &option(OPT_EXPORT_NAME)].concat());
    assert!(matches!(session.poll(&One), Some(Event::Opened { .. })), "the handshake is over");
    let (mut requests, mut out, mut pieces) = (0, Vec::new(), Vec::new());
    let start = Instant::now();
    for _ in 0..rounds {
        let mut at = 0;
        while at < stream.len() {
            at += feed(&mut session, &stream[at..]);
            while let Some(event) = session.poll(&One) {
                requests += 1;
                let Event::Request { token, command } = event else { return Duration::ZERO };
                match command {
                    Command::Read { length, .. } => {
                        pieces.push(ReadPiece::Data(data.slice(..length as usize)));
                        session.reply_read(token, &mut pieces);
                    }
                    _ => session.reply_done(token),
                }
            }
            while !session.outbox_mut().is_empty() {
                session.outbox_mut().take(&mut out, 1024, 1 << 20);
                out.clear();
            }
        }
    }
    start.elapsed() / requests
}

fn main() {
    let data = Bytes::from(vec![7; 1 << 20]);
    println!("{:<28} {:>12}", "request", "ns each");
    for (length, count, rounds) in [(4096u32, 256u64, 2000), (65_536, 16, 2000), (1 << 20, 4, 500)] {
        let reads: Vec<u8> = (0..count).flat_map(|i| request(CMD_READ, i, i * 65_536, length)).collect();
        let writes: Vec<u8> = (0..count)
            .flat_map(|i| [request(CMD_WRITE, i, i * 65_536, length), data[..length as usize].to_vec()].concat())
            .collect();
        for (name, structured, stream) in
            [("read, simple", false, &reads), ("read, structured", true, &reads), ("write", true, &writes)]
        {
            let each = measure(structured, stream, rounds, &data);
            println!("{:<28} {:>12}", format!("{name}, {} KiB", length / 1024), each.as_nanos());
        }
    }
    println!("Writes include two copies of the data: into the inbox, as a socket makes it, and to aligned pages");
    println!("(large ones are received in place).");
}
