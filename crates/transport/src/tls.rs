//! A channel with keys, over rustls' unbuffered interface.

use crate::channel::Opened;
use crate::verifier::peer_key;
use crate::{ChannelError, PROTOCOL};
use azekura_base::{Inbox, Outbox, PageBuf, PeerKey};
use bytes::{Buf, Bytes, BytesMut};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ClientConfig, CommonState, ServerConfig};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A peer that has sent so many bytes and has not ended its handshake is cut off.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the stream in one record at the most (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// What a record has besides: header, type and tag.
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
/// Small pieces are gathered up to so many bytes: with what a record has besides they fill 16 KiB.
const GATHERED_BYTES: usize = RECORD_BYTES - RECORD_OVERHEAD;
/// Bytes of the stream that are encrypted in one go: four records of 64 KiB in all.
const RUN_BYTES: usize = 4 * (RECORD_BYTES - RECORD_OVERHEAD);
/// What is sealed into no more than this has no buffer of its own: the outbox copies that much at the most.
const SMALL_SEALED: usize = 512;
/// [`Tls::open`] stops after so many bytes, so that the protocol's inbox has room for what follows.
const OPENED_MAX: usize = 64 << 10;

/// What the other end has to do beside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Say that it speaks what nodes speak, and prove a key.
    Node,
    /// Nothing. A key that it proves is told.
    Anybody,
}

/// Which end it is.
enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl End {
    fn state(&self) -> &CommonState {
        match self {
            End::Client(client) => client,
            End::Server(server) => server,
        }
    }
}

/// See [`crate::Channel`].
pub(crate) struct Tls {
    end: End,
    /// What came from the socket; decrypted in place.
    pub(crate) inbox: Inbox,
    /// What goes to the socket.
    pub(crate) outbox: Outbox,
    opened: Decrypted,
    waiting: Waiting,
    terms: Terms,
    /// The handshake has ended.
    stands: bool,
    peer: Option<PeerKey>,
    /// Bytes of the inbox that had come before TLS began.
    before: u64,
    /// What is at the front of the inbox is a whole record, which rustls remembers by its place: the beginning of a
    /// message whose rest is still to come. rustls must not be asked while these bytes can't be shown to it.
    remembered: bool,
    /// The first call of the client has begun the handshake.
    begun: bool,
    ended: bool,
    failed: Option<ChannelError>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("stands", &self.stands)
            .field("peer", &self.peer)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Bytes that were decrypted and are not with the protocol yet.
#[derive(Default)]
struct Decrypted(BytesMut);

impl Decrypted {
    /// Appends at most so many to `own`; how many there were.
    fn feed(&mut self, own: &mut Inbox, most: usize) -> usize {
        let count = self.0.len().min(most);
        append(own, &self.0[..count]);
        self.0.advance(count);
        count
    }
}

/// Appends these bytes to `own`, as if a socket had brought them.
fn append(own: &mut Inbox, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let mut fill = own.take_fill();
        let count = bytes.len().min(fill.buf.len() - fill.at);
        let (now, rest) = bytes.split_at(count);
        fill.buf[fill.at..fill.at + count].copy_from_slice(now);
        own.filled(fill, count);
        bytes = rest;
    }
}

/// What is to be encrypted next.
#[derive(Default)]
struct Waiting {
    /// The rest of a large piece.
    piece: Bytes,
    /// Small pieces that go into one record.
    gathered: BytesMut,
}

impl Waiting {
    fn len(&self) -> usize {
        self.piece.len() + self.gathered.len()
    }

    /// The next bytes, in the order in which `own` gives them: a part of a large piece, or small pieces together.
    fn next(&mut self, own: &mut Outbox, pieces: &mut Vec<Bytes>) -> Bytes {
        while self.gathered.len() < GATHERED_BYTES {
            if self.piece.is_empty() {
                pieces.clear();
                own.take(pieces, 1, usize::MAX);
                match pieces.pop() {
                    Some(piece) => self.piece = piece,
                    None => break,
                }
            }
            if self.piece.len() >= GATHERED_BYTES {
                if self.gathered.is_empty() {
                    return self.piece.split_to(self.piece.len().min(RUN_BYTES));
                }
                break;
            }
            let count = self.piece.len().min(GATHERED_BYTES - self.gathered.len());
            self.gathered.extend_from_slice(&self.piece[..count]);
            self.piece.advance(count);
        }
        self.gathered.split().freeze()
    }
}

