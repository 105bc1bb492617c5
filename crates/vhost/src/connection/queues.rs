//! The queues of a connection, and which of them have something to be taken.

use crate::chain::Chain;
use crate::fault::Fault;
use crate::inflight::Inflight;
use crate::log::Log;
use crate::memory::Regions;
use crate::message::{RingAt, Violation};
use crate::ring::{Context, Ring, RingFeatures};
use std::collections::VecDeque;

/// One queue.
///
/// A ring runs from its kick's eventfd on (Protocol, *Ring states*) until its base is asked for; and nothing is taken
/// from one that is not enabled.
struct Queue {
    ring: Ring,
    is_enabled: bool,
    has_kick: bool,
    runs: bool,
    has_call: bool,
    /// It is among those that are looked at.
    is_active: bool,
    /// Chains of an earlier connection, to be looked at before any other.
    again: VecDeque<u16>,
}

impl Queue {
    fn new(queue: usize) -> Queue {
        Queue {
            ring: Ring::new(queue),
            is_enabled: false,
            has_kick: false,
            runs: false,
            has_call: false,
            is_active: false,
            again: VecDeque::new(),
        }
    }
}

/// The queues, and what they work on.
#[derive(Default)]
pub(super) struct Queues {
    regions: Regions,
    has_regions: bool,
    inflight: Option<Inflight>,
    features: RingFeatures,
    /// Queues need not be enabled.
    all_enabled: bool,
    /// The volume is open, so that rings may begin.
    may_begin: bool,
    /// A ring waits for that.
    waits: bool,
    all: Vec<Queue>,
    /// Those that are looked at, in turn.
    active: VecDeque<usize>,
}

fn at(queue: usize) -> impl Fn(Fault) -> Violation {
    move |fault| Violation::Ring { queue, fault }
}

