//! A server with volumes in memory, a thread for each connection: enough to meet real clients.

use azekura_base::BLOCK_SIZE;
use azekura_frontend::{Export, Exports, Listing, MakeListing};
use azekura_nbd::{Command, ErrorCode, Event, Extent, ReadPiece, Session};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes, and which blocks of them are allocated.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub allocated: Vec<bool>,
}

/// A thin volume in memory.
pub struct Volume {
    pub export: Export,
    memory: Mutex<Memory>,
}

impl Volume {
    pub fn new(export: Export) -> Volume {
        let size = export.size as usize;
        let memory = Memory { bytes: vec![0; size], allocated: vec![false; size.div_ceil(BLOCK_SIZE)] };
        Volume { export, memory: Mutex::new(memory) }
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }
}

impl Memory {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let start = offset as usize;
        self.bytes[start..start + data.len()].copy_from_slice(data);
        self.allocated[start / BLOCK_SIZE..(start + data.len()).div_ceil(BLOCK_SIZE)].fill(true);
    }

    pub fn zero(&mut self, offset: u64, length: u32, punch: bool) {
        let (start, end) = (offset as usize, offset as usize + length as usize);
        self.bytes[start..end].fill(0);
        if punch {
            let (first, last) = (
                start.div_ceil(BLOCK_SIZE),
                if end == self.bytes.len() { end.div_ceil(BLOCK_SIZE) } else { end / BLOCK_SIZE },
            );
            if first < last {
                self.allocated[first..last].fill(false);
            }
        } else {
            self.allocated[start / BLOCK_SIZE..end.div_ceil(BLOCK_SIZE)].fill(true);
        }
    }

    /// Runs of equal allocation in a range: start, end, allocated.
    pub fn runs(&self, offset: u64, length: u32) -> Vec<(usize, usize, bool)> {
        let (mut at, end) = (offset as usize, offset as usize + length as usize);
        let mut runs: Vec<(usize, usize, bool)> = Vec::new();
        while at < end {
            let allocated = self.allocated[at / BLOCK_SIZE];
            let next = ((at / BLOCK_SIZE + 1) * BLOCK_SIZE).min(end);
            match runs.last_mut() {
                Some(last) if last.2 == allocated => last.1 = next,
                _ => runs.push((at, next, allocated)),
            }
            at = next;
        }
        runs
    }
}

#[derive(Clone)]
pub struct Volumes(pub Arc<Vec<Arc<Volume>>>);

impl Exports for Volumes {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut self.0.iter().map(|volume| (&*volume.export.name, &*volume.export.description)))
    }

    fn find(&self, name: &str) -> Option<Export> {
        match (&self.0[..], name) {
            ([only], "") => Some(only.export.clone()),
            (all, _) => all.iter().find(|volume| volume.export.name == name).map(|volume| volume.export.clone()),
        }
    }
}

fn serve(session: &mut Session, volume: &Volume, event: Event) {
    let Event::Request { token, command } = event else { panic!("not a request") };
    let mut memory = volume.memory();
    match command {
        Command::Read { offset, length } => {
            let piece = |(start, end, allocated): (usize, usize, bool)| match allocated {
                true => ReadPiece::Data(Bytes::copy_from_slice(&memory.bytes[start..end])),
                false => ReadPiece::Hole((end - start) as u32),
            };
            let mut pieces: Vec<ReadPiece> = memory.runs(offset, length).into_iter().map(piece).collect();
            session.reply_read(token, &mut pieces);
        }
        Command::Write { offset, data, .. } => {
            assert_eq!(data.as_ptr().align_offset(BLOCK_SIZE), 0);
            memory.write(offset, &data);
            session.reply_done(token);
        }
        Command::Trim { offset, length, .. } => {
            memory.zero(offset, length, true);
            session.reply_done(token);
        }
        Command::WriteZeroes { fast: true, no_hole: true, .. } => {
            session.reply_error(token, ErrorCode::NotSupported, "allocating takes as long as writing");
        }
        Command::WriteZeroes { offset, length, no_hole, .. } => {
            memory.zero(offset, length, !no_hole);
            session.reply_done(token);
        }
        Command::Flush | Command::Cache { .. } => session.reply_done(token),
        Command::BlockStatus { offset, length, .. } => {
            let extent = |(start, end, allocated): (usize, usize, bool)| Extent {
                length: (end - start) as u64,
                hole: !allocated,
                zero: !allocated,
            };
            let extents: Vec<Extent> = memory.runs(offset, length).into_iter().map(extent).collect();
            session.reply_block_status(token, &extents);
        }
    }
}

fn flush(session: &mut Session, socket: &mut impl Write) -> std::io::Result<()> {
    let mut pieces = Vec::new();
    while !session.outbox_mut().is_empty() {
        session.outbox_mut().take(&mut pieces, 64, 4 << 20);
        for piece in pieces.drain(..) {
            socket.write_all(&piece)?;
        }
    }
    Ok(())
}

/// Serves one connection to its end.
fn connection(volumes: &Volumes, mut socket: impl Read + Write) -> std::io::Result<()> {
    let mut session = Session::new();
    let mut opened: Option<Arc<Volume>> = None;
    loop {
        flush(&mut session, &mut socket)?;
        while let Some(event) = session.poll(volumes) {
            match event {
                Event::Opened { name } => opened = volumes.0.iter().find(|v| v.export.name == name).cloned(),
                Event::Closed | Event::Violation(_) => return flush(&mut session, &mut socket),
                request => serve(&mut session, opened.as_ref().unwrap(), request),
            }
            if session.outbox_mut().len() > 1 << 20 {
                flush(&mut session, &mut socket)?;
            }
        }
        flush(&mut session, &mut socket)?;
        if !session.wants_bytes() {
            continue;
        }
        let mut fill = session.inbox_mut().take_fill();
        let count = socket.read(&mut fill.buf[fill.at..])?;
        session.inbox_mut().filled(fill, count);
        if count == 0 {
            return Ok(());
        }
    }
}

/// A running server. Its threads end with the test's process.
pub struct Server {
    pub volumes: Volumes,
    pub socket: PathBuf,
    pub port: u16,
}

impl Server {
    /// Serves `exports` on a unix socket in `folder` and on a TCP port of its own.
    pub fn start(folder: &Path, exports: Vec<Export>) -> Server {
        let volumes = Volumes(Arc::new(exports.into_iter().map(|export| Arc::new(Volume::new(export))).collect()));
        let socket = folder.join("nbd.sock");
        let unix = UnixListener::bind(&socket).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let for_unix = volumes.clone();
        std::thread::spawn(move || {
            for client in unix.incoming() {
                let (volumes, client): (Volumes, UnixStream) = (for_unix.clone(), client.unwrap());
                std::thread::spawn(move || connection(&volumes, client));
            }
        });
        let for_tcp = volumes.clone();
        std::thread::spawn(move || {
            for client in tcp.incoming() {
                let (volumes, client): (Volumes, TcpStream) = (for_tcp.clone(), client.unwrap());
                client.set_nodelay(true).unwrap();
                std::thread::spawn(move || connection(&volumes, client));
            }
        });
        Server { volumes, socket, port }
    }

    pub fn volume(&self, name: &str) -> &Volume {
        self.volumes.0.iter().find(|volume| volume.export.name == name).unwrap()
    }

    /// The NBD URI of an export, over the unix socket.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    /// The NBD URI of an export, over TCP.
    pub fn tcp_uri(&self, name: &str) -> String {
        format!("nbd://127.0.0.1:{}/{name}", self.port)
    }
}
