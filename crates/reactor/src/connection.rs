//! Connections: receiving into and sending from the streams that the caller has installed.

mod ending;

use crate::{
    CloseReason, ConnId, DESCRIPTORS_MAX, Event, JUST_IN_TIME_BYTES, LINGER_MAX, Reactor, SEND_BYTES_MAX,
    SEND_LOW_WATER, SEND_NOW_MAX, SEND_PIECES_MAX, Stream,
    descriptors::Receiving,
    ring::{Operation, Ticket},
    sending::Sending,
    socket,
};
use azekura_base::{Fill, PageBuf};
use socket2::{SockAddr, Socket};
use std::{
    io, mem,
    net::{Shutdown, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    time::Instant,
};

/// Bytes in one receive that nobody wants.
const DISCARD_SIZE: usize = 64 << 10;

/// A connection that has left its reactor: its socket, for the reactor of another thread.
#[derive(Debug)]
pub struct Released(Socket);

/// When [`Reactor::close`] takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Now; what is in the outbox is dropped.
    AtOnce,
    /// Now; what is in the outbox is dropped, and so is what the peer sends until it closes too, [`LINGER_MAX`] at
    /// most: it is not told before that nobody reads any more. As [`Close::AtOnce`] while a send is under way.
    Lingering,
    /// When the outbox has been sent and the peer has had time to read it: until it closes too, [`LINGER_MAX`] at most.
    /// What it sends meanwhile is dropped.
    AfterDrain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// To be closed when the outbox is empty.
    Draining,
    /// Everything is sent and this side shut; waits for the peer's end.
    Lingering,
    /// Its last event is made.
    Ended,
}

pub(crate) struct Connection<S> {
    pub(crate) socket: Socket,
    /// Absent before [`Reactor::install`], and after the end.
    stream: Option<S>,
    state: State,
    connecting: Option<Ticket>,
    receiving: bool,
    /// Absent while a send is under way.
    sending: Option<Box<Sending>>,
    /// Bytes of the send that is under way.
    sending_bytes: usize,
    /// Operations under way.
    in_flight: u32,
    paused: bool,
    /// The caller has seen what was received and wants more.
    receive_wanted: bool,
    /// Listed to be looked at when the next wait begins.
    dirty: bool,
    /// The outbox has been above the low-water mark since the last `Sent`.
    above_low_water: bool,
    /// The last receive left bytes in the socket.
    socket_nonempty: bool,
    /// Most bytes in one send.
    send_bytes_max: usize,
    /// Its ids are void: the slot is freed when the kernel is done with it.
    forgotten: bool,
}

impl<S> Connection<S> {
    fn new(socket: Socket, state: State) -> Connection<S> {
        Connection {
            socket,
            stream: None,
            state,
            connecting: None,
            receiving: false,
            sending: Some(Sending::new()),
            sending_bytes: 0,
            in_flight: 0,
            paused: false,
            receive_wanted: false,
            dirty: false,
            above_low_water: false,
            socket_nonempty: false,
            send_bytes_max: SEND_BYTES_MAX,
            forgotten: false,
        }
    }
}

impl<S: Stream> Connection<S> {
    /// Hands the stream what file descriptors have come, or drops them where it takes none.
    fn keep(&mut self, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let kept = self.stream.as_mut().filter(|_| self.state == State::Open).and_then(Stream::descriptors);
        let Some(kept) = kept.filter(|_| !descriptors.is_empty()) else { return Ok(()) };
        if kept.len() + descriptors.len() > DESCRIPTORS_MAX {
            let what = format!("more than {DESCRIPTORS_MAX} file descriptors that nobody has asked for");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        kept.extend(descriptors);
        Ok(())
    }
}

impl<S: Stream> Reactor<S> {
    /// Connects to a TCP address; [`Event::Connected`] or [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// When there is no socket to be had: out of file descriptors, or too many connections.
    pub fn connect_tcp(&mut self, address: SocketAddr) -> io::Result<ConnId> {
        self.connect(address.into())
    }