/// What is to be done with what is decrypted, and when all of it is.
enum Job<'a> {
    Nothing,
    /// One record goes to the protocol, as far as there is room for so many bytes.
    Open(&'a mut Inbox, &'a mut usize),
    /// Until so many bytes are sealed.
    Seal(&'a mut Outbox, usize),
    Close,
}

/// What a status of rustls has led to.
enum Step {
    /// Ask again.
    Again,
    /// Nothing more can be done until something arrives.
    Wait,
}

/// The parts of a [`Tls`] that a status of rustls is handled with.
struct Parts<'a> {
    outbox: &'a mut Outbox,
    opened: &'a mut Decrypted,
    waiting: &'a mut Waiting,
    ended: &'a mut bool,
    job: Job<'a>,
    /// Something was decrypted.
    decrypted: bool,
}

impl Tls {
    pub(crate) fn client(config: Arc<ClientConfig>) -> Result<Tls, ChannelError> {
        // rustls wants a name, which nobody looks at: who is meant is known by the key.
        let name = ServerName::from(Ipv4Addr::LOCALHOST);
        Ok(Tls::new(End::Client(UnbufferedClientConnection::new(config, name)?), Terms::Node))
    }

    pub(crate) fn server(config: Arc<ServerConfig>, terms: Terms) -> Result<Tls, ChannelError> {
        Ok(Tls::new(End::Server(UnbufferedServerConnection::new(config)?), terms))
    }

    fn new(end: End, terms: Terms) -> Tls {
        let mut inbox = Inbox::new();
        inbox.limit_stream(HANDSHAKE_BYTES_MAX);
        Tls {
            end,
            inbox,
            outbox: Outbox::new(),
            opened: Decrypted::default(),
            waiting: Waiting::default(),
            terms,
            stands: false,
            peer: None,
            before: 0,
            remembered: false,
            begun: false,
            ended: false,
            failed: None,
        }
    }

    pub(crate) fn open(&mut self, own: &mut Inbox) -> Result<Opened, ChannelError> {
        // What the protocol has not taken yet leaves room for so much.
        let mut room = (Inbox::PEEK_MAX.saturating_sub(own.available().len())).min(OPENED_MAX);
        room -= self.opened.feed(own, room);
        while room > 0 {
            // While a receive is under way nothing has come.
            if self.inbox.is_filling() {
                return Ok(Opened::All);
            }
            if !self.advance(Job::Open(own, &mut room))? {
                return Ok(if self.ended { Opened::Ended } else { Opened::All });
            }
        }
        Ok(Opened::Part)
    }

    /// What has come already is taken from `own`.
    pub(crate) fn begin_with(&mut self, own: &mut Inbox) {
        std::mem::swap(&mut self.inbox, own);
        self.before = self.inbox.received_bytes() - self.inbox.available().len() as u64;
        self.inbox.limit_stream(HANDSHAKE_BYTES_MAX);
    }

    /// What waits in `own` goes first, as it is.
    pub(crate) fn send_first(&mut self, own: &mut Outbox) {
        let mut pieces = Vec::new();
        own.take(&mut pieces, usize::MAX, usize::MAX);
        pieces.into_iter().for_each(|piece| self.outbox.put_payload(piece));
    }

