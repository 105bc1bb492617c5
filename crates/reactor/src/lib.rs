//! The event loop: sockets, devices and wake-ups from other threads, all through one io_uring per thread.
//!
//! A [`Reactor`] owns connections, listeners and devices. The caller queues work (outgoing bytes, device reads and
//! writes) and calls [`Reactor::wait`], which hands everything queued to the kernel and sleeps until something has
//! completed, in one system call. What happened comes back as [`Event`]s.
//!
//! The bytes of a connection live in an [`Inbox`](azekura_base::Inbox) and an [`Outbox`](azekura_base::Outbox) that
//! the caller's own type embeds (see [`Stream`]): the reactor receives straight into the one and sends straight from
//! the other.
//!
//! What it is not: an executor. There are no futures, no tasks and no timers; the caller passes the time until its next
//! timer to `wait`.
//!
//! # One turn
//!
//! ```text
//!   wait ──► events ──► for each: parse the inbox, fill the outbox, queue device I/O, kick(conn) ──► wait …
//! ```
//!
//! After [`Event::Received`] nothing more is received on that connection until [`Reactor::kick`]: the caller has
//! looked at the inbox by then. Sends are not started by `kick` but by the next `wait`, so that all answers of one
//! turn leave in one message.
//!
//! Back-pressure: stop taking from a connection with [`Reactor::pause_reading`], for instance while its outbox holds
//! more than [`SEND_LOW_WATER`] bytes or too many of its requests are under way, and go on with
//! [`Reactor::resume_reading`] at [`Event::Sent`] or when the requests are done.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use azekura_base::{Inbox, Outbox};
//! use azekura_reactor::{Close, Event, Options, Reactor};
//! use std::io::{Read, Write};
//!
//! let mut reactor = Reactor::<(Inbox, Outbox)>::new(Options::default())?;
//! let listener = reactor.listen_tcp(([127, 0, 0, 1], 0).into())?;
//! let address = reactor.local_address(listener).expect("it listens");
//! let client = std::thread::spawn(move || -> std::io::Result<String> {
//!     let mut stream = std::net::TcpStream::connect(address)?;
//!     stream.write_all(b"storehouse")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     Ok(answer)
//! });
//! let (mut events, mut open) = (Vec::new(), true);
//! while open {
//!     reactor.wait(None, &mut events)?;
//!     for event in events.drain(..) {
//!         match event {
//!             Event::Accepted { conn, .. } => drop(reactor.install(conn, Default::default())),
//!             Event::Received { conn } => {
//!                 let Some((inbox, outbox)) = reactor.stream(conn) else { continue };
//!                 if let Some(word) = inbox.peek(10) {
//!                     outbox.put(word);
//!                     reactor.close(conn, Close::AfterDrain);
//!                 }
//!                 reactor.kick(conn);
//!             }
//!             Event::Closed { .. } => open = false,
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(client.join().expect("no panic")?, "storehouse");
//! # Ok(())
//! # }
//! ```
//!
//! # Safety
//!
//! Everything that the kernel reads or writes is owned by the operation table of the `ring` module from before it is
//! submitted until its completion has been seen. `unsafe` code is there, in what it owns (`sending`, `descriptors`) and
//! in `memory`, which other processes write to.

mod bell;
mod connection;
mod descriptors;
mod device;
mod event;
mod ids;
mod lending;
mod line;
mod listener;
mod memory;
mod patience;
mod reactor;
mod ring;
mod sending;
mod socket;
mod transfer;
mod waker;

pub use connection::{Close, Released};
pub use descriptors::DESCRIPTORS_AT_ONCE_MAX;
pub use device::{DeviceFile, DeviceOptions};
pub use event::{CloseReason, Event, PeerAddress, Token};
pub use ids::{BellId, ConnId, FileId, ListenerId};
pub use line::Line;
pub use listener::UnixDoor;
pub use memory::MappedMemory;
pub use reactor::{Options, Reactor, Stream};
pub use socket::KeepAlive;
pub use waker::Waker;

/// Time that a connection closed with [`Close::AfterDrain`] waits for the peer to close too, so that the peer can read
/// everything before it is told that what it sent was not read.
pub const LINGER_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// Pieces in one send: what one `sendmsg` takes is [`SEND_BYTES_MAX`] or this, whichever is reached first.
pub const SEND_PIECES_MAX: usize = 512;
/// Bytes after which no further piece joins a send.
pub const SEND_BYTES_MAX: usize = 1 << 20;
/// The same for a connection that sends just in time ([`Reactor::send_just_in_time`]), and most bytes in its socket
/// that the network has not taken, or little more. Both together are what a link of 1 MB/s takes in half a second.
pub const JUST_IN_TIME_BYTES: usize = 256 << 10;
/// An outbox that has been above this many bytes when a wait began, and falls below it, makes an [`Event::Sent`]. Who
/// stops filling an outbox and waits for that event must stop above this mark.
pub const SEND_LOW_WATER: usize = 64 << 10;
/// When at most so many connections are kicked in one turn, their sends are tried at once, by a system call each, and
/// only what a socket doesn't take goes through the ring. A send through the ring makes a completion, for which the
/// next wait would return before anything of interest has happened: that doubles the turns of a client that has one
/// request under way.
pub const SEND_NOW_MAX: usize = 8;
/// Silence on an accepted connection after which the kernel asks the peer's machine whether it is there.
pub const KEEP_ALIVE_IDLE: std::time::Duration = std::time::Duration::from_secs(20);
/// Time between two such questions.
pub const KEEP_ALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
/// An accepted connection ends when its peer's machine has answered nothing for so long, or has taken nothing of what
/// is to be sent: a client that is gone without a word gives back what it had.
pub const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(60);
/// Connections that a listener's socket holds for us before we accept them.
pub const ACCEPT_BACKLOG: i32 = 1024;
/// File descriptors that wait on one connection to be taken: who sends more is not served any more.
pub const DESCRIPTORS_MAX: usize = 64;
/// I/O vectors in one device write (the kernel's `UIO_MAXIOV`); longer writes are continued.
pub const WRITE_VECTORS_MAX: usize = 1024;
/// Operations that the kernel works on for one device; the others wait in order. More would only fill the block
/// layer's queue, and io_uring then hands submissions to kernel threads.
pub const DEVICE_DEPTH_MAX: usize = 128;
/// Of those, how many may be reads. With so many reads before it, a write on a disk that does 150 operations a second
/// is still done in two thirds of a second; and one that comes while many read is handed to the kernel at once.
pub const DEVICE_READS_MAX: usize = 96;
/// Devices open at a time.
pub const DEVICES_MAX: usize = 256;
