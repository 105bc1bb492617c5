//! One direction of a connection inside the process: messages in their order, of which a bounded part is under way.
//!
//! The threads at both ends take no lock: the queue is the standard library's, which takes one only for a receiver that
//! sleeps in it, and here nobody does. Beside it there is a count of what has been taken out, written once for all
//! messages that are taken out together, and looked at only when the last look leaves no room.

use azekura_wire::{Message, held_bytes, is_urgent};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// Bytes that are under way at most, not counting the last message. Heartbeats wait behind so many.
pub(super) const UNDER_WAY_BYTES_MAX: u64 = 4 << 20;
/// What a message counts beside its blocks and lists.
const MESSAGE_BYTES: usize = 512;

fn cost(message: &Message) -> usize {
    MESSAGE_BYTES + held_bytes(message)
}

/// What the threads at both ends look at.
#[derive(Default)]
struct Gauge {
    /// Bytes that have been taken out since the beginning.
    taken: AtomicU64,
    /// Who puts in has found no room, and is to be woken when there is some.
    short: AtomicBool,
}

/// Where messages are put in.
pub(super) struct Inlet {
    queue: Sender<Message>,
    gauge: Arc<Gauge>,
    /// Bytes that have been put into the queue since the beginning.
    sent: u64,
    /// How many of them had been taken out at the last look.
    taken: u64,
    urgent: VecDeque<Message>,
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
}

/// Where they are taken out.
pub(super) struct Outlet {
    queue: Receiver<Message>,
    gauge: Arc<Gauge>,
    taken: u64,
}

/// What comes out.
pub(super) enum Arrival {
    /// A message.
    Message(Message),
    /// Behind the last message: the inlet is gone.
    Closed,
}

/// A lane with nothing in it.
pub(super) fn lane() -> (Inlet, Outlet) {
    let (sender, receiver) = channel();
    let gauge = Arc::new(Gauge::default());
    let inlet = Inlet {
        queue: sender,
        gauge: Arc::clone(&gauge),
        sent: 0,
        taken: 0,
        urgent: VecDeque::new(),
        waiting: VecDeque::new(),
        waiting_bytes: 0,
    };
    (inlet, Outlet { queue: receiver, gauge, taken: 0 })
}

impl Inlet {
    /// Has a message wait for [`Inlet::flush`]; heartbeats go ahead of what waits (0024).
    pub(super) fn put(&mut self, message: Message) {
        self.waiting_bytes += cost(&message);
        let line = if is_urgent(&message) { &mut self.urgent } else { &mut self.waiting };
        line.push_back(message);
    }

    /// Bytes that wait here.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Puts into the queue what there is room for. True when that was something.
    pub(super) fn flush(&mut self) -> bool {
        let before = self.sent;
        while self.waiting_bytes > 0
            && self.has_room()
            && let Some(message) = self.urgent.pop_front().or_else(|| self.waiting.pop_front())
        {
            let bytes = cost(&message);
            self.waiting_bytes -= bytes;
            self.sent += bytes as u64;
            // Where nobody takes it out, the outlet beside this inlet says that the connection has ended.
            let _ = self.queue.send(message);
        }
        self.sent != before
    }

    fn has_room(&mut self) -> bool {
        if self.sent - self.taken >= UNDER_WAY_BYTES_MAX {
            self.taken = self.gauge.taken.load(SeqCst);
        }
        if self.sent - self.taken >= UNDER_WAY_BYTES_MAX {
            self.gauge.short.store(true, SeqCst);
            // Who took something out before that has woken nobody. Who does so later sees the mark.
            self.taken = self.gauge.taken.load(SeqCst);
        }
        self.sent - self.taken < UNDER_WAY_BYTES_MAX
    }
}

impl Outlet {
    /// Takes out what there is. True when somebody waits for the room.
    pub(super) fn empty(&mut self, mut each: impl FnMut(Arrival)) -> bool {
        let before = self.taken;
        loop {
            match self.queue.try_recv() {
                Ok(message) => {
                    self.taken += cost(&message) as u64;
                    each(Arrival::Message(message));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    each(Arrival::Closed);
                    break;
                }
            }
        }
        if self.taken == before {
            return false;
        }
        // Only now: so no more than is allowed under way is taken out at once.
        self.gauge.taken.store(self.taken, SeqCst);
        self.gauge.short.load(SeqCst) && self.gauge.short.swap(false, SeqCst)
    }
}
