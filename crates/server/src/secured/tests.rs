//! A client that begins TLS, and such as do not get far.
#![allow(clippy::unwrap_used)]

use super::*;
use azekura_base::{PeerKey, VolumeId};
use azekura_frontend::{Export, Listing, MakeListing, Opening, Request};
use azekura_gateway::Piece;
use azekura_nbd::numbers::{
    CMD_DISC, CMD_READ, CMD_WRITE, IHAVEOPT, OPT_GO, OPT_LIST, OPT_STARTTLS, REP_ACK, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC,
};
use azekura_transport::https::Https;
use azekura_transport::{HANDSHAKE_BYTES_MAX, NodeKey};
use bytes::Bytes;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::sync::LazyLock;

/// One volume for whoever has shaken hands; nobody else is to come here.
struct Volume {
    proved: bool,
}

impl Exports for Volume {
    fn find(&self, name: &str) -> Option<Export> {
        assert!(self.proved, "somebody without TLS has come to the exports");
        (name == "vol1").then(|| Export::new("vol1", VolumeId(1), 1 << 30))
    }

    fn open(&self, name: &str) -> Opening {
        self.find(name).map_or(Opening::Unknown, Opening::Ready)
    }

    fn refusal(&self) -> Option<String> {
        assert!(self.proved, "somebody without TLS has come to the exports");
        None
    }

    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        assert!(self.proved, "somebody without TLS has come to the exports");
        make(&mut [("vol1", "")].into_iter())
    }
}

fn door() -> SecuredDoor {
    static HTTPS: LazyLock<Https> = LazyLock::new(|| Https::new(&NodeKey::generate().unwrap()).unwrap());
    SecuredDoor::new(HTTPS.streams())
}

/// A client's end of TLS with this key, which trusts whomever it meets.
fn config() -> (PeerKey, Arc<ClientConfig>) {
    static KEY: LazyLock<NodeKey> = LazyLock::new(|| NodeKey::generate().unwrap());
    (KEY.name().unwrap(), Https::new(&KEY).unwrap().dialling())
}

/// A node's side of a connection, with all that it has told.
struct Side {
    secured: Secured,
    exports: Volume,
    events: Vec<Event>,
}

impl Side {
    fn new(door: &SecuredDoor) -> Side {
        Side { secured: door.connected(64 << 10), exports: Volume { proved: false }, events: Vec::new() }
    }

    fn poll(&mut self) {
        while let Some(event) = self.secured.poll(&self.exports) {
            match event {
                Event::Proved(_) => self.exports.proved = true,
                Event::Request { tag, request: Request::Read { len, .. }, .. } => {
                    let half = len as usize / 2;
                    let pieces = vec![Piece::Data(Bytes::from(vec![7; half])), Piece::Zero(len as usize - half)];
                    self.secured.reply(tag, Outcome::Read(pieces));
                    continue;
                }
                Event::Request { tag, .. } => {
                    self.secured.reply(tag, Outcome::Done);
                    continue;
                }
                _ => {}
            }
            self.events.push(event);
        }
        if self.secured.wants_room().is_some() {
            self.secured.give_room();
            self.poll();
        }
    }

    /// What the socket takes.
    fn sent(&mut self) -> Vec<u8> {
        let mut pieces = Vec::new();
        self.secured.outbox_mut().take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }

