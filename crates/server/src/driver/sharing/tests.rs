//! A client that shares memory with a shard, and a protocol of one mailbox for it.

#![allow(clippy::unwrap_used)]

use crate::driver::clients::Share;
use crate::driver::commands::Command;
use crate::driver::dataplane::{ClientsListener, DataPlane, Listeners, Membership};
use crate::driver::messages::{Handle, Handles, Reports};
use crate::driver::process_fixture::{CHUNK, CLUSTER, Control, NAME, NODE, PATIENCE, credentials, device, view};
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use azekura_base::{Endpoint, Inbox, Outbox, PageBuf, Shard, SharedMemory, Transport};
use azekura_frontend::{ClientLimits, Event, Exports, Opening, Protocol, Request, Sharing, StreamProtocol, Tag, Wish};
use azekura_gateway::{Outcome, Piece};
use azekura_node::{DEVICE_TIMEOUT, Identity};
use azekura_reactor::{MappedMemory, Options, Reactor};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::num::NonZeroU8;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::{mpsc as tokio_mpsc, oneshot};

/// Places in the memory: the number of the last request, that of the last answer, and the request.
const ASKED: usize = 0;
const ANSWERED: usize = 4;
const IS_WRITE: usize = 8;
const BLOCK: usize = 12;
const LEN: usize = 16;
const FAILED: usize = 20;
/// Where the data is.
const DATA: usize = 4096;
const BLOCK_BYTES: usize = 4096;
const MEMORY_BYTES: usize = DATA + (1 << 20);
/// What the memory and the eventfds are called between this protocol and the event loop.
const ONE: u32 = 0;

/// `open NAME` comes as a line, with three file descriptors: memory, an eventfd that the client writes to when it has
/// asked for something, and one that it waits for. The answer is a line as well; then all goes through the memory.
#[derive(Default)]
struct Mailbox {
    inbox: Inbox,
    outbox: Outbox,
    descriptors: VecDeque<OwnedFd>,
    wishes: VecDeque<Wish>,
    name: Option<String>,
    memory: Option<Box<dyn SharedMemory>>,
    trouble: Option<String>,
    open: bool,
    taken: u32,
    wants_room: Option<usize>,
    has_room: bool,
    starved: bool,
}

impl Mailbox {
    fn take_line(&mut self) {
        let bytes = self.inbox.available();
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return self.starved = true };
        self.name = String::from_utf8_lossy(&bytes[..end]).strip_prefix("open ").map(str::to_owned);
        self.inbox.consume(end + 1);
        let mut next = || self.descriptors.pop_front();
        match (next(), next(), next()) {
            (Some(file), Some(kick), Some(call)) => self.wishes.extend([
                Wish::Map { region: ONE, file, offset: 0, len: MEMORY_BYTES },
                Wish::Hear { queue: ONE, eventfd: kick },
                Wish::Keep { queue: ONE, eventfd: call },
            ]),
            _ => self.trouble = Some("three file descriptors are needed".into()),
        }
    }

    fn open(&mut self, exports: &dyn Exports) -> Option<Event> {
        match exports.open(self.name.as_deref().unwrap_or_default()) {
            Opening::Ready(export) => {
                self.open = true;
                self.outbox.put(b"opened\n");
                Some(Event::Opened { name: export.name })
            }
            Opening::Later(name) => Some(Event::Wanted { name }),
            other => panic!("unexpected {other:?}"),
        }
    }

    /// The request in the memory. Whatever the client writes there now, what counts is what was read first.
    fn take_request(&mut self) -> Option<Event> {
        let memory = self.memory.as_ref()?;
        let asked = memory.load(ASKED).filter(|asked| *asked != self.taken)?;
        let [is_write, block, len] = [IS_WRITE, BLOCK, LEN].map(|at| memory.load(at).unwrap_or(0));
        let (offset, memory_bytes) = (u64::from(block) * BLOCK_BYTES as u64, len as usize);
        if !self.has_room {
            self.wants_room = Some(memory_bytes);
            return None;
        }
        self.has_room = false;
        self.taken = asked;
        let request = if is_write == 0 {
            Request::Read { offset, len: len.into() }
        } else {
            let mut pages = PageBuf::new(memory_bytes);
            if memory.read(DATA, &mut pages).is_none() {
                return Some(Event::Violation("the data would be outside of the memory".into()));
            }
            Request::Write { offset, bytes: pages.freeze() }
        };
        Some(Event::Request { tag: Tag(asked.into()), memory_bytes, request })
    }
}