    /// Connects to a unix socket; [`Event::Connected`] or [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// When there is no socket to be had, or `path` is too long for a socket's.
    pub fn connect_unix(&mut self, path: &Path) -> io::Result<ConnId> {
        self.connect(SockAddr::unix(path)?)
    }

    fn connect(&mut self, address: SockAddr) -> io::Result<ConnId> {
        if self.connections.len() >= self.options.connections_max {
            return Err(io::Error::other(format!("more than {} connections", self.options.connections_max)));
        }
        let socket = socket::for_connect(&address)?;
        let fd = socket.as_raw_fd();
        let id = ConnId(self.connections.insert(Connection::new(socket, State::Connecting)));
        let conn = self.connections.index(id.0).expect("just inserted");
        let ticket = self.ring.start(Operation::Connect { conn, socket: fd, address: Box::new(address) });
        let connection = self.connections.at(conn);
        connection.connecting = Some(ticket);
        connection.in_flight += 1;
        Ok(id)
    }

    /// Takes in an accepted socket.
    pub(crate) fn add_accepted(&mut self, socket: Socket) -> ConnId {
        ConnId(self.connections.insert(Connection::new(socket, State::Open)))
    }

    /// Takes a connection out of this reactor, for another thread's to [`Reactor::adopt`]. Its id is void from now
    /// on, and no event follows. To be called before a stream is installed, or at [`Event::Received`], when all that
    /// the peer has sent has been taken from the inbox and the peer is known to wait for an answer: what is in the
    /// stream's inbox and outbox is dropped with it. `None` when the connection has ended, or the kernel is at work for
    /// it.
    pub fn release(&mut self, conn: ConnId) -> Option<Released> {
        let index = self.connections.index(conn.0)?;
        let connection = self.connections.at(index);
        if connection.state != State::Open || connection.in_flight > 0 {
            return None;
        }
        self.dirty.retain(|dirty| *dirty != index);
        Some(Released(self.connections.take(index).socket))
    }

    /// Takes a connection in that another reactor has released: like one that has just been accepted. `None` when
    /// there are too many; it is closed then.
    pub fn adopt(&mut self, released: Released) -> Option<ConnId> {
        let room = self.connections.len() < self.options.connections_max;
        room.then(|| self.add_accepted(released.0))
    }

    /// Gives the connection its stream; receiving and sending begin. Returns the stream when the connection has ended
    /// or has one already.
    ///
    /// # Errors
    /// The stream itself, not taken.
    pub fn install(&mut self, conn: ConnId, stream: S) -> Result<(), S> {
        let Some(index) = self.connections.index(conn.0) else { return Err(stream) };
        let connection = self.connections.at(index);
        if connection.stream.is_some() || connection.state == State::Ended {
            return Err(stream);
        }
        connection.stream = Some(stream);
        self.kick(conn);
        Ok(())
    }

    /// The stream of a connection; `None` before it is installed and after the wait that followed the connection's last
    /// event.
    #[must_use]
    pub fn stream(&mut self, conn: ConnId) -> Option<&mut S> {
        let index = self.connections.index(conn.0)?;
        self.connections.at(index).stream.as_mut()
    }

    /// Bytes that the peer has not taken: in the outbox, and in the send that is under way.
    #[must_use]
    pub fn unsent_bytes(&mut self, conn: ConnId) -> usize {
        let Some(index) = self.connections.index(conn.0) else { return 0 };
        let connection = self.connections.at(index);
        connection.sending_bytes + connection.stream.as_mut().map_or(0, |stream| stream.outbox().len())
    }

    /// The caller has looked at the inbox and perhaps filled the outbox: at the next wait a send starts if the outbox
    /// has something and none is under way, and a receive unless reading is paused.
    ///
    /// What the inbox holds must have been consumed as far as possible by then: while a receive is under way, its bytes
    /// can't be looked at.
    pub fn kick(&mut self, conn: ConnId) {
        if let Some(index) = self.connections.index(conn.0) {
            self.connections.at(index).receive_wanted = true;
            self.mark_dirty(index);
        }
    }

