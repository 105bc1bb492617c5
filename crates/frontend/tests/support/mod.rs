//! A protocol of a few lines of text, volumes that only remember what was asked of them, and clients of both.
#![allow(dead_code, clippy::unwrap_used)]

use azekura_base::{Generation, HostName, Inbox, LayerId, Outbox, PeerKey, VolumeId};
use azekura_frontend::{
    Admittance, Attachment, Client, ClientLimits, Clients, Context, Effect, Event, Exports, Frontend, Named, Opening,
    Protocol, Request, ReservationAnswer, ReservationRequest, StreamProtocol, Tag, VolumeUse,
};
use azekura_gateway::{Backend, Keyring, Op, Outcome, Piece, VolumeView};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One line a request: `prove KEY`, `call HOST`, `lie`, `open NAME`, `list`, `take NEXUS NAME`, `read OFFSET LEN`,
/// `write OFFSET TEXT`, `copy FROM TO LEN`, `or OFFSET TEXT`, `flush`, `wait` for all answers,
/// `reservations`, `quit`. Answers are lines, too, in the order in which they come;
/// `ok N`, `data N …` and `failed N …` name the request by its place among all.
#[derive(Default)]
pub struct Lines {
    inbox: Inbox,
    outbox: Outbox,
    /// The line that waits for an export, or for room.
    line: Option<String>,
    requests: u64,
    answers: u64,
    starved: bool,
    wants_room: Option<usize>,
    room: usize,
    /// The last change of the first volume's reservations; `None`: they are not offered.
    seen: Option<u64>,
    /// What it asks for is checked by itself.
    heeds: bool,
}

impl Lines {
    fn next_line(&mut self) -> Option<String> {
        if let Some(line) = self.line.take() {
            return Some(line);
        }
        let bytes = self.inbox.available();
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        self.inbox.consume(end + 1);
        Some(line)
    }

    fn say(&mut self, text: &str) {
        self.outbox.put(format!("{text}\n").as_bytes());
    }

    /// `None` when the line was answered, or waits for room.
    fn request(&mut self, line: &str) -> Option<Event> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let (request, memory_bytes) = match (words[0], number(1)) {
            ("read", Some(offset)) => (Request::Read { offset, len: number(2)? }, number(2)? as usize),
            ("write", Some(offset)) => {
                let text = words.get(2).copied().unwrap_or_default();
                (Request::Write { offset, bytes: Bytes::copy_from_slice(text.as_bytes()) }, text.len())
            }
            ("copy", Some(from)) => (Request::Copy { from, to: number(2)?, len: number(3)? }, 2 * number(3)? as usize),
            ("or", Some(offset)) => {
                let text = words.get(2).copied().unwrap_or_default();
                (Request::Or { offset, bytes: Bytes::copy_from_slice(text.as_bytes()) }, text.len())
            }
            ("wait", _) if self.answers < self.requests => {
                self.line = Some(line.to_owned());
                return None;
            }
            ("wait", _) => return Some(Event::Patience(None)),
            ("flush", _) => (Request::Flush, 0),
            ("reservations", _) => {
                self.requests += 1;
                let (tag, request) = (Tag(self.requests), Box::new(ReservationRequest::Read));
                return Some(Event::Reserves { tag, memory_bytes: 0, request });
            }
            _ => return Some(Event::Violation(format!("the line {line:?} means nothing"))),
        };
        if self.room < memory_bytes {
            self.wants_room = Some(memory_bytes);
            self.line = Some(line.to_owned());
            return None;
        }
        self.room = 0;
        self.requests += 1;
        Some(Event::Request { tag: Tag(self.requests), memory_bytes, request })
    }
}