impl Protocol for Mailbox {
    fn name() -> &'static str {
        "mailbox"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        (self.starved, self.wants_room) = (false, None);
        if self.name.is_none() {
            self.take_line();
        }
        if let Some(trouble) = self.trouble.take() {
            self.outbox.put(format!("refused: {trouble}\n").as_bytes());
            return Some(Event::Closed);
        }
        match (self.memory.is_some(), self.open) {
            (false, _) => None,
            (true, false) => self.open(exports),
            (true, true) => self.take_request(),
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        let memory = self.memory.as_ref().expect("a request came through it");
        let mut at = DATA;
        let mut put = |bytes: &[u8]| {
            memory.write(at, bytes).expect("it was asked for so much");
            at += bytes.len();
        };
        match &outcome {
            Outcome::Read(pieces) => pieces.iter().for_each(|piece| match piece {
                Piece::Data(bytes) => put(bytes),
                Piece::Zero(len) => put(&vec![0; *len]),
            }),
            Outcome::Done | Outcome::Failed(_) => {}
            Outcome::Status(_) => panic!("nobody asks for that"),
        }
        memory.store(FAILED, matches!(outcome, Outcome::Failed(_)).into());
        memory.store(ANSWERED, tag.0 as u32);
        self.wishes.push_back(Wish::Ring { queue: ONE });
    }

    fn wants_room(&self) -> Option<usize> {
        self.wants_room
    }

    fn give_room(&mut self) {
        self.has_room = true;
    }
}

impl StreamProtocol for Mailbox {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn wants_bytes(&self) -> bool {
        !self.inbox.is_filling()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }
}

impl Sharing for Mailbox {
    fn descriptors(&mut self) -> &mut VecDeque<OwnedFd> {
        &mut self.descriptors
    }

    fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    fn mapped(&mut self, _: u32, memory: Result<Box<dyn SharedMemory>, String>) {
        match memory {
            Ok(memory) => self.memory = Some(memory),
            Err(why) => self.trouble = Some(why),
        }
    }

    fn rung(&mut self, _: u32) {}

    fn refused(&mut self, _: u32, why: String) {
        self.trouble = Some(why);
    }
}

/// The other side.
struct Client {
    lines: BufReader<UnixStream>,
    memory: MappedMemory,
    kick: OwnedFd,
    call: OwnedFd,
    asked: u32,
}