    /// The socket has received this, in pieces of such sizes. What comes to a side that takes no more is lost.
    fn receive(&mut self, bytes: &[u8], cuts: &[usize]) {
        let mut rest = bytes;
        let mut cuts = cuts.iter().cycle();
        self.poll();
        while !rest.is_empty() && self.secured.wants_bytes() {
            let mut fill = self.secured.inbox_mut().take_fill();
            let count = rest.len().min(*cuts.next().unwrap()).min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
            self.secured.inbox_mut().filled(fill, count);
            rest = &rest[count..];
            self.poll();
        }
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [&IHAVEOPT.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn starttls() -> Vec<u8> {
    [&3u32.to_be_bytes()[..], &option(OPT_STARTTLS, &[])].concat()
}

fn go() -> Vec<u8> {
    option(OPT_GO, &[&4u32.to_be_bytes()[..], b"vol1", &0u16.to_be_bytes()].concat())
}

fn request(command: u16, cookie: u64, offset: u64, data: &[u8], length: u32) -> Vec<u8> {
    [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &0u16.to_be_bytes(),
        &command.to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
        data,
    ]
    .concat()
}

/// A client that speaks TLS with a side.
struct Dialogue {
    client: ClientConnection,
    side: Side,
    heard: Vec<u8>,
    cuts: Vec<usize>,
}

impl Dialogue {
    /// It has begun TLS.
    fn begin(door: &SecuredDoor, cuts: &[usize]) -> Dialogue {
        let mut side = Side::new(door);
        side.receive(&starttls(), cuts);
        let said = side.sent();
        assert_eq!(said[said.len() - 8..][..4], REP_ACK.to_be_bytes());
        assert!(side.events.is_empty(), "{:?}", side.events);
        let mut client = ClientConnection::new(config().1, ServerName::try_from("node").unwrap()).unwrap();
        client.set_buffer_limit(None);
        Dialogue { client, side, heard: Vec::new(), cuts: cuts.to_vec() }
    }

    /// Until neither has more to say.
    fn run(&mut self) {
        loop {
            let mut bytes = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut bytes).unwrap();
            }
            self.side.receive(&bytes, &self.cuts);
            let said = self.side.sent();
            let mut rest = said.as_slice();
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                let state = self.client.process_new_packets().unwrap();
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                self.client.reader().read_exact(&mut plain).unwrap();
                self.heard.extend(plain);
            }
            if bytes.is_empty() && said.is_empty() {
                return;
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).unwrap();
        self.run();
    }
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1usize..9, 1usize..300, 1usize..40_000], 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A client reads and writes over TLS, however its bytes are cut up.
    #[test]
    fn a_client_is_served_over_tls(cuts in cuts(), large in 1usize..400_000) {
        let mut dialogue = Dialogue::begin(&door(), &cuts);
        dialogue.run();
        prop_assert_eq!(&dialogue.side.events, &[Event::Proved(Some(config().0))]);
        dialogue.say(&go());
        let opened = Event::Opened { name: "vol1".to_owned() };
        prop_assert_eq!(dialogue.side.events.last(), Some(&opened));
        dialogue.heard.clear();
        let data = vec![3; large];
        dialogue.say(&[request(CMD_WRITE, 1, 0, &data, large as u32), request(CMD_READ, 2, 0, &[], large as u32)].concat());
        let done = |cookie: u64| [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat();
        let expected = [done(1), done(2), vec![7; large / 2], vec![0; large - large / 2]].concat();
        prop_assert!(dialogue.heard == expected);
        dialogue.client.writer().write_all(&request(CMD_DISC, 3, 0, &[], 0)).unwrap();
        dialogue.run();
        prop_assert_eq!(dialogue.side.events.last(), Some(&Event::Closed));
    }

    /// A handshake that is damaged anywhere, or anything else instead of one, comes to no export and ends.
    #[test]
    fn what_is_no_handshake_ends_the_connection(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), 1u8..), 1..6),
        noise in proptest::collection::vec(any::<u8>(), 0..3_000),
        begins in any::<bool>(),
        cuts in cuts(),
    ) {
        let mut dialogue = Dialogue::begin(&door(), &cuts);
        let mut bytes = Vec::new();
        dialogue.client.write_tls(&mut bytes).unwrap();
        for (at, by) in damage {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
        let bytes = if begins { [bytes, noise].concat() } else { noise };
        let Side { secured, .. } = &mut dialogue.side;
        prop_assert!(secured.inbox_mut().memory_bytes() <= HANDSHAKE_BYTES_MAX);
        dialogue.side.receive(&bytes, &cuts);
        let sent = dialogue.side.sent();
        prop_assert!(sent.is_empty() || [20, 21, 22, 23].contains(&sent[0]), "in clear: {sent:?}");
        prop_assert!(!dialogue.side.exports.proved);
        prop_assert!(dialogue.side.secured.inbox_mut().memory_bytes() <= HANDSHAKE_BYTES_MAX);
        for event in &dialogue.side.events {
            prop_assert!(matches!(event, Event::Closed | Event::Violation(_)), "{event:?}");
        }
        // Whatever follows is nobody's, also where it is well-formed.
        let ended = !dialogue.side.events.is_empty();
        let events = dialogue.side.events.len();
        dialogue.side.receive(&[option(OPT_LIST, &[]), go()].concat(), &[usize::MAX]);
        prop_assert!(!ended || dialogue.side.events.len() == events);
    }
}

