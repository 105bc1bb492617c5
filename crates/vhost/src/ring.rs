//! Split virtqueues (virtio 2.7), as a device sees them.

use crate::chain::{Chain, DESCRIPTOR_BYTES};
use crate::fault::Fault;
use crate::inflight::Inflight;
use crate::memory::{Place, Regions};
use crate::message::RingAt;
use std::sync::atomic::{Ordering, fence};

/// The driver wants no call (VIRTQ_AVAIL_F_NO_INTERRUPT, virtio 2.7.7).
const NO_CALL: u16 = 1;
/// This side wants no kick (VIRTQ_USED_F_NO_NOTIFY, virtio 2.7.10).
const NO_KICK: u16 = 1;
/// Bytes of flags and index, before the entries of what is available and of what is used.
const HEAD: usize = 4;
/// Bytes of an entry of what is available.
const AVAILABLE_BYTES: usize = 2;
/// Bytes of an entry of what is used.
const USED_BYTES: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Places {
    descriptors: Place,
    available: Place,
    used: Place,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// Indirect tables (VIRTIO_F_INDIRECT_DESC).
    pub indirect: bool,
    /// Kicks and calls by index (VIRTIO_F_EVENT_IDX, virtio 2.7.7 and 2.7.10).
    pub event_idx: bool,
}

/// What a ring works on.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The guest's memory.
    pub regions: &'a Regions,
    /// The record of what is under way, if there is one.
    pub inflight: Option<&'a Inflight>,
    /// What was negotiated.
    pub features: RingFeatures,
}

/// A ring. No index of it is read twice, and none of this side is read back.
#[derive(Debug)]
pub struct Ring {
    queue: usize,
    entries: u16,
    at: Option<RingAt>,
    places: Option<Places>,
    /// The next entry to take of what is available, counted without end.
    next: u16,
    /// Entries used, counted without end.
    used: u16,
    /// Heads of chains that are under way.
    busy: Vec<bool>,
    under_way: u16,
    /// Chains begun: what was begun before has a smaller number.
    begun: u64,
    wants_no_kick: bool,
}

impl Ring {
    /// A ring of a queue, of which nothing is known yet.
    #[must_use]
    pub fn new(queue: usize) -> Ring {
        Ring {
            queue,
            entries: 0,
            at: None,
            places: None,
            next: 0,
            used: 0,
            busy: Vec::new(),
            under_way: 0,
            begun: 0,
            wants_no_kick: false,
        }
    }

    /// Sets the number of entries.
    pub fn set_entries(&mut self, entries: u16) {
        self.entries = entries;
        self.busy = vec![false; entries.into()];
    }

    /// Sets where it is.
    pub fn set_addresses(&mut self, at: RingAt) {
        self.at = Some(at);
    }

    /// Sets the next entry to take.
    pub fn set_base(&mut self, base: u16) {
        self.next = base;
    }

    /// The next entry to take.
    #[must_use]
    pub fn base(&self) -> u16 {
        self.next
    }

    /// Chains that were taken and not put back.
    #[must_use]
    pub fn under_way(&self) -> u16 {
        self.under_way
    }

    /// It has a size and addresses.
    #[must_use]
    pub fn is_described(&self) -> bool {
        self.at.is_some() && self.entries > 0
    }

    /// Looks its addresses up, in memory that is new to it. What is not there is missed by whoever uses the ring. All
    /// of what was used is logged: an earlier process may have ended between writing some of it and logging that.
    pub fn locate(&mut self, regions: &Regions) -> Result<(), Fault> {
        self.places = None;
        let Some(RingAt { descriptors, available, used, .. }) = self.at else { return Ok(()) };
        if !(descriptors.is_multiple_of(16) && available.is_multiple_of(2) && used.is_multiple_of(4)) {
            return Err(Fault::Alignment);
        }
        // Behind the entries there is one more number, for kicks and calls by index.
        let entries = usize::from(self.entries);
        let find = |address, len| regions.of_user(address, len).ok_or(Fault::NotInMemory);
        self.places = Some(Places {
            descriptors: find(descriptors, entries * DESCRIPTOR_BYTES)?,
            available: find(available, HEAD + entries * AVAILABLE_BYTES + 2)?,
            used: find(used, HEAD + entries * USED_BYTES + 2)?,
        });
        self.mark_all(regions);
        Ok(())
    }

    /// Logs all of what was used.
    pub fn mark_all(&self, regions: &Regions) {
        self.mark(regions, 0, HEAD + usize::from(self.entries) * USED_BYTES + 2);
    }

    /// Logs that so many bytes were written, from this one of what was used on.
    fn mark(&self, regions: &Regions, from: usize, len: usize) {
        if let Some(log) = self.at.and_then(|at| at.log) {
            // What has no place in the log is missed there.
            regions.mark(log.saturating_add(from as u64), len);
        }
    }

    fn places(&self) -> Result<Places, Fault> {
        self.places.ok_or(Fault::NotInMemory)
    }