    /// Starts no further receive until [`Reactor::resume_reading`]. One that is under way may still complete. A peer's
    /// end is not noticed meanwhile, except by a send that fails.
    pub fn pause_reading(&mut self, conn: ConnId) {
        if let Some(index) = self.connections.index(conn.0) {
            self.connections.at(index).paused = true;
        }
    }

    /// Ends a pause and does what [`Reactor::kick`] does.
    pub fn resume_reading(&mut self, conn: ConnId) {
        if let Some(index) = self.connections.index(conn.0) {
            self.connections.at(index).paused = false;
        }
        self.kick(conn);
    }

    /// From now on little is handed to the kernel that the network does not take yet: what the outbox gives first is
    /// sent soon, however much waits in it (decision 0024).
    pub fn send_just_in_time(&mut self, conn: ConnId) {
        if let Some(index) = self.connections.index(conn.0) {
            let connection = self.connections.at(index);
            connection.send_bytes_max = JUST_IN_TIME_BYTES;
            // Not all sockets have such a limit, and none needs it.
            let _ = connection.socket.set_tcp_notsent_lowat(JUST_IN_TIME_BYTES as u32);
        }
    }

    fn mark_dirty(&mut self, index: u32) {
        let connection = self.connections.at(index);
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Starts what the kicked connections want. Called when a wait begins.
    pub(crate) fn start_kicked(&mut self) {
        let mut dirty = mem::take(&mut self.dirty);
        let now = dirty.len() <= SEND_NOW_MAX;
        for index in dirty.drain(..) {
            self.connections.at(index).dirty = false;
            self.start_send(index, now);
            self.start_receive(index);
        }
        // Some may have been listed again meanwhile.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn start_receive(&mut self, index: u32) {
        let connection = self.connections.at(index);
        let wanted = match connection.state {
            State::Open => connection.receive_wanted && !connection.paused,
            State::Lingering => true,
            _ => false,
        };
        if !wanted || connection.receiving {
            return;
        }
        let (fill, receiving) = match &mut connection.stream {
            _ if connection.state == State::Lingering => (Fill { buf: PageBuf::new(DISCARD_SIZE), at: 0 }, None),
            Some(stream) => (stream.inbox().take_fill(), stream.descriptors().map(|_| Receiving::new())),
            None => return,
        };
        connection.receive_wanted = false;
        connection.receiving = true;
        connection.in_flight += 1;
        let operation = Operation::Receive {
            conn: index,
            socket: connection.socket.as_raw_fd(),
            fill,
            receiving,
            poll_first: !connection.socket_nonempty,
        };
        self.ring.start(operation);
    }

    /// Sends from the outbox: at once what the socket takes when `now`, and through the ring what it doesn't.
    fn start_send(&mut self, index: u32, now: bool) {
        let connection = self.connections.at(index);
        if !matches!(connection.state, State::Open | State::Draining) {
            return;
        }
        let (Some(stream), Some(mut sending)) = (&mut connection.stream, connection.sending.take()) else { return };
        let socket = connection.socket.as_raw_fd();
        let outbox = stream.outbox();
        connection.above_low_water |= outbox.len() > SEND_LOW_WATER;
        let mut waits = false;
        while !waits && !outbox.is_empty() {
            outbox.take(sending.refill(), SEND_PIECES_MAX, connection.send_bytes_max);
            sending.seal();
            // An error comes again from the ring, which reports it.
            waits = !(now && sending.send_now(socket).unwrap_or(false));
        }
        if waits {
            connection.in_flight += 1;
            connection.sending_bytes = sending.bytes_left();
            self.ring.start(Operation::Send { conn: index, socket, sending });
        } else {
            sending.clear();
            connection.sending = Some(sending);
        }
        self.after_send(index);
    }

    /// When no send is under way: says that there is room in the outbox again, and goes on with the end of a draining
    /// connection that has nothing left to send.
    fn after_send(&mut self, index: u32) {
        let conn = ConnId(self.connections.token(index));
        let connection = self.connections.at(index);
        if connection.sending.is_none() {
            return;
        }
        let waiting = connection.stream.as_mut().map_or(0, |stream| stream.outbox().len());
        if connection.above_low_water && waiting < SEND_LOW_WATER {
            connection.above_low_water = false;
            self.ready.push(Event::Sent { conn });
        }
        if connection.state == State::Draining && waiting == 0 {
            connection.state = State::Lingering;
            // An error means that the connection is broken: the receive will say so.
            let _ = connection.socket.shutdown(Shutdown::Write);
            self.lingering.push_back((Instant::now() + LINGER_MAX, conn));
            self.mark_dirty(index);
        }
    }

    pub(crate) fn on_connect(&mut self, index: u32, result: io::Result<u32>) {
        let conn = ConnId(self.connections.token(index));
        let connection = self.connections.at(index);
        connection.in_flight -= 1;
        connection.connecting = None;
        match (connection.state, result) {
            (State::Ended, _) => self.free_if_unused(index),
            (_, Ok(_)) => {
                connection.state = State::Open;
                self.ready.push(Event::Connected { conn });
                self.mark_dirty(index);
            }
            (_, Err(error)) => self.end_with(index, Event::ConnectFailed { conn, error }),
        }
    }

    pub(crate) fn on_receive(
        &mut self,
        index: u32,
        fill: Fill,
        result: io::Result<u32>,
        descriptors: io::Result<Vec<OwnedFd>>,
        socket_nonempty: bool,
    ) {
        let conn = ConnId(self.connections.token(index));
        let connection = self.connections.at(index);
        connection.in_flight -= 1;
        connection.receiving = false;
        connection.socket_nonempty = socket_nonempty;
        let received = *result.as_ref().unwrap_or(&0) as usize;
        // While lingering, or when the caller has put another inbox in this one's place, the bytes belong to nobody.
        if connection.state != State::Lingering
            && let Some(inbox) = connection.stream.as_mut().map(Stream::inbox)
            && inbox.is_filling()
        {
            inbox.filled(fill, received);
        }
        // What is not kept is closed.
        let result = result.and_then(|received| connection.keep(descriptors?).map(|()| received));
        match (connection.state, result) {
            (State::Ended, _) => self.free_if_unused(index),
            (State::Lingering, Ok(0) | Err(_)) => self.end(index, CloseReason::Local),
            (State::Lingering, Ok(_)) => self.mark_dirty(index),
            (_, Ok(0)) => self.end(index, CloseReason::Eof),
            (State::Draining, Ok(_)) => {}
            (_, Ok(_)) => self.ready.push(Event::Received { conn }),
            (_, Err(error)) if is_transient(&error) => {
                connection.receive_wanted = true;
                self.mark_dirty(index);
            }
            (_, Err(error)) => self.end(index, CloseReason::Error(error)),
        }
    }

    pub(crate) fn on_send(&mut self, index: u32, mut sending: Box<Sending>, result: io::Result<u32>) {
        let connection = self.connections.at(index);
        connection.in_flight -= 1;
        let ended = connection.state == State::Ended;
        let done = match &result {
            Ok(count) => sending.advance(*count as usize),
            Err(_) => false,
        };
        connection.sending_bytes = if done { 0 } else { sending.bytes_left() };
        match result {
            _ if ended => self.free_if_unused(index),
            Err(error) if !is_transient(&error) => self.end(index, CloseReason::Error(error)),
            _ if !done => {
                connection.in_flight += 1;
                self.ring.start(Operation::Send { conn: index, socket: connection.socket.as_raw_fd(), sending });
            }
            _ => {
                sending.clear();
                connection.sending = Some(sending);
                self.after_send(index);
                self.mark_dirty(index);
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
