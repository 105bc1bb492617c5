//! Clients of this machine that share memory with the process which serves them, as those of vhost-user do: what goes
//! beside the bytes of their connection.

use azekura_base::SharedMemory;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// What the protocol of such a client asks of the event loop.
#[derive(Debug)]
pub enum Wish {
    /// Map a part of a memory file: [`Sharing::mapped`] follows.
    Map {
        /// The protocol's name for it.
        region: u32,
        /// The file.
        file: OwnedFd,
        /// Where the part begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: usize,
    },
    /// Tell when this eventfd is written to, by [`Sharing::rung`]. Takes the place of an earlier one of the same queue.
    Hear {
        /// The protocol's name for what the eventfd belongs to.
        queue: u32,
        /// The eventfd.
        eventfd: OwnedFd,
    },
    /// Keep this eventfd for [`Wish::Ring`]. Takes the place of an earlier one of the same queue.
    Keep {
        /// The protocol's name for what the eventfd belongs to.
        queue: u32,
        /// The eventfd.
        eventfd: OwnedFd,
    },
    /// Write to the eventfd that was kept for a queue.
    Ring {
        /// The queue.
        queue: u32,
    },
    /// Keep this socket of the client, a stream of this machine, for [`Wish::Tell`]. Takes the place of an earlier one
    /// of the same queue.
    Reach {
        /// The protocol's name for what the socket belongs to.
        queue: u32,
        /// The socket.
        socket: OwnedFd,
    },
    /// Write these few bytes to the socket that was kept for a queue. They are lost when the client has left others
    /// unread for so long that they do not fit, or has closed it.
    Tell {
        /// The queue.
        queue: u32,
        /// What to write.
        bytes: Vec<u8>,
    },
    /// The eventfds and the socket of a queue are not needed any more.
    Forget {
        /// The queue.
        queue: u32,
    },
    /// Make a memory file of zeros that can't be made shorter, and send it to the client with these bytes: for what the
    /// client is to keep. What was to be sent before has been sent; the connection ends where it can't be.
    Lend {
        /// What goes with it, a few bytes.
        bytes: Vec<u8>,
        /// The file's length in bytes.
        len: u64,
    },
    /// Poll the protocol once more in the next turn, when others have had theirs.
    Poll,
}

/// A protocol of whose client a connection brings more than bytes: memory that both have, and eventfds by which each
/// wakes the other. Requests and answers go through the memory; the bytes say which memory that is.
///
/// Its owner calls [`Sharing::next_wish`] until there is none, whenever the protocol was polled, has replied, or was
/// told one of the things below; after each of these it polls the protocol.
pub trait Sharing {
    /// Where file descriptors go that the client has sent, in their order. The owner closes the connection of a client
    /// that sends more than the protocol takes out.
    fn descriptors(&mut self) -> &mut VecDeque<OwnedFd>;

    /// What it asks for next.
    fn next_wish(&mut self) -> Option<Wish>;

    /// A region is mapped, or can't be, and why.
    fn mapped(&mut self, region: u32, memory: Result<Box<dyn SharedMemory>, String>);

    /// The client has written to a queue's eventfd, once or more often.
    fn rung(&mut self, queue: u32);

    /// An eventfd or a socket of a queue is of no use, and why.
    fn refused(&mut self, queue: u32, why: String);
}
