//! The reactor and its turn.

use crate::{
    BellId, ConnId, Event, KeepAlive, Waker,
    bell::Bell,
    connection::Connection,
    device::Device,
    listener::Listener,
    ring::{Completion, Operation, Ring},
    waker::WakeSource,
};
use azekura_base::{Inbox, Outbox, Slab};
use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

mod bells;

/// What the caller keeps for a connection: at least the two ends of its byte streams.
pub trait Stream {
    /// Where received bytes go.
    fn inbox(&mut self) -> &mut Inbox;
    /// Where bytes to send come from.
    fn outbox(&mut self) -> &mut Outbox;
    /// Where file descriptors go that the peer sends over a unix socket, in their order: those that came with bytes are
    /// there when the bytes are in the inbox. `None`: they are closed.
    fn descriptors(&mut self) -> Option<&mut VecDeque<OwnedFd>> {
        None
    }
}

/// The smallest stream: the two ends and nothing else.
impl Stream for (Inbox, Outbox) {
    fn inbox(&mut self) -> &mut Inbox {
        &mut self.0
    }
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.1
    }
}

/// How to make a [`Reactor`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Places in the submission queue. More operations than that may be under way; one turn that starts more makes
    /// additional system calls.
    pub entries: u32,
    /// Connections at a time. Further ones are accepted and closed at once.
    pub connections_max: usize,
    /// When an accepted connection's peer is taken for gone.
    pub keep_alive: KeepAlive,
    /// Time to look for completions before sleeping. It costs that much processor time at each pause in the work, and
    /// saves the time that a sleeper takes to wake.
    pub spin: Duration,
    /// Leave out what old kernels lack. For tests.
    #[doc(hidden)]
    pub basic: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            entries: 1024,
            connections_max: 16_384,
            keep_alive: KeepAlive::default(),
            spin: Duration::ZERO,
            basic: false,
        }
    }
}

/// The event loop of one thread.
///
/// # How it is driven
///
/// In turns, as the crate's description draws them. [`Reactor::wait`] hands to the kernel what was queued, sleeps until
/// something has ended, and gives [`Event`]s; the caller deals with all of them and waits again. Every other call only
/// queues, or notes what the next wait is to do; only those that open a device or begin to listen may block. Other
/// threads have the [`Waker`] alone.
///
/// A connection needs its stream before anything is received: [`Reactor::install`], at [`Event::Accepted`] or
/// [`Event::Connected`]. Each [`Event::Received`] wants one [`Reactor::kick`], when the inbox has been looked at; bytes
/// put into an outbox leave with the next wait after a kick. An operation of a device is named by the caller's
/// [`Token`](crate::Token), and each gets one event, in whatever order they end.
///
/// # The states of a connection
///
/// ```text
///   connect_tcp, connect_unix ──► connecting ─────► ended      ConnectFailed; Closed if the caller closes it
///                                     │ Connected
///                                     ▼
///   Accepted, adopt ─────────────►  open ─────────► ended      closed at once, by the peer, or broken: Closed
///                                     │    └──────► released   to another thread's reactor, by release; no event
///                                     │ close(AfterDrain), close(Lingering)
///                                     ▼
///                                 draining ───────► ended      the peer closes, or it breaks: what is left is dropped
///                                     │ all is sent; this side is shut
///                                     ▼
///                                 lingering ──────► ended      the peer closes, or LINGER_MAX is over: Closed
/// ```
///
/// What the peer sends is received while a connection is *open* and not paused, and dropped while it is *lingering*. An
/// *ended* connection has made its last event. Its stream can be reached until the next wait, which voids its id; its
/// place is free for another one when the kernel has given back what it had of it.
///
/// Beside that, an open connection has a receive under way or not, and a send under way or not: one of each at most.
///
/// # Costs
///
/// One system call a turn, for up to [`Options::entries`] operations that it starts and any number of events; one more
/// for each connection that is sent on at once ([`SEND_NOW_MAX`](crate::SEND_NOW_MAX)). An operation is an entry in the
/// ring's table, which owns all memory that the kernel may touch until the operation has ended: so a connection that is
/// closed, or a caller that goes away, frees nothing too early, and a cancelled operation is waited for. Of one device
/// the kernel works on [`DEVICE_DEPTH_MAX`](crate::DEVICE_DEPTH_MAX) operations; what waits behind them has no limit
/// here: who asks bounds it. With [`Options::spin`] each pause in the work costs that much processor time.
pub struct Reactor<S> {
    /// First, so that it is dropped first: by then no socket or device of an operation may be closed.
    pub(crate) ring: Ring,
    pub(crate) connections: Slab<Connection<S>>,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) devices: Slab<Device>,
    /// Free places among the ring's registered files, once there are any.
    pub(crate) device_slots: Option<Vec<u32>>,
    /// Connections to be looked at when the next wait begins.
    pub(crate) dirty: Vec<u32>,
    /// Connections whose last event is in `ready`.
    pub(crate) ending: Vec<u32>,
    /// Connections whose last event the previous wait delivered.
    pub(crate) ended: Vec<u32>,
    /// Connections that linger, and until when, the earliest first.
    pub(crate) lingering: VecDeque<(Instant, ConnId)>,
    /// Listeners that wait to accept again.
    pub(crate) short_listeners: usize,
    /// Events for the next wait to deliver.
    pub(crate) ready: Vec<Event>,
    pub(crate) options: Options,
    wake: WakeSource,
    bells: Slab<Bell>,
    /// Those that have rung since the last wait.
    rung: Vec<BellId>,
    /// Those that the next wait is to ring.
    to_ring: Vec<BellId>,
}