    /// Begins to use it. Gives the heads that an earlier connection had taken and not put back, the first first: they
    /// are under way again.
    pub fn start(&mut self, cx: Context<'_>) -> Result<Vec<u16>, Fault> {
        self.locate(cx.regions)?;
        let places = self.places()?;
        self.used = cx.regions.load(places.used.plus(2)).ok_or(Fault::NotInMemory)?;
        let mut again = Vec::new();
        if let Some(inflight) = cx.inflight {
            if self.entries > inflight.entries() {
                return Err(Fault::Unrecorded);
            }
            (again, self.begun) = inflight.recover(self.queue, self.entries, self.used);
            self.next = self.used.wrapping_add(again.len() as u16);
        }
        for head in &again {
            self.busy[usize::from(*head)] = true;
        }
        self.under_way += again.len() as u16;
        self.wants_no_kick = false;
        self.store_used(cx)?;
        Ok(again)
    }

    fn store_used(&self, cx: Context<'_>) -> Result<(), Fault> {
        let flags = if self.wants_no_kick { NO_KICK } else { 0 };
        cx.regions.store(self.places()?.used, flags, self.used).ok_or(Fault::NotInMemory)?;
        self.mark(cx.regions, 0, HEAD);
        Ok(())
    }

    /// What is available and was not taken.
    fn waiting(&self, cx: Context<'_>) -> Result<u16, Fault> {
        let available = cx.regions.load(self.places()?.available.plus(2)).ok_or(Fault::NotInMemory)?;
        let waiting = available.wrapping_sub(self.next);
        if waiting > self.entries { Err(Fault::Overrun(waiting)) } else { Ok(waiting) }
    }

    /// Takes the next chain that is available, by its head.
    pub fn take(&mut self, cx: Context<'_>) -> Result<Option<u16>, Fault> {
        if self.waiting(cx)? == 0 {
            return Ok(None);
        }
        let entry = usize::from(self.next % self.entries);
        let at = self.places()?.available.plus(HEAD + entry * AVAILABLE_BYTES);
        let head = cx.regions.load(at).ok_or(Fault::NotInMemory)?;
        let busy = self.busy.get_mut(usize::from(head)).ok_or(Fault::Descriptor(head))?;
        if std::mem::replace(busy, true) {
            return Err(Fault::Busy(head));
        }
        self.next = self.next.wrapping_add(1);
        self.under_way += 1;
        self.begun += 1;
        if let Some(inflight) = cx.inflight {
            inflight.begin(self.queue, head, self.begun);
        }
        Ok(Some(head))
    }

    /// The chain of a head that is under way.
    pub fn chain(&self, cx: Context<'_>, head: u16) -> Result<Chain, Fault> {
        Chain::read(cx.regions, self.places()?.descriptors, self.entries, head, cx.features.indirect)
    }

    /// Gives a chain back, of which so many bytes were written. True when the driver wants to be called (virtio 2.7.7).
    pub fn put(&mut self, cx: Context<'_>, head: u16, written: u32) -> Result<bool, Fault> {
        let places = self.places()?;
        let mut element = [0; USED_BYTES];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&written.to_le_bytes());
        let entry = HEAD + usize::from(self.used % self.entries) * USED_BYTES;
        if let Some(inflight) = cx.inflight {
            inflight.ending(self.queue, head);
        }
        cx.regions.write_at(places.used.plus(entry), &element).ok_or(Fault::NotInMemory)?;
        self.mark(cx.regions, entry, USED_BYTES);
        self.used = self.used.wrapping_add(1);
        self.store_used(cx)?;
        self.busy[usize::from(head)] = false;
        self.under_way -= 1;
        if let Some(inflight) = cx.inflight {
            inflight.ended(self.queue, head, self.used);
        }
        // The driver may be about to wait for a call: either it sees what was used, or its wish is seen here.
        fence(Ordering::SeqCst);
        let end = places.available.plus(HEAD + usize::from(self.entries) * AVAILABLE_BYTES);
        if cx.features.event_idx {
            let event = cx.regions.load(end).ok_or(Fault::NotInMemory)?;
            return Ok(event == self.used.wrapping_sub(1));
        }
        Ok(cx.regions.load(places.available).ok_or(Fault::NotInMemory)? & NO_CALL == 0)
    }

    /// The driver need not kick, for what is available is looked at anyway (virtio 2.7.10).
    pub fn want_no_kick(&mut self, cx: Context<'_>) -> Result<(), Fault> {
        // By index nothing is to be done: no index that comes now is the one that a kick is wanted for.
        if cx.features.event_idx || self.wants_no_kick {
            return Ok(());
        }
        self.wants_no_kick = true;
        self.store_used(cx)
    }

    /// The driver is to kick when it makes more available. True when it has done so meanwhile, perhaps without a kick.
    pub fn want_kick(&mut self, cx: Context<'_>) -> Result<bool, Fault> {
        if cx.features.event_idx {
            let end = HEAD + usize::from(self.entries) * USED_BYTES;
            let event = self.next.to_le_bytes();
            cx.regions.write_at(self.places()?.used.plus(end), &event).ok_or(Fault::NotInMemory)?;
            self.mark(cx.regions, end, event.len());
        } else if self.wants_no_kick {
            self.wants_no_kick = false;
            self.store_used(cx)?;
        }
        // The driver may be about to leave a kick out: either it sees the wish, or what it has made is seen here.
        fence(Ordering::SeqCst);
        Ok(self.waiting(cx)? > 0)
    }
}
