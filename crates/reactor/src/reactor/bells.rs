//! Watching bells, and ringing them.

use crate::{
    BellId, Event, Reactor, Stream,
    bell::{Bell, check},
    ring::Operation,
};
use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

impl<S: Stream> Reactor<S> {
    /// A bell of another process: [`Event::Rung`] follows whenever the eventfd is written to, one for all writes before
    /// a wait. Nothing is read from it, so whoever writes never finds it full.
    ///
    /// # Errors
    /// When it is no eventfd.
    pub fn watch_bell(&mut self, eventfd: OwnedFd) -> io::Result<BellId> {
        check(eventfd.as_raw_fd())?;
        let bell = self.bells.insert(Bell::new(eventfd));
        if let Some(index) = self.bells.index(bell) {
            self.watch(index);
        }
        Ok(BellId(bell))
    }

    /// A bell of another process that this one rings: see [`Reactor::ring_bell`].
    ///
    /// # Errors
    /// When it is no eventfd.
    pub fn add_bell(&mut self, eventfd: OwnedFd) -> io::Result<BellId> {
        check(eventfd.as_raw_fd())?;
        // So the kernel writes at once. Who shares it can undo that: then a thread of the kernel waits, not this one.
        rustix::io::ioctl_fionbio(&eventfd, true)?;
        Ok(BellId(self.bells.insert(Bell::new(eventfd))))
    }

    /// Rings a bell with the next wait: whoever waits for the eventfd is woken. Often before that is once.
    pub fn ring_bell(&mut self, bell: BellId) {
        if self.bells.get_mut(bell.0).is_some_and(|bell| !mem::replace(&mut bell.wanted, true)) {
            self.to_ring.push(bell);
        }
    }

    /// Called when a wait begins.
    pub(crate) fn start_ringing(&mut self) {
        let mut to_ring = mem::take(&mut self.to_ring);
        for id in to_ring.drain(..) {
            let Some(index) = self.bells.index(id.0) else { continue };
            let bell = self.bells.at(index);
            // One that is still being rung is rung again after that.
            if bell.ringing.is_some() {
                continue;
            }
            bell.wanted = false;
            let eventfd = bell.eventfd.as_raw_fd();
            let ringing = self.ring.start(Operation::Ring { bell: index, eventfd, count: Box::new(1) });
            self.bells.at(index).ringing = Some(ringing);
        }
        self.to_ring = to_ring;
    }

    /// Forgets a bell. No further event of it follows, but for one that the wait before has given already.
    pub fn remove_bell(&mut self, bell: BellId) {
        let Some(index) = self.bells.index(bell.0) else { return };
        self.bells.void(index);
        let bell = self.bells.at(index);
        bell.removed = true;
        // Who shares a bell can let a write to it wait for ever: then it would never be given back.
        for ticket in [bell.watch, bell.ringing].into_iter().flatten() {
            self.ring.cancel(ticket);
        }
        self.free_bell(index);
    }

    /// Bells that are there, with those that the kernel has not given back yet.
    #[must_use]
    pub fn bells(&self) -> usize {
        self.bells.len()
    }

    fn watch(&mut self, index: u32) {
        let bell = self.bells.at(index);
        let watch = self.ring.start(Operation::Watch { bell: index, eventfd: bell.eventfd.as_raw_fd() });
        bell.watch = Some(watch);
    }

    pub(crate) fn on_watch(&mut self, index: u32, result: &io::Result<u32>, more: bool) {
        let token = self.bells.token(index);
        let bell = self.bells.at(index);
        if !more {
            bell.watch = None;
        }
        if bell.removed {
            return self.free_bell(index);
        }
        if result.is_ok() {
            if !mem::replace(&mut bell.has_rung, true) {
                self.ready.push(Event::Rung { bell: BellId(token) });
                self.rung.push(BellId(token));
            }
            if !more {
                self.watch(index);
            }
        }
    }

    pub(crate) fn on_ring(&mut self, index: u32) {
        let bell = self.bells.at(index);
        bell.ringing = None;
        if bell.removed {
            return self.free_bell(index);
        }
        if bell.wanted {
            self.to_ring.push(BellId(self.bells.token(index)));
        }
    }

    /// From now on, bells that ring make another event.
    pub(crate) fn forget_rung(&mut self) {
        let mut rung = mem::take(&mut self.rung);
        for bell in rung.drain(..) {
            // Some may have been removed meanwhile.
            if let Some(bell) = self.bells.get_mut(bell.0) {
                bell.has_rung = false;
            }
        }
        self.rung = rung;
    }

    /// Frees the slot of a removed bell when the kernel is done with it.
    fn free_bell(&mut self, index: u32) {
        let bell = self.bells.at(index);
        if bell.removed && bell.watch.is_none() && bell.ringing.is_none() {
            self.bells.take(index);
        }
    }
}
