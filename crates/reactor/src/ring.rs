//! The io_uring and the table of operations that the kernel works on. All memory that the kernel may touch is owned
//! by that table.
#![allow(unsafe_code)]

use crate::{
    Token,
    descriptors::Receiving,
    sending::{Remaining, Sending},
    transfer::{DeviceRead, DeviceWrite},
};
use azekura_base::{Fill, Inbox};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use socket2::{SockAddr, Socket};
use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

/// `IORING_ENTER_GETEVENTS`: run pending completions even if none is waited for.
const ENTER_GETEVENTS: u32 = 1;
/// `IORING_RECVSEND_POLL_FIRST`: don't try before the socket is known to be ready.
const POLL_FIRST: u16 = 1;
/// The completion of a cancel or update request, which nobody waits for.
const CANCEL_DATA: u64 = u64::MAX;
/// A fill with more bytes than any stream buffer of an [`Inbox`] is for one payload, all of which is waited for.
const STREAM_FILL_MAX: usize = 2 * Inbox::PEEK_MAX;
/// Bytes of such a payload that are waited for at once: who looks sees whether it grows.
const PAYLOAD_FILL_MAX: usize = 1 << 20;

/// What an operation is for, and the memory that it needs. Indexes are those of the owner's slot.
pub(crate) enum Operation {
    /// Waits for wake-ups, again and again.
    Wake { eventfd: RawFd },
    /// Accepts connections, again and again where the kernel can.
    Accept { listener: u32, socket: RawFd },
    /// Connects.
    Connect { conn: u32, socket: RawFd, address: Box<SockAddr> },
    /// Receives, and with `receiving` file descriptors as well. `poll_first` when the socket is thought to be empty.
    Receive { conn: u32, socket: RawFd, fill: Fill, receiving: Option<Box<Receiving>>, poll_first: bool },
    /// Sends.
    Send { conn: u32, socket: RawFd, sending: Box<Sending> },
    /// Reads a device; `slot` is its place among the registered files.
    Read { file: u32, slot: u32, read: DeviceRead },
    /// Writes a device.
    Write { file: u32, slot: u32, write: DeviceWrite },
    /// Makes a device's former writes durable.
    Sync { file: u32, slot: u32, token: Token },
    /// Waits for an eventfd of another process, again and again.
    Watch { bell: u32, eventfd: RawFd },
    /// Writes to one.
    Ring { bell: u32, eventfd: RawFd, count: Box<u64> },
    /// Ends a sleep at the time that the ring's alarm says.
    Alarm { at: *const types::Timespec },
}

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// What a finished submission gives back.
pub(crate) struct Completion {
    /// The operation, with its memory.
    pub(crate) operation: Operation,
    /// Its result: the system call's, with errors as errors. An accept's is in `accepted`.
    pub(crate) result: io::Result<u32>,
    /// The new socket, when a connection was accepted.
    pub(crate) accepted: Option<Socket>,
    /// The file descriptors that have come with what was received.
    pub(crate) descriptors: io::Result<Vec<OwnedFd>>,
    /// True when the operation goes on and will complete again.
    pub(crate) more: bool,
    /// True when a receive left bytes in the socket.
    pub(crate) socket_nonempty: bool,
}

/// The kernel's ring and what it works on.
pub(crate) struct Ring {
    uring: IoUring,
    operations: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Submissions that did not fit into the queue; they go first at the next enter.
    overflow: VecDeque<squeue::Entry>,
    /// True on Linux 6.1 and later: multishot accept, poll-first receives.
    modern: bool,
    /// The alarm that is set, and its time by the monotonic clock.
    alarm: Option<(Ticket, Duration)>,
    /// Where the kernel looks for the alarm's time. It is there as long as the ring.
    alarm_time: Box<types::Timespec>,
}

