//! Round trips and throughput over loopback, between two processes with a reactor each; and a device's write rate.
//!
//! `echo_bench` runs everything; `echo_bench device PATH` the device part alone, on a file that it makes at PATH.
//! `LENGTH=n` sets the length of each measurement, `SPIN_US=n` the time that the reactors look before they sleep.
//!
//! A message is a 32-byte header and a payload. Requests carry the payload ("write"), answers carry it ("read"), or
//! both do ("echo"). Processor time is that of both processes (of the one, for the device).

#![allow(clippy::unwrap_used)]

use azekura_base::{BLOCK_SIZE, Inbox, Outbox, PageBuf};
use azekura_reactor::{DeviceOptions, Event, Options, Reactor, Stream};
use bytes::Bytes;
use rustix::process::{Pid, Signal};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const HEADER: usize = 32;

/// One side of a connection. Header: payload length of this message, payload length wanted in the answer (u32 each).
#[derive(Default)]
struct Side {
    inbox: Inbox,
    outbox: Outbox,
    header: Option<(usize, usize)>,
}

impl Stream for Side {
    fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl Side {
    fn put(&mut self, payload: Bytes, wanted: usize) {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(wanted as u32).to_le_bytes());
        self.outbox.put(&header);
        self.outbox.put_payload(payload);
    }

    fn next(&mut self) -> Option<(Bytes, usize)> {
        let (len, wanted) = match self.header {
            Some(header) => header,
            None => {
                let header = self.inbox.peek(HEADER)?;
                let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()) as usize;
                let header = (word(0), word(4));
                self.inbox.consume(HEADER);
                *self.header.insert(header)
            }
        };
        let payload = self.inbox.take_payload(len)?;
        self.header = None;
        Some((payload, wanted))
    }
}

fn options() -> Options {
    Options { spin: Duration::from_micros(number("SPIN_US", 0)), ..Options::default() }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn serve(path: &Path, address: SocketAddr) {
    let mut reactor = Reactor::<Side>::new(options()).unwrap();
    let listener = reactor.listen_tcp(address).unwrap();
    reactor.listen_unix(path).unwrap();
    println!("{}", reactor.local_address(listener).unwrap());
    let answers = PageBuf::zeroed(4 << 20).freeze();
    let mut events = Vec::new();
    loop {
        reactor.wait(None, &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Accepted { conn, .. } => drop(reactor.install(conn, Side::default())),
                Event::Received { conn } => {
                    let side = reactor.stream(conn).unwrap();
                    while let Some((_, wanted)) = side.next() {
                        side.put(answers.slice(..wanted), 0);
                    }
                    reactor.kick(conn);
                }
                _ => {}
            }
        }
    }
}

/// Processor time of a process (0: this one) in seconds, and its voluntary context switches.
fn usage(pid: u32) -> (f64, u64) {
    let folder = if pid == 0 { "/proc/self".to_owned() } else { format!("/proc/{pid}") };
    let run = std::fs::read_to_string(format!("{folder}/schedstat")).unwrap();
    let nanoseconds: f64 = run.split_whitespace().next().unwrap().parse().unwrap();
    let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    (nanoseconds / 1e9, switches.trim().parse().unwrap())
}

enum Target<'a> {
    Tcp(SocketAddr),
    Unix(&'a Path),
}