    pub(crate) fn seal(&mut self, own: &mut Outbox, most: usize) -> Result<(), ChannelError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.begun || self.stands && own.len() + self.waiting.len() > 0 {
            self.advance(Job::Seal(own, most))?;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<(), ChannelError> {
        self.advance(Job::Close).map(drop)
    }

    pub(crate) fn expect(&mut self, bytes: usize) {
        self.inbox.limit_stream(bytes.max(HANDSHAKE_BYTES_MAX));
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn stands(&self) -> bool {
        self.stands
    }

    pub(crate) fn peer(&self) -> Option<PeerKey> {
        self.peer
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len() + self.waiting.len()
    }

    /// Lets rustls work until it needs more bytes; does the job when all is decrypted. [`Job::Open`] ends with the
    /// first bytes for the protocol; true when there were some.
    fn advance(&mut self, job: Job<'_>) -> Result<bool, ChannelError> {
        self.begun = true;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.remembered && self.inbox.is_filling() {
            // In a handshake, whose other half will come.
            return Ok(false);
        }
        let worked = self.work(job).and_then(|worked| self.look().map(|()| worked));
        let outcome = worked.and_then(|(waits, decrypted)| self.look_for_half(waits).map(|()| decrypted));
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.tell();
        }
        outcome
    }

    /// Whether it needs more bytes now, and has decrypted some.
    fn work(&mut self, job: Job<'_>) -> Result<(bool, bool), ChannelError> {
        let Tls { end, inbox, outbox, opened, waiting, ended, .. } = self;
        let mut parts = Parts { outbox, opened, waiting, ended, job, decrypted: false };
        loop {
            let incoming = inbox.available_mut();
            let (discard, step) = match end {
                End::Client(client) => parts.handle(client.process_tls_records(incoming)),
                End::Server(server) => parts.handle(server.process_tls_records(incoming)),
            };
            inbox.consume(discard);
            match step? {
                Step::Again if parts.decrypted && matches!(parts.job, Job::Open(..)) => return Ok((false, true)),
                Step::Again => {}
                Step::Wait => return Ok((true, parts.decrypted)),
            }
        }
    }

    /// Whether half of a message has come. Who says half after the handshake is cut off: nobody has to, and what is to
    /// be sealed for him could not be while the other half is received.
    fn look_for_half(&mut self, waits: bool) -> Result<(), ChannelError> {
        if !self.inbox.is_filling() {
            self.remembered = waits && !self.ended && begins_with_record(self.inbox.available());
        }
        if self.stands && self.remembered {
            return Err(ChannelError::Tls("half of a message, after the handshake".to_owned()));
        }
        Ok(())
    }

    /// Whether the handshake has ended, and how.
    fn look(&mut self) -> Result<(), ChannelError> {
        if self.stands {
            return Ok(());
        }
        let state = self.end.state();
        if state.is_handshaking() {
            let received = self.inbox.received_bytes() - self.before;
            return if received >= HANDSHAKE_BYTES_MAX as u64 { Err(ChannelError::TooLong) } else { Ok(()) };
        }
        let certificate = state.peer_certificates().and_then(|chain| chain.first());
        self.peer = certificate.map(peer_key).transpose()?;
        if self.terms == Terms::Node {
            if state.alpn_protocol() != Some(PROTOCOL) {
                self.peer = None;
                return Err(ChannelError::Protocol);
            }
            if self.peer.is_none() {
                return Err(ChannelError::Tls("there is no certificate".to_owned()));
            }
        }
        self.stands = true;
        Ok(())
    }

    /// After an error: rustls may have an alert for the peer, which goes to the outbox. The bytes that have arrived are
    /// shown again, for rustls remembers where in them messages lie (and panics where there are none).
    fn tell(&mut self) {
        let Tls { end, inbox, outbox, opened, waiting, ended, .. } = self;
        let mut parts = Parts { outbox, opened, waiting, ended, job: Job::Nothing, decrypted: false };
        // Not once more: it must not look at what has arrived after its alert.
        while end.state().wants_write() {
            let incoming = inbox.available_mut();
            let (discard, step) = match end {
                End::Client(client) => parts.handle(client.process_tls_records(incoming)),
                End::Server(server) => parts.handle(server.process_tls_records(incoming)),
            };
            inbox.consume(discard);
            if !matches!(step, Ok(Step::Again)) {
                return;
            }
        }
    }
}

impl Parts<'_> {
    /// What rustls wants to be done; how many bytes it has used, and what is next.
    fn handle<Data>(&mut self, status: UnbufferedStatus<'_, '_, Data>) -> (usize, Result<Step, ChannelError>) {
        let mut discard = status.discard;
        let step = match status.state {
            Err(error) => Err(error.into()),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                match traffic.next_record() {
                    None => break Ok(Step::Again),
                    Some(Err(error)) => break Err(error.into()),
                    Some(Ok(record)) => {
                        discard += record.discard;
                        self.take_in(record.payload);
                    }
                }
            },
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                let mut bytes = BytesMut::new();
                let encoded = match data.encode(&mut bytes) {
                    Err(EncodeError::InsufficientSize(needed)) => {
                        bytes.resize(needed.required_size, 0);
                        data.encode(&mut bytes)
                    }
                    outcome => outcome,
                };
                let encoded = encoded.map_err(|error| ChannelError::Tls(error.to_string()));
                encoded.map(|count| {
                    self.outbox.put(&bytes[..count]);
                    Step::Again
                })
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(Step::Again)
            }
            Ok(ConnectionState::PeerClosed) => {
                *self.ended = true;
                Ok(Step::Again)
            }
            Ok(ConnectionState::WriteTraffic(traffic)) => self.write(traffic),
            Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => Ok(Step::Wait),
            Ok(_) => Err(ChannelError::Tls("something that was not offered".to_owned())),
        };
        (discard, step)
    }

    /// Bytes for the protocol. What it has no room for waits.
    fn take_in(&mut self, mut bytes: &[u8]) {
        self.decrypted |= !bytes.is_empty();
        if let Job::Open(own, room) = &mut self.job
            && self.opened.0.is_empty()
        {
            let (now, rest) = bytes.split_at(bytes.len().min(**room));
            append(own, now);
            **room -= now.len();
            bytes = rest;
        }
        self.opened.0.extend_from_slice(bytes);
    }

    fn write<Data>(&mut self, mut traffic: WriteTraffic<'_, Data>) -> Result<Step, ChannelError> {
        match &mut self.job {
            Job::Nothing | Job::Open(..) => {}
            Job::Close => {
                let mut bytes = [0; 2 + RECORD_OVERHEAD];
                let count = traffic.queue_close_notify(&mut bytes).map_err(|error| encrypt_error(&error))?;
                self.outbox.put(&bytes[..count]);
            }
            Job::Seal(own, most) => {
                let mut pieces = Vec::new();
                while self.outbox.len() < *most {
                    let bytes = self.waiting.next(own, &mut pieces);
                    if bytes.is_empty() {
                        break;
                    }
                    encrypt(&mut traffic, &bytes, self.outbox)?;
                }
            }
        }
        self.job = Job::Nothing;
        Ok(Step::Wait)
    }
}