#[test]
fn a_handshake_that_does_not_end_takes_little() {
    let mut side = Side::new(&door());
    side.receive(&starttls(), &[usize::MAX]);
    side.sent();
    // A record of 16,000 bytes and the beginning of the next one, again and again: of a greeting as long as can be.
    let mut stream = vec![22, 3, 1, 0x3e, 0x80, 1, 0xff, 0xff, 0xff];
    stream.resize(5 + 16_000, 0);
    for _ in 0..20 {
        side.receive(&stream, &[usize::MAX]);
        assert!(side.secured.inbox_mut().memory_bytes() <= HANDSHAKE_BYTES_MAX);
    }
    assert!(matches!(side.events[..], [Event::Violation(_)]), "{:?}", side.events);
}

#[test]
fn who_has_no_key_has_shaken_hands_all_the_same() {
    let https = Https::new(&NodeKey::generate().unwrap()).unwrap();
    let authority = azekura_transport::https::Authority::make("c", now()).unwrap();
    let key = NodeKey::generate().unwrap();
    let own = Https::new(&key).unwrap();
    own.show(&authority.sign(&key, &azekura_transport::https::Reached::default(), &[], now()).unwrap());
    drop(https);
    let trust = azekura_transport::https::Trust::Fingerprint(authority.fingerprint());
    let config = azekura_transport::https::trusting(&trust).unwrap();
    let mut dialogue = Dialogue::begin(&SecuredDoor::new(own.streams()), &[usize::MAX]);
    dialogue.client = ClientConnection::new(config, ServerName::try_from("node").unwrap()).unwrap();
    dialogue.run();
    assert_eq!(dialogue.side.events, [Event::Proved(None)]);
    dialogue.say(&go());
    assert_eq!(dialogue.side.events.len(), 2, "what such a one may is not decided here");
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

#[test]
fn handshakes_are_counted_until_they_end() {
    let door = door();
    let now = Instant::now();
    let begin = |after: u64| door.handshakes.begin(now + Duration::from_secs(after));
    let mut places: Vec<Place> = (0..HANDSHAKES_MAX as u64).map(|at| begin(at * 2).unwrap()).collect();
    let late = 2 * HANDSHAKES_MAX as u64;
    assert_eq!(begin(late).unwrap_err(), TooMany { tell: true });
    assert_eq!(begin(late).unwrap_err(), TooMany { tell: false });
    places.pop();
    places.push(begin(late).unwrap());
    drop(places);
    assert_eq!(door.handshakes.under_way.load(Ordering::Relaxed), 0);
    let many: Vec<_> = (0..HANDSHAKES_A_SECOND).map(|_| drop(begin(late + 9).unwrap())).collect();
    assert_eq!(many.len(), HANDSHAKES_A_SECOND as usize);
    assert_eq!(begin(late + 9).unwrap_err(), TooMany { tell: true });
    begin(late + 10).unwrap();
}

#[test]
fn who_is_one_too_many_is_not_served_in_clear() {
    let door = door();
    let now = Instant::now();
    let _places: Vec<Place> = (0..HANDSHAKES_MAX as u64)
        .map(|at| door.handshakes.begin(now + Duration::from_secs(2 * at)).unwrap())
        .collect();
    let mut side = Side::new(&door);
    side.receive(&starttls(), &[usize::MAX]);
    assert!(matches!(side.events[..], [Event::Violation(_)]), "{:?}", side.events);
    side.receive(&[option(OPT_LIST, &[]), go()].concat(), &[usize::MAX]);
    assert_eq!(side.events.len(), 1);
    // The event loop may ask for more in between, whatever `wants_bytes` says.
    let mut fill = side.secured.inbox_mut().take_fill();
    let bytes = option(OPT_LIST, &[]);
    fill.buf[fill.at..fill.at + bytes.len()].copy_from_slice(&bytes);
    side.secured.inbox_mut().filled(fill, bytes.len());
    side.poll();
    assert_eq!(side.events.len(), 1, "the session believes that it has TLS, and must not be given anything");
}