impl Protocol for Lines {
    fn name() -> &'static str {
        "lines"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        self.seen = exports.reservations(VolumeId(1)).map(|now| now.view.number);
        (self.starved, self.wants_room) = (false, None);
        loop {
            let Some(line) = self.next_line() else {
                self.starved = true;
                return None;
            };
            if line == "quit" {
                return Some(Event::Closed);
            }
            if let Some(key) = line.strip_prefix("prove ") {
                return Some(Event::Proved(key.parse().ok().map(|byte| PeerKey([byte; 32]))));
            }
            if line == "leave" {
                return Some(Event::Leaves);
            }
            if line == "lie" {
                return Some(Event::Mistaken("it lies".to_owned()));
            }
            if let Some(name) = line.strip_prefix("call ") {
                let host = HostName::of_initiator(name);
                match exports.admittance(host.as_ref()) {
                    Admittance::Granted(grant) => return Some(Event::Named(Named { host, grant })),
                    Admittance::Proves(..) => self.say("prove it"),
                    Admittance::Refused => self.say("not you"),
                    Admittance::NotYet => self.say("come again"),
                }
                continue;
            }
            if let Some(why) = exports.refusal() {
                self.say(&why);
                continue;
            }
            if line == "list" {
                let listing = exports.listing("lines", &|all| {
                    Some(Bytes::from(all.map(|(name, _)| name.to_owned()).collect::<Vec<String>>().join(" ")))
                });
                self.say(&String::from_utf8_lossy(&listing.unwrap()));
                continue;
            }
            let taken = line.strip_prefix("take ").and_then(|rest| rest.split_once(' '));
            let Some(name) = taken.map(|(_, name)| name).or(line.strip_prefix("open ")) else {
                return self.request(&line);
            };
            match exports.open(name) {
                Opening::Ready(export) if taken.is_some() && !exports.has_nexus() => {
                    let nexus = taken.unwrap().0.into();
                    self.line = Some(line);
                    return Some(Event::WantsNexus { nexus, export: export.name });
                }
                Opening::Ready(export) => {
                    self.say(&format!("opened {} of {} bytes", export.name, export.size));
                    return Some(Event::Opened { name: export.name });
                }
                Opening::Unknown if exports.may_come(name) => {
                    let name = name.to_owned();
                    self.line = Some(line);
                    return Some(Event::Missing { name });
                }
                Opening::Later(name) => {
                    self.line = Some(line);
                    return Some(Event::Wanted { name });
                }
                Opening::Unknown => self.say("there is no such export"),
                Opening::Refused(why) => self.say(&format!("refused: {why}")),
            }
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        let Tag(number) = tag;
        assert!((1..=self.requests).contains(&number), "there was no request {number}");
        let text = match outcome {
            Outcome::Done => format!("ok {number}"),
            Outcome::Read(pieces) => format!("data {number} {pieces:?}"),
            Outcome::Status(runs) => format!("runs {number} {runs:?}"),
            Outcome::Failed(status) => format!("failed {number} {status}"),
        };
        self.answers += 1;
        self.say(&text);
    }

    fn reserved(&mut self, tag: Tag, answer: ReservationAnswer) {
        let text = format!("reserved {} {answer:?}, seen {:?}", tag.0, self.seen);
        self.say(&text);
    }

    fn heeds_reservations(&self) -> bool {
        self.heeds
    }

    fn wants_room(&self) -> Option<usize> {
        self.wants_room
    }

    fn give_room(&mut self) {
        self.room = self.wants_room.take().unwrap_or(0);
    }
}

impl StreamProtocol for Lines {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn wants_bytes(&self) -> bool {
        self.starved && !self.inbox.is_filling()
    }
}

/// Volumes that only remember what was asked of them.
#[derive(Default)]
pub struct Volumes {
    pub all: BTreeMap<String, Arc<VolumeView>>,
    pub keys: Keyring,
    pub revision: u64,
    /// Volumes that take no more requests.
    pub stuck: BTreeSet<String>,
    pub ended: BTreeSet<(VolumeId, Generation)>,
    /// Requests without an answer.
    pub asked: BTreeMap<u64, (String, Generation, Op)>,
}

impl Volumes {
    pub fn add(&mut self, name: &str, id: u64) {
        let view = VolumeView {
            id: VolumeId(id),
            name: name.to_owned(),
            size: 1 << 30,
            logical_block: azekura_base::LogicalBlock::Bytes512,
            layer: LayerId(id),
            cut: None,
            read_only: name.contains('@'),
            io_timeout: None,
            groups: Arc::from([]),
            group_offset: 0,
            key: None,
            limits: None,
        };
        self.all.insert(name.to_owned(), Arc::new(view));
    }
}

impl Backend for Volumes {
    fn keys(&self) -> &Keyring {
        &self.keys
    }

    fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        &self.all
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn has_room(&self, volume: &str) -> bool {
        !self.stuck.contains(volume)
    }

    fn is_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.ended.contains(&(volume, attachment))
    }

    fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op) {
        let before = self.asked.insert(token, (volume.to_owned(), attachment, op));
        assert!(before.is_none(), "token {token} is used twice");
    }
}

/// The first connection that has no socket.
pub const BRANCHES: u32 = 1000;

#[derive(Default)]
pub struct Sockets(pub BTreeMap<u32, Client>);

impl Clients<u32> for Sockets {
    fn client(&mut self, conn: u32) -> Option<&mut Client> {
        self.0.get_mut(&conn)
    }

    fn branch(&mut self, _: u32, client: Client) -> Option<u32> {
        let conn = self.0.keys().copied().filter(|conn| *conn >= BRANCHES).max().map_or(BRANCHES, |last| last + 1);
        self.0.insert(conn, client);
        Some(conn)
    }

    fn unsent_bytes(&mut self, _: u32) -> usize {
        0
    }
}

/// A front end with its clients.
pub struct Rig {
    pub frontend: Frontend<u32>,
    pub sockets: Sockets,
    pub volumes: Volumes,
    pub now: Duration,
    connections: u32,
}

impl Rig {
    pub fn new(names: &[&str]) -> Rig {
        let mut volumes = Volumes { revision: 1, ..Volumes::default() };
        names.iter().zip(1..).for_each(|(name, id)| volumes.add(name, id));
        let frontend = Frontend::new(ClientLimits::default());
        Rig { frontend, sockets: Sockets::default(), volumes, now: Duration::from_secs(1), connections: 0 }
    }