impl Ring {
    /// Makes a ring with `entries` submissions; `basic` leaves out what Linux 5.11 lacks.
    pub(crate) fn new(entries: u32, basic: bool) -> io::Result<Ring> {
        let modern = || {
            let mut builder = IoUring::builder();
            builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_clamp().dontfork().build(entries)
        };
        let plain = || IoUring::builder().setup_clamp().dontfork().build(entries);
        let (uring, modern) = match if basic { Err(io::ErrorKind::Unsupported.into()) } else { modern() } {
            Ok(uring) => (uring, true),
            Err(_) => (plain().map_err(explain_setup)?, false),
        };
        let parameters = uring.params();
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is too old: Linux 5.11 or later is needed",
            ));
        }
        Ok(Ring {
            uring,
            operations: Vec::new(),
            free: Vec::new(),
            overflow: VecDeque::new(),
            modern,
            alarm: None,
            alarm_time: Box::new(types::Timespec::new()),
        })
    }

    /// Makes room for `count` registered files.
    pub(crate) fn register_files(&mut self, count: usize) -> io::Result<()> {
        self.uring.submitter().register_files(&vec![-1; count])
    }

    /// Puts `fd` into the registered files, or empties the place (-1).
    pub(crate) fn register_file(&mut self, slot: u32, fd: RawFd) -> io::Result<()> {
        self.uring.submitter().register_files_update(slot, &[fd]).map(drop)
    }

    /// Queues `operation`; the kernel sees it at the next [`Ring::enter`] (or now, when the queue is full).
    pub(crate) fn start(&mut self, operation: Operation) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.operations.push(None);
            u32::try_from(self.operations.len() - 1).expect("operations are bounded far below 2^32")
        });
        let place = &mut self.operations[index as usize];
        assert!(place.is_none());
        let entry = submission(place.insert(operation), self.modern).user_data(u64::from(index));
        self.push(entry);
        Ticket(index)
    }

    /// Asks the kernel to end an operation early. Its completion comes as usual.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.push(opcode::AsyncCancel::new(u64::from(ticket.0)).build().user_data(CANCEL_DATA));
    }

    /// Sees to it that a sleep that begins now ends after `timeout`, if not before.
    ///
    /// The time is kept by an operation that stays under way from sleep to sleep. A time given with each sleep would
    /// have the kernel set the processor's timer twice for it, which costs more than all the rest of a short sleep
    /// where setting it means leaving a virtual machine.
    fn set_alarm(&mut self, timeout: Duration) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        let until = now + timeout;
        match self.alarm {
            Some((_, set)) if set <= until => return,
            _ => *self.alarm_time = until.into(),
        }
        let at = &raw const *self.alarm_time;
        let ticket = match self.alarm {
            None => self.start(Operation::Alarm { at }),
            Some((ticket, _)) => {
                // Too late for one that is just going off: that ends the sleep too early, and the next sets it anew.
                let update = opcode::TimeoutUpdate::new(u64::from(ticket.0), at).flags(types::TimeoutFlags::ABS);
                let flags = if self.modern { squeue::Flags::SKIP_SUCCESS } else { squeue::Flags::empty() };
                self.push(update.build().flags(flags).user_data(CANCEL_DATA));
                ticket
            }
        };
        self.alarm = Some((ticket, until));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.overflow.is_empty() && self.try_push(&entry) {
            return;
        }
        // Queue full: let the kernel take what is there. When it can't now, the entry waits.
        let _ = self.uring.submit();
        self.push_overflow();
        if !(self.overflow.is_empty() && self.try_push(&entry)) {
            self.overflow.push_back(entry);
        }
    }

    fn push_overflow(&mut self) {
        while let Some(entry) = self.overflow.front().cloned() {
            if !self.try_push(&entry) {
                return;
            }
            self.overflow.pop_front();
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: every entry comes from `submission` for an operation in `self.operations`, or is a cancel request,
        // which refers to no memory. An operation leaves the table only in `take_completion`, when its last
        // completion has been seen, or in `drop`, which waits for all completions first. While it is in the table
        // nobody else can reach it, and all memory referred to is on the heap, so it neither moves nor is freed or
        // changed when the table grows. An alarm and its updates refer to `alarm_time`, which is as old as the ring.
        unsafe { self.uring.submission().push(entry).is_ok() }
    }

    /// True when a completion can be had without sleeping.
    pub(crate) fn is_ready(&mut self) -> bool {
        !self.uring.completion().is_empty() || self.uring.submission().taskrun()
    }

    /// Hands everything queued to the kernel and sleeps until there is a completion or `timeout` is over. A signal ends
    /// the sleep too.
    pub(crate) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.push_overflow();
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            self.set_alarm(timeout);
        }
        let (queued, overflown) = {
            let queue = self.uring.submission();
            (queue.len() as u32, queue.cq_overflow())
        };
        let sleep = timeout != Some(Duration::ZERO) && self.overflow.is_empty() && !overflown;
        // SAFETY: no flag says that there is an argument; `queued` is the number of entries in the submission queue.
        let entered =
            unsafe { self.uring.submitter().enter::<libc::sigset_t>(queued, u32::from(sleep), ENTER_GETEVENTS, None) };
        match entered {
            Ok(_) => Ok(()),
            // A signal, or the kernel wants its completions collected before it takes more.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next completion, if there is one.
    pub(crate) fn take_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.uring.completion().next()?;
            if entry.user_data() == CANCEL_DATA {
                continue;
            }
            let index = u32::try_from(entry.user_data()).expect("the kernel gives back the number that it was given");
            let more = cqueue::more(entry.flags());
            let place = &mut self.operations[index as usize];
            let mut operation = match (more, &*place) {
                (true, Some(Operation::Wake { eventfd })) => Operation::Wake { eventfd: *eventfd },
                (true, Some(Operation::Accept { listener, socket })) => {
                    Operation::Accept { listener: *listener, socket: *socket }
                }
                (true, Some(Operation::Watch { bell, eventfd })) => Operation::Watch { bell: *bell, eventfd: *eventfd },
                (true, _) => unreachable!("only wake, accept and watch are multishot"),
                (false, _) => {
                    self.free.push(index);
                    place.take().expect("one last completion an operation")
                }
            };
            if let Operation::Alarm { .. } = operation {
                self.alarm = None;
            }
            let result = match entry.result() {
                count if count >= 0 => Ok(count as u32),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            let accepted = match (&operation, &result) {
                // SAFETY: a successful accept returns a descriptor that the kernel has just made for us, once, so
                // nobody else owns it.
                (Operation::Accept { .. }, Ok(fd)) => Some(Socket::from(unsafe { OwnedFd::from_raw_fd(*fd as RawFd) })),
                _ => None,
            };
            let descriptors = match (&mut operation, &result) {
                // Once: the operation leaves the table.
                (Operation::Receive { receiving: Some(receiving), .. }, Ok(_)) => receiving.take(),
                _ => Ok(Vec::new()),
            };
            let socket_nonempty = cqueue::sock_nonempty(entry.flags());
            return Some(Completion { operation, result, accepted, descriptors, more, socket_nonempty });
        }
    }

    /// Operations under way.
    pub(crate) fn operations(&self) -> usize {
        self.operations.len() - self.free.len()
    }

    /// Ends all operations and waits until the kernel is done with their memory.
    fn drain(&mut self) -> io::Result<()> {
        for index in 0..self.operations.len() as u32 {
            if self.operations[index as usize].is_some() {
                self.cancel(Ticket(index));
            }
        }
        while self.operations() > 0 {
            self.enter(None)?;
            while self.take_completion().is_some() {}
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.drain().is_err() {
            // The kernel may still use the memory: better lost than shared.
            mem::forget(mem::take(&mut self.operations));
        }
    }
}