fn memory_file(seals: SealFlags) -> OwnedFd {
    let file = memfd_create("mailbox", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, MEMORY_BYTES as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Sends a line with file descriptors.
fn say(stream: &UnixStream, line: &str, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let sent = sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, line.len());
}

fn connect(socket: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn line(lines: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

impl Client {
    fn open(socket: &Path) -> Client {
        let mut lines = connect(socket);
        let file = memory_file(SealFlags::SHRINK);
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (kick, call) = (bell(), bell());
        say(lines.get_ref(), &format!("open {NAME}\n"), &[file.as_fd(), kick.as_fd(), call.as_fd()]);
        assert_eq!(line(&mut lines), "opened\n");
        Client { lines, memory: MappedMemory::new(&file, 0, MEMORY_BYTES).unwrap(), kick, call, asked: 0 }
    }

    /// Asks, wakes the shard, and sleeps until the shard wakes this thread.
    fn ask(&mut self, is_write: bool, block: u32, len: usize) {
        self.asked += 1;
        for (at, number) in [(IS_WRITE, is_write.into()), (BLOCK, block), (LEN, len as u32), (ASKED, self.asked)] {
            self.memory.store(at, number).unwrap();
        }
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
        while self.memory.load(ANSWERED) != Some(self.asked) {
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&patience)).unwrap();
            assert_eq!(ready, 1, "nobody rings");
            rustix::io::read(&self.call, &mut [0; 8]).unwrap();
        }
        assert_eq!(self.memory.load(FAILED), Some(0));
    }

    fn write(&mut self, block: u32, data: &[u8]) {
        self.memory.write(DATA, data).unwrap();
        self.ask(true, block, data.len());
    }

    fn read(&mut self, block: u32, len: usize) -> Vec<u8> {
        self.memory.write(DATA, &vec![0xee; len]).unwrap();
        self.ask(false, block, len);
        let mut data = vec![0; len];
        self.memory.read(DATA, &mut data).unwrap();
        data
    }
}

/// A node of one shard, with a listener for mailboxes.
struct Node {
    handle: Handle,
    thread: JoinHandle<()>,
    control: tokio::task::JoinHandle<()>,
}

impl Node {
    fn start(folder: &Path, socket: &Path) -> Node {
        let (sender, commands) = mpsc::channel();
        let (told, opened) = mpsc::channel();
        let (report, reports) = tokio_mpsc::unbounded_channel();
        let (socket, device) = (socket.to_owned(), device(folder, 1));
        let work = move || {
            let mut reactor = Reactor::<Conn>::new(Options::default()).unwrap();
            let listener = reactor.listen_unix(&socket).unwrap();
            let speak: Speak = Arc::new(|_, _| azekura_frontend::Client::new(Box::new(Mailbox::default())));
            let clients = vec![ClientsListener { listener, speak, deals: false }];
            let handle = Handle::new(sender, reactor.waker());
            told.send(handle.clone()).unwrap();
            let endpoint = Endpoint { node: NODE, shard: Shard(0) };
            let membership = Membership {
                identity: Identity { cluster: CLUSTER, endpoint, incarnation: 1 },
                devices: vec![device],
                credentials: credentials(),
                transport: Transport::Plain,
                device_timeout: DEVICE_TIMEOUT,
                reports: Reports::of(Shard(0), report),
                shards: Handles::new(vec![handle]),
            };
            let share = Share::of(ClientLimits::default(), NonZeroU8::MIN);
            let listeners = Listeners { clients, ..Listeners::default() };
            DataPlane::new(reactor, commands, listeners, share, membership).run().unwrap();
        };
        let thread = std::thread::spawn(work);
        let handle = opened.recv().unwrap();
        let shards = Handles::new(vec![handle.clone()]);
        let control = Control { view: view("127.0.0.1:1".parse().unwrap(), 1), shards };
        let control = tokio::spawn(control.run(reports));
        Node { handle, thread, control }
    }

    async fn stop(self) {
        let (stop, stopped) = oneshot::channel();
        self.handle.send(Command::Stop(stop));
        stopped.await.unwrap();
        self.thread.join().unwrap();
        self.control.abort();
    }
}

#[tokio::test]
async fn requests_go_through_memory_that_client_and_shard_share() {
    let folder = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let short = tempfile::tempdir().unwrap();
    let socket = short.path().join("mailbox");
    let node = Node::start(folder.path(), &socket);
    let work = move || {
        let mut clients = [Client::open(&socket), Client::open(&socket)];
        let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
        for round in 0..20u32 {
            let (block, len) = (round * (CHUNK / BLOCK_BYTES as u64) as u32 / 8, 1 + round as usize * 50_000);
            clients[round as usize % 2].write(block, &data[..len]);
            assert!(clients[(round as usize + 1) % 2].read(block, len) == data[..len], "round {round}");
        }
        refusals(&socket);
        // The shard is there after all of that, for who was there before.
        assert!(clients[0].read(0, 1) == data[..1]);
        let Client { lines, memory, kick, .. } = &mut clients[1];
        memory.store(IS_WRITE, 1).unwrap();
        memory.store(LEN, 2 << 20).unwrap();
        memory.store(ASKED, 77).unwrap();
        rustix::io::write(&*kick, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(line(lines), "", "a request with data outside of the memory");
    };
    tokio::task::spawn_blocking(work).await.unwrap();
    node.stop().await;
}

/// Clients that hand over what would be a danger to the shard.
fn refusals(socket: &Path) {
    let (unsealed, sealed) = (memory_file(SealFlags::GROW), memory_file(SealFlags::SHRINK));
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let usual: OwnedFd = tempfile::tempfile().unwrap().into();
    let handed = [
        (vec![&unsealed, &bell, &bell], "refused: the memory may be made shorter"),
        (vec![&usual, &bell, &bell], "refused: the memory is no memory file"),
        (vec![&sealed, &usual, &bell], "refused: no eventfd"),
        (vec![&sealed, &bell, &usual], "refused: no eventfd"),
        (vec![&sealed, &bell], "refused: three file descriptors"),
        (vec![&bell; 20], ""),
    ];
    for (descriptors, expected) in handed {
        let mut lines = connect(socket);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.into_iter().map(AsFd::as_fd).collect();
        say(lines.get_ref(), &format!("open {NAME}\n"), &descriptors);
        let answer = line(&mut lines);
        assert!(
            answer.starts_with(expected) && answer.is_empty() == expected.is_empty(),
            "{answer:?}, not {expected:?}"
        );
    }
    // Many descriptors that nobody takes.
    let lines = connect(socket);
    let four = [bell.as_fd(); 4];
    let ends = (0..1000).any(|_| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&four)));
        sendmsg(lines.get_ref(), &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).is_err()
    });
    assert!(ends, "a thousand times four descriptors are kept");
    let mut stream = lines.into_inner();
    assert!(stream.write_all(b"x").is_err());
}