    pub fn front<T>(&mut self, act: impl FnOnce(&mut Frontend<u32>, &mut Context<'_, u32>) -> T) -> T {
        let mut cx = Context { clients: &mut self.sockets, backend: &mut self.volumes, now: self.now };
        act(&mut self.frontend, &mut cx)
    }

    pub fn connect(&mut self) -> u32 {
        self.connect_speaking(false)
    }

    /// A client whose protocol heeds reservations, or does not.
    pub fn connect_speaking(&mut self, heeds: bool) -> u32 {
        self.connections += 1;
        assert!(self.frontend.connect(self.connections, self.now));
        self.sockets.0.insert(self.connections, Client::new(Box::new(Lines { heeds, ..Lines::default() })));
        self.connections
    }

    /// Somebody of whom a key is asked, and who proves this one.
    pub fn connect_with(&mut self, key: Option<u8>) -> u32 {
        let conn = self.connect();
        self.sockets.0.insert(conn, Client::asked(Box::new(Lines::default())));
        self.say(conn, &format!("prove {}", key.map_or("nothing".to_owned(), |key| key.to_string())));
        conn
    }

    /// A host, that is to say what it is called.
    pub fn connect_host(&mut self) -> u32 {
        let conn = self.connect();
        self.sockets.0.insert(conn, Client::host(Box::new(Lines::default())));
        conn
    }

    /// The client sends lines; the front end takes what it takes.
    pub fn say(&mut self, conn: u32, lines: &str) {
        let inbox = self.sockets.0.get_mut(&conn).unwrap().protocol().inbox_mut();
        let bytes = format!("{lines}\n");
        let mut fill = inbox.take_fill();
        fill.buf[fill.at..fill.at + bytes.len()].copy_from_slice(bytes.as_bytes());
        inbox.filled(fill, bytes.len());
        self.front(|frontend, cx| frontend.pump(conn, cx));
        self.turn();
    }

    /// The volume has other limits from now on.
    pub fn limit(&mut self, name: &str, limits: Option<azekura_base::IoLimits>) {
        let view = self.volumes.all.get_mut(name).unwrap();
        *view = Arc::new(VolumeView { limits, ..(**view).clone() });
        self.front(Frontend::volumes_changed);
        self.turn();
    }

    pub fn turn(&mut self) {
        while self.front(Frontend::admit) {}
        self.front(Frontend::settle);
    }

    /// What the client has been sent since the last time.
    pub fn heard(&mut self, conn: u32) -> String {
        let mut pieces = Vec::new();
        self.sockets.0.get_mut(&conn).unwrap().protocol().outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
        pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
    }

    /// What the front end wants done, but for touching.
    pub fn effects(&mut self) -> Vec<Effect<u32>> {
        let effects = std::iter::from_fn(|| self.frontend.next_effect());
        effects.filter(|effect| !matches!(effect, Effect::Touched(_))).collect()
    }

    /// A branch is closed, as was asked for.
    pub fn branch_closed(&mut self, conn: u32) {
        let client = self.sockets.0.remove(&conn);
        self.front(|frontend, cx| frontend.branch_gone(conn, client, cx));
    }

    pub fn gone(&mut self, conn: u32) {
        self.sockets.0.remove(&conn);
        self.frontend.gone(conn);
    }

    pub fn attached(&mut self, name: &str, id: u64, attachment: u64) {
        let outcome = Ok((VolumeId(id), Generation(attachment)).into());
        self.front(|frontend, cx| frontend.volume_attached(&name.into(), outcome, cx));
        self.turn();
    }

    /// The process has a volume for a host, to read or to write.
    pub fn attached_for(&mut self, which: &VolumeUse, id: u64, attachment: u64, writes: bool) {
        let has = Attachment { volume: VolumeId(id), generation: Generation(attachment), writes };
        self.front(|frontend, cx| frontend.volume_attached(which, Ok(has), cx));
        self.turn();
    }

    /// The volumes answer all that was asked of them, the latest first.
    pub fn answer_all(&mut self) {
        while let Some((token, (_, _, op))) = self.volumes.asked.pop_last() {
            let outcome = match op {
                Op::Read { len, .. } => Outcome::Read(vec![Piece::Zero(len as usize)]),
                Op::Status { len, .. } => Outcome::Status(vec![(len, true)]),
                _ => Outcome::Done,
            };
            self.front(|frontend, cx| frontend.complete(token, outcome, cx));
            self.turn();
        }
    }

    /// A client that has opened a volume, attached as `attachment`.
    pub fn open(&mut self, name: &str, attachment: u64) -> u32 {
        let conn = self.connect();
        self.say(conn, &format!("open {name}"));
        if self.effects().contains(&Effect::Attach(name.into())) {
            let id = self.volumes.all[name].id.0;
            self.attached(name, id, attachment);
        }
        assert_eq!(self.heard(conn), format!("opened {name} of {} bytes\n", 1 << 30));
        conn
    }
}