fn explain_setup(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring: Linux 5.11 or later is needed",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: set the sysctl kernel.io_uring_disabled to 0, and let the container's seccomp \
             profile allow io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::ENOMEM) => "no memory for io_uring: raise the limit on locked memory (ulimit -l)",
        Some(libc::EMFILE | libc::ENFILE) => "no file descriptor left for io_uring: raise the limit (ulimit -n)",
        _ => "can't set up io_uring",
    };
    io::Error::new(error.kind(), format!("{why} ({error})"))
}

/// The submission that carries `operation` on. The pointers in it are into heap memory that `operation` owns.
fn submission(operation: &mut Operation, modern: bool) -> squeue::Entry {
    match operation {
        Operation::Wake { eventfd } | Operation::Watch { eventfd, .. } => {
            opcode::PollAdd::new(types::Fd(*eventfd), libc::POLLIN as u32).multi(true).build()
        }
        Operation::Ring { eventfd, count, .. } => {
            let count: *const u64 = &raw const **count;
            opcode::Write::new(types::Fd(*eventfd), count.cast(), size_of::<u64>() as u32).build()
        }
        Operation::Accept { socket, .. } if modern => {
            opcode::AcceptMulti::new(types::Fd(*socket)).flags(libc::SOCK_CLOEXEC).build()
        }
        Operation::Accept { socket, .. } => {
            opcode::Accept::new(types::Fd(*socket), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Operation::Connect { socket, address, .. } => {
            opcode::Connect::new(types::Fd(*socket), address.as_ptr().cast(), address.len()).build()
        }
        Operation::Receive { socket, fill, receiving: Some(receiving), poll_first, .. } => {
            let room = &mut fill.buf[fill.at..];
            let header = receiving.aim(room.as_mut_ptr(), room.len().min(PAYLOAD_FILL_MAX));
            let ioprio = if *poll_first && modern { POLL_FIRST } else { 0 };
            let flags = libc::MSG_CMSG_CLOEXEC as u32;
            opcode::RecvMsg::new(types::Fd(*socket), header).flags(flags).ioprio(ioprio).build()
        }
        Operation::Receive { socket, fill, receiving: None, poll_first, .. } => {
            let room = &mut fill.buf[fill.at..];
            let flags = if room.len() > STREAM_FILL_MAX { libc::MSG_WAITALL } else { 0 };
            let ioprio = if *poll_first && modern { POLL_FIRST } else { 0 };
            let len = room.len().min(PAYLOAD_FILL_MAX) as u32;
            opcode::Recv::new(types::Fd(*socket), room.as_mut_ptr(), len).flags(flags).ioprio(ioprio).build()
        }
        Operation::Send { socket, sending, .. } => {
            // With MSG_WAITALL the kernel goes on with a short send by itself.
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            match sending.remaining() {
                Remaining::One(start, len) => {
                    let len = len.min(1 << 30) as u32;
                    opcode::Send::new(types::Fd(*socket), start, len).flags(flags).build()
                }
                Remaining::Many(header) => opcode::SendMsg::new(types::Fd(*socket), header).flags(flags as u32).build(),
            }
        }
        Operation::Read { slot, read, .. } => {
            let (offset, start, len) = read.remaining();
            opcode::Read::new(types::Fixed(*slot), start, len).offset(offset).build()
        }
        Operation::Write { slot, write, .. } => {
            let flags = if write.durable { libc::RWF_DSYNC } else { 0 };
            match write.remaining() {
                (offset, [one]) if one.iov_len <= 1 << 30 => {
                    opcode::Write::new(types::Fixed(*slot), one.iov_base.cast(), one.iov_len as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build()
                }
                (offset, many) => opcode::Writev::new(types::Fixed(*slot), many.as_ptr(), many.len() as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Operation::Alarm { at } => opcode::Timeout::new(*at).flags(types::TimeoutFlags::ABS).build(),
        Operation::Sync { slot, .. } => {
            opcode::Fsync::new(types::Fixed(*slot)).flags(types::FsyncFlags::DATASYNC).build()
        }
    }
}
