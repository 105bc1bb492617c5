//! Bells: eventfds (eventfd(2)) of other processes, that ring here or are rung from here.

use crate::ring::Ticket;
use std::{
    fs, io,
    os::fd::{OwnedFd, RawFd},
};

/// What the kernel calls an eventfd.
const EVENTFD: &str = "anon_inode:[eventfd]";

pub(crate) struct Bell {
    pub(crate) eventfd: OwnedFd,
    /// Its watch, while there is one.
    pub(crate) watch: Option<Ticket>,
    /// It is to be rung.
    pub(crate) wanted: bool,
    /// The write that rings it, while one is under way.
    pub(crate) ringing: Option<Ticket>,
    /// It has rung since the last wait.
    pub(crate) has_rung: bool,
    pub(crate) removed: bool,
}

impl Bell {
    pub(crate) fn new(eventfd: OwnedFd) -> Bell {
        Bell { eventfd, watch: None, wanted: false, ringing: None, has_rung: false, removed: false }
    }
}

/// Another kind of file could be ready all the time, or hold up who writes to it.
pub(crate) fn check(eventfd: RawFd) -> io::Result<()> {
    let kind = fs::read_link(format!("/proc/self/fd/{eventfd}"))?;
    if kind.to_str() == Some(EVENTFD) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no eventfd: {}", kind.display())))
}
