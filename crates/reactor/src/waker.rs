//! Waking a reactor from other threads.

use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};

/// The reactor runs, and nobody has woken it since it last looked.
const RUNNING: u8 = 0;
/// The reactor runs and will report a wake-up before it sleeps.
const NOTIFIED: u8 = 1;
/// The reactor sleeps or is about to: it must be told through the eventfd.
const SLEEPING: u8 = 2;

struct Shared {
    state: AtomicU8,
    eventfd: OwnedFd,
}

/// Wakes the reactor that it came from: its next or present wait returns with [`Event::Woken`](crate::Event::Woken).
///
/// Several wake-ups before the reactor looks make one event. A system call is made only when the reactor sleeps.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Wakes the reactor. What was written before this call is seen by who handles the event.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, SeqCst) == SLEEPING {
            // The counter can't be near its end (2^64 - 2 wake-ups), so the write neither blocks nor fails.
            let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// The reactor's end of its wakers.
pub(crate) struct WakeSource(Arc<Shared>);

impl WakeSource {
    pub(crate) fn new() -> io::Result<WakeSource> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(WakeSource(Arc::new(Shared { state: AtomicU8::new(RUNNING), eventfd })))
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(self.0.clone())
    }

    /// The eventfd to poll. It is never read: each write makes an edge, which a multishot poll reports.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// Announces that the reactor will sleep. False when it was woken already and must not.
    pub(crate) fn sleep(&self) -> bool {
        self.0.state.compare_exchange(RUNNING, SLEEPING, SeqCst, SeqCst).is_ok()
    }

    /// True when the reactor was woken since the last call. Ends the sleep.
    pub(crate) fn awake(&self) -> bool {
        self.0.state.swap(RUNNING, SeqCst) == NOTIFIED
    }

    /// True when the reactor has been woken.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.state.load(SeqCst) == NOTIFIED
    }

    /// True when `other` wakes the same reactor.
    #[cfg(test)]
    fn pair() -> (WakeSource, Waker) {
        let source = WakeSource::new().unwrap();
        let waker = source.waker();
        (source, waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(source: &WakeSource) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&source.0.eventfd, &mut count).is_ok()
    }

    #[test]
    fn only_a_sleeper_costs_a_system_call() {
        let (source, waker) = WakeSource::pair();
        waker.wake();
        waker.wake();
        assert!(!writes(&source));
        assert!(!source.sleep(), "slept through a wake-up");
        assert!(source.awake());
        assert!(!source.awake());
        assert!(source.sleep());
        waker.wake();
        waker.wake();
        assert!(writes(&source));
        assert!(source.awake());
    }
}