impl<S: Stream> Reactor<S> {
    /// A reactor for the present thread.
    ///
    /// # Errors
    /// When the kernel has no io_uring, is older than 5.11, or doesn't let this process use it; the message says what
    /// to do.
    pub fn new(options: Options) -> io::Result<Reactor<S>> {
        let mut ring = Ring::new(options.entries, options.basic)?;
        let wake = WakeSource::new()?;
        ring.start(Operation::Wake { eventfd: wake.fd() });
        Ok(Reactor {
            ring,
            connections: Slab::default(),
            listeners: Slab::default(),
            devices: Slab::default(),
            device_slots: None,
            dirty: Vec::new(),
            ending: Vec::new(),
            ended: Vec::new(),
            lingering: VecDeque::new(),
            short_listeners: 0,
            ready: Vec::new(),
            options,
            wake,
            bells: Slab::default(),
            rung: Vec::new(),
            to_ring: Vec::new(),
        })
    }

    /// Something that other threads can wake this reactor with.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.wake.waker()
    }

    /// Connections that are there, those not yet quite gone included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Hands everything queued to the kernel, sleeps until something completes or `timeout` is over, and appends what
    /// happened to `events`. Doesn't sleep when there is something to report already. May return early with nothing:
    /// after a signal, or after a completion that only the reactor cares for.
    ///
    /// # Errors
    /// When the kernel refuses the call for a reason that will not pass.
    pub fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.start_kicked();
        self.forget_ended();
        self.forget_rung();
        self.start_ringing();
        let own = [self.retry_accepts(), self.end_lingering()];
        let timeout = match own.into_iter().flatten().chain(timeout).min() {
            _ if !self.ready.is_empty() => Some(Duration::ZERO),
            timeout => timeout,
        };
        if timeout == Some(Duration::ZERO) || self.spin(timeout)? || !self.wake.sleep() {
            self.ring.enter(Some(Duration::ZERO))?;
        } else {
            self.ring.enter(timeout)?;
        }
        if self.wake.awake() {
            self.ready.push(Event::Woken);
        }
        while let Some(completion) = self.ring.take_completion() {
            self.complete(completion);
        }
        events.append(&mut self.ready);
        self.ended.append(&mut self.ending);
        Ok(())
    }

    /// Looks for completions without sleeping for as long as the options say. True when there are some.
    fn spin(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let spin = self.options.spin.min(timeout.unwrap_or(Duration::MAX));
        if spin.is_zero() {
            return Ok(false);
        }
        self.ring.enter(Some(Duration::ZERO))?;
        let begin = Instant::now();
        loop {
            if self.ring.is_ready() || self.wake.is_notified() {
                return Ok(true);
            }
            if begin.elapsed() >= spin {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Completion { operation, result, accepted, descriptors, more, socket_nonempty } = completion;
        match operation {
            Operation::Wake { eventfd } => {
                // The wake-up itself is known from the waker's state.
                if !more {
                    self.ring.start(Operation::Wake { eventfd });
                }
            }
            // The sleep is over, and that was all.
            Operation::Alarm { .. } => {}
            Operation::Accept { listener, .. } => {
                let result =
                    result.and_then(|_| accepted.ok_or_else(|| io::Error::other("an accept without a socket")));
                self.on_accept(listener, result, more);
            }
            Operation::Connect { conn, .. } => self.on_connect(conn, result),
            Operation::Receive { conn, fill, .. } => self.on_receive(conn, fill, result, descriptors, socket_nonempty),
            Operation::Send { conn, sending, .. } => self.on_send(conn, sending, result),
            Operation::Watch { bell, .. } => self.on_watch(bell, &result, more),
            Operation::Ring { bell, .. } => self.on_ring(bell),
            Operation::Read { file, .. } | Operation::Write { file, .. } | Operation::Sync { file, .. } => {
                self.on_device(file, operation, result);
            }
        }
    }
}

impl<S> std::fmt::Debug for Reactor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor")
            .field("connections", &self.connections.len())
            .field("listeners", &self.listeners.len())
            .field("devices", &self.devices.len())
            .field("operations", &self.ring.operations())
            .finish()
    }
}