/// Keeps `depth` requests of `write` bytes with answers of `read` bytes under way.
fn measure(name: &str, target: &Target, server: &Child, depth: usize, write: usize, read: usize) {
    let mut reactor = Reactor::<Side>::new(options()).unwrap();
    let conn = match target {
        Target::Tcp(address) => reactor.connect_tcp(*address).unwrap(),
        Target::Unix(path) => reactor.connect_unix(path).unwrap(),
    };
    let payload = PageBuf::zeroed(write).freeze();
    let mut side = Side::default();
    (0..depth).for_each(|_| side.put(payload.clone(), read));
    assert!(reactor.install(conn, side).is_ok());
    let length = Duration::from_secs(number("LENGTH", 2));
    let begin = Instant::now();
    let before = (usage(0), usage(server.id()));
    let (mut events, mut done, mut turns) = (Vec::new(), 0u64, 0u64);
    while begin.elapsed() < length {
        reactor.wait(None, &mut events).unwrap();
        turns += 1;
        for event in events.drain(..) {
            match event {
                Event::Received { conn } => {
                    let side = reactor.stream(conn).unwrap();
                    while side.next().is_some() {
                        done += 1;
                        side.put(payload.clone(), read);
                    }
                    reactor.kick(conn);
                }
                Event::Sent { .. } | Event::Connected { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let after = (usage(0), usage(server.id()));
    let cpu = (after.0.0 - before.0.0) + (after.1.0 - before.1.0);
    let rate = done as f64 / seconds;
    let mib = rate * (write + read) as f64 / (1 << 20) as f64;
    println!(
        "{name:24} {rate:9.0}/s {mib:8.0} MiB/s {:8.2} us each, cpu {:7.2} us each, {:5.2} turns each, {:5.2} sleeps each",
        seconds * 1e6 / done as f64,
        cpu * 1e6 / done as f64,
        turns as f64 / done as f64,
        (after.0.1 - before.0.1 + after.1.1 - before.1.1) as f64 / done as f64,
    );
}

/// Writes blocks at random places of an allocated file, then of one that has been written before.
fn measure_device(path: &Path) {
    let size = 256u64 << 20;
    let mut reactor = Reactor::<Side>::new(options()).unwrap();
    let device = reactor.open_device(path, DeviceOptions { create: true, size: Some(size) }).unwrap();
    let payload = PageBuf::zeroed(1 << 20).freeze();
    let mut random = 1u64;
    let mut place = |len: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % (size / len as u64) * len as u64
    };
    let mut run = |name: &str, depth: usize, len: usize, durable: bool, write: bool, count: u64| {
        let mut next = 0u64;
        let mut done = 0;
        let mut events = Vec::new();
        let before = usage(0);
        let begin = Instant::now();
        let length = Duration::from_secs(number("LENGTH", 2));
        while done < count && begin.elapsed() < length {
            while next - done < depth as u64 && next < count {
                let offset = if count == u64::MAX { place(len) } else { next * len as u64 };
                if write {
                    reactor.write(device, offset, vec![payload.slice(..len)], durable, next);
                } else {
                    reactor.read(device, offset, len, next);
                }
                next += 1;
            }
            reactor.wait(None, &mut events).unwrap();
            for event in events.drain(..) {
                match event {
                    Event::DeviceWritten { result: Ok(()), .. } | Event::DeviceRead { result: Ok(_), .. } => done += 1,
                    event => panic!("{event:?}"),
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let after = usage(0);
        println!(
            "{name:32} {:9.0}/s {:8.0} MiB/s, cpu {:7.2} us each (loop thread)",
            done as f64 / seconds,
            done as f64 * len as f64 / seconds / (1 << 20) as f64,
            (after.0 - before.0) * 1e6 / done as f64
        );
        while done < next {
            reactor.wait(None, &mut events).unwrap();
            done += events.drain(..).count() as u64;
        }
    };
    run("fresh 128K durable q4", 4, 128 << 10, true, true, (size / 2) >> 17);
    run("fill 1M q8", 8, 1 << 20, false, true, size >> 20);
    run("again 128K durable q4", 4, 128 << 10, true, true, size >> 17);
    for depth in [1, 32, 128] {
        run(&format!("4K durable q{depth}"), depth, BLOCK_SIZE, true, true, u64::MAX);
        run(&format!("4K write q{depth}"), depth, BLOCK_SIZE, false, true, u64::MAX);
        run(&format!("4K read q{depth}"), depth, BLOCK_SIZE, false, false, u64::MAX);
    }
    run("1M read q8", 8, 1 << 20, false, false, u64::MAX);
    run("4M read q8", 8, 4 << 20, false, false, u64::MAX);
    drop(reactor);
    std::fs::remove_file(path).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => {
            let address = arguments.get(3).map_or("127.0.0.1:0", String::as_str);
            return serve(Path::new(&arguments[2]), address.parse().unwrap());
        }
        Some("device") => return measure_device(Path::new(&arguments[2])),
        _ => {}
    }
    let path = PathBuf::from(format!("/tmp/echo_bench.{}", std::process::id()));
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["serve".as_ref(), path.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().parse().unwrap();
    for (kind, target) in [("tcp", Target::Tcp(address)), ("unix", Target::Unix(&path))] {
        let run = |name: &str, depth, write, read| {
            measure(&format!("{kind} {name}"), &target, &server, depth, write, read);
        };
        run("empty q1", 1, 0, 0);
        run("4K write q1", 1, BLOCK_SIZE, 0);
        run("4K read q1", 1, 0, BLOCK_SIZE);
        run("4K write q128", 128, BLOCK_SIZE, 0);
        run("4K read q128", 128, 0, BLOCK_SIZE);
        run("4K echo q128", 128, BLOCK_SIZE, BLOCK_SIZE);
        run("4M write q4", 4, 4 << 20, 0);
        run("4M read q4", 4, 0, 4 << 20);
    }
    let _ = rustix::process::kill_process(Pid::from_child(&server), Signal::KILL);
    let _ = server.wait();
    let _ = std::fs::remove_file(&path);
}