impl Queues {
    fn context<'a>(
        regions: &'a Regions,
        inflight: &'a Option<Inflight>,
        features: RingFeatures,
        queue: usize,
    ) -> Context<'a> {
        Context { regions, inflight: inflight.as_ref().filter(|inflight| inflight.has(queue)), features }
    }

    /// A queue's ring, and what it works on.
    fn ring(&mut self, queue: usize) -> (&mut Queue, Context<'_>) {
        while self.all.len() <= queue {
            self.all.push(Queue::new(self.all.len()));
        }
        let cx = Queues::context(&self.regions, &self.inflight, self.features, queue);
        (&mut self.all[queue], cx)
    }

    /// The guest's memory.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// What was negotiated; queues need not be enabled; and what is written is to be logged.
    pub fn set_features(&mut self, features: RingFeatures, all_enabled: bool, logs: bool) {
        (self.features, self.all_enabled) = (features, all_enabled);
        self.regions.set_logs(logs);
    }

    /// What is written is to be logged.
    pub fn log(&self) -> bool {
        self.regions.logs()
    }

    /// What is written is logged here from now on.
    pub fn set_log(&mut self, log: Log) {
        self.regions.set_log(log);
        for queue in 0..self.all.len() {
            let (it, cx) = self.ring(queue);
            if it.runs {
                it.ring.mark_all(cx.regions);
            }
        }
    }

    /// A ring has all that it needs, but for the volume.
    pub fn wait(&self) -> bool {
        self.waits
    }

    /// The volume is open: rings that have waited begin.
    pub fn open(&mut self) -> Result<(), Violation> {
        (self.may_begin, self.waits) = (true, false);
        (0..self.all.len()).try_for_each(|queue| self.begin(queue))
    }

    /// The volume is not to be used any more. All rings stand.
    pub fn close(&mut self) {
        (self.may_begin, self.waits) = (false, false);
    }

    /// No ring runs or is about to, and nothing of any is under way.
    pub fn stand(&self) -> bool {
        self.all.iter().all(|it| !it.has_kick && it.ring.under_way() == 0)
    }

    /// The guest's memory is this from now on.
    pub fn set_regions(&mut self, regions: Regions) -> Result<(), Violation> {
        self.regions.become_like(regions);
        self.has_regions = true;
        for queue in 0..self.all.len() {
            let (it, cx) = self.ring(queue);
            if it.runs {
                it.ring.locate(cx.regions).map_err(at(queue))?;
            } else {
                self.begin(queue)?;
            }
        }
        Ok(())
    }

    /// The record of what is under way is this from now on, for rings that begin later.
    pub fn set_inflight(&mut self, inflight: Inflight) {
        self.inflight = Some(inflight);
    }

    /// Whether a ring runs: then its size and base stay.
    pub fn runs(&mut self, queue: usize) -> bool {
        let (it, _) = self.ring(queue);
        it.runs || it.ring.under_way() > 0
    }

    /// A ring has so many entries.
    pub fn set_entries(&mut self, queue: usize, entries: u16) -> Result<(), Violation> {
        self.ring(queue).0.ring.set_entries(entries);
        self.begin(queue)
    }

    /// A ring goes on from there.
    pub fn set_base(&mut self, queue: usize, base: u16) {
        self.ring(queue).0.ring.set_base(base);
    }

    /// A ring is there.
    pub fn set_addresses(&mut self, queue: usize, addresses: RingAt) -> Result<(), Violation> {
        let (it, cx) = self.ring(queue);
        it.ring.set_addresses(addresses);
        if it.runs {
            return it.ring.locate(cx.regions).map_err(at(queue));
        }
        self.begin(queue)
    }

    /// A queue has an eventfd for its kicks.
    pub fn set_kick(&mut self, queue: usize) -> Result<(), Violation> {
        self.ring(queue).0.has_kick = true;
        self.begin(queue)?;
        self.activate(queue);
        Ok(())
    }

    /// A queue has an eventfd for calls, or has none any more.
    pub fn set_call(&mut self, queue: usize, has_call: bool) {
        self.ring(queue).0.has_call = has_call;
    }

    /// A queue is enabled, or not any more.
    pub fn enable(&mut self, queue: usize, enabled: bool) {
        self.ring(queue).0.is_enabled = enabled;
        self.activate(queue);
    }

    /// No queue is enabled.
    pub fn disable_all(&mut self) {
        self.all_enabled = false;
        self.all.iter_mut().for_each(|queue| queue.is_enabled = false);
    }

    /// A ring begins when all is there that it needs.
    fn begin(&mut self, queue: usize) -> Result<(), Violation> {
        let (has_regions, may_begin) = (self.has_regions, self.may_begin);
        let (it, cx) = self.ring(queue);
        if it.runs || !it.has_kick || !it.ring.is_described() || !has_regions {
            return Ok(());
        }
        if !may_begin {
            self.waits = true;
            return Ok(());
        }
        it.again = it.ring.start(cx).map_err(at(queue))?.into();
        it.runs = true;
        self.activate(queue);
        Ok(())
    }

    /// Nothing more is taken from a ring. True when nothing of it is under way either.
    pub fn stop(&mut self, queue: usize) -> bool {
        let (it, _) = self.ring(queue);
        (it.runs, it.has_kick) = (false, false);
        it.ring.under_way() == 0
    }

    /// What would be taken next from a ring.
    pub fn base(&mut self, queue: usize) -> u16 {
        self.ring(queue).0.ring.base()
    }

    /// There may be something in a queue.
    pub fn activate(&mut self, queue: usize) {
        let (it, _) = self.ring(queue);
        if !std::mem::replace(&mut it.is_active, true) {
            self.active.push_back(queue);
        }
    }

    /// The next chain: its queue and its head. Each queue has its turn. None while what is written is to be logged and
    /// there is no log: QEMU sends it after the rings when it has connected anew.
    pub fn next(&mut self) -> Result<Option<(usize, u16)>, Violation> {
        if self.regions.wants_log() {
            return Ok(None);
        }
        while let Some(queue) = self.active.front().copied() {
            let all_enabled = self.all_enabled;
            let (it, cx) = self.ring(queue);
            let takes = it.runs && (it.is_enabled || all_enabled);
            let mut head = it.again.pop_front();
            if head.is_none() && takes {
                head = it.ring.take(cx).map_err(at(queue))?;
            }
            if let Some(head) = head {
                it.ring.want_no_kick(cx).map_err(at(queue))?;
                self.active.rotate_left(1);
                return Ok(Some((queue, head)));
            }
            if !takes || !it.ring.want_kick(cx).map_err(at(queue))? {
                it.is_active = false;
                self.active.pop_front();
            }
        }
        Ok(None)
    }

    /// The chain of a head.
    pub fn chain(&mut self, queue: usize, head: u16) -> Result<Chain, Violation> {
        let (it, cx) = self.ring(queue);
        it.ring.chain(cx, head).map_err(at(queue))
    }

    /// Gives a chain back, of which so many bytes were written. True when the client is to be called.
    pub fn put(&mut self, queue: usize, head: u16, written: u32) -> Result<bool, Violation> {
        let (it, cx) = self.ring(queue);
        Ok(it.ring.put(cx, head, written).map_err(at(queue))? && it.has_call)
    }

    /// Nothing of a ring is under way.
    pub fn is_idle(&mut self, queue: usize) -> bool {
        self.ring(queue).0.ring.under_way() == 0
    }
}