/// A whole record is at the front (RFC 8446, 5.1): type, version, length.
fn begins_with_record(bytes: &[u8]) -> bool {
    let Some([_, _, _, high, low]) = bytes.first_chunk() else { return false };
    bytes.len() >= 5 + usize::from(u16::from_be_bytes([*high, *low]))
}

fn encrypt<Data>(traffic: &mut WriteTraffic<'_, Data>, bytes: &[u8], outbox: &mut Outbox) -> Result<(), ChannelError> {
    let len = bytes.len() + bytes.len().div_ceil(RECORD_BYTES) * RECORD_OVERHEAD;
    if len <= SMALL_SEALED {
        let mut sealed = [0; SMALL_SEALED];
        match traffic.encrypt(bytes, &mut sealed) {
            Ok(count) => {
                outbox.put(&sealed[..count]);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(_)) => {}
            Err(error) => return Err(encrypt_error(&error)),
        }
    }
    let mut sealed = PageBuf::new(len);
    let count = match traffic.encrypt(bytes, &mut sealed) {
        // A change of keys goes before.
        Err(EncryptError::InsufficientSize(needed)) => {
            sealed = PageBuf::new(needed.required_size);
            traffic.encrypt(bytes, &mut sealed)
        }
        outcome => outcome,
    };
    sealed.truncate(count.map_err(|error| encrypt_error(&error))?);
    outbox.put_payload(sealed.freeze());
    Ok(())
}

fn encrypt_error(error: &EncryptError) -> ChannelError {
    ChannelError::Tls(error.to_string())
}
