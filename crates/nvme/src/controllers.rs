//! The controllers of a process, whose queues may come on connections to any of its shards.
//!
//! A controller is here from the Connect of its admin queue until that connection is gone. Queues of it are looked up
//! when they connect, and then have what all of them share; nobody waits for anything here, and no request comes by but
//! to say that its host lives. When a controller's queues have to end together, that is said as a party of the front
//! end ([`azekura_frontend::Event::Leads`]).

use crate::names::Host;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The highest number of a controller (CNTLID): higher ones mean something else (Base section 6.3).
pub const ID_MAX: u16 = 0xffef;

#[derive(Debug)]
struct Inner {
    by_id: BTreeMap<u16, Arc<Shared>>,
    /// Counts controllers.
    made: u64,
    /// The state of the numbers' generator.
    seed: u64,
}

/// The controllers of a process.
#[derive(Debug)]
pub struct Controllers {
    inner: Mutex<Inner>,
    cluster: OnceLock<u128>,
}

/// What the queues of a controller share.
#[derive(Debug)]
pub struct Shared {
    /// Its number in the process, which no other one has, nor had.
    pub number: u64,
    /// CNTLID.
    pub id: u16,
    /// Whose it is.
    pub host: Host,
    /// SUBNQN.
    pub subsystem: String,
    is_enabled: AtomicBool,
    was_heard: AtomicBool,
    /// How many I/O queues there may be, and those that have connected since the controller was enabled.
    queues: Mutex<(u16, BTreeSet<u16>)>,
}

/// Why a queue can't connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQueue {
    /// There is no such controller in this subsystem.
    NoController,
    /// It is another host's.
    OtherHost,
    /// It is not enabled.
    NotEnabled,
    /// It has that queue, or may not have one of that number.
    Queue,
}

impl Shared {
    /// The controller takes commands on I/O queues, or does not.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Release);
    }

    /// Whether it does.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    /// A command has come on one of its queues.
    pub fn heard(&self) {
        // All queues write the same: only the first does.
        if !self.was_heard.load(Ordering::Relaxed) {
            self.was_heard.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one has come since this was asked last.
    #[must_use]
    pub fn take_heard(&self) -> bool {
        self.was_heard.swap(false, Ordering::Relaxed)
    }

    /// So many I/O queues there may be.
    pub fn allow_queues(&self, most: u16) {
        lock(&self.queues).0 = most;
    }

    /// How many there may be.
    #[must_use]
    pub fn queues_max(&self) -> u16 {
        lock(&self.queues).0
    }

    /// True once a queue has connected: from then on their number stays.
    #[must_use]
    pub fn has_queues(&self) -> bool {
        !lock(&self.queues).1.is_empty()
    }

    /// All queues are gone, and nothing of theirs is under way.
    pub fn forget_queues(&self) {
        lock(&self.queues).1.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A controller that is here as long as this is.
#[derive(Debug)]
pub struct Registered {
    controllers: Arc<Controllers>,
    /// What its queues share.
    pub shared: Arc<Shared>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.enable(false);
        lock(&self.controllers.inner).by_id.remove(&self.shared.id);
    }
}

impl Controllers {
    /// There are none. Their numbers follow from the seed: nodes with other seeds have others, since a host that has
    /// controllers of one subsystem at several nodes must not see a number twice.
    #[must_use]
    pub fn new(seed: u64) -> Controllers {
        let inner = Inner { by_id: BTreeMap::new(), made: 0, seed };
        Controllers { inner: Mutex::new(inner), cluster: OnceLock::new() }
    }

    /// The cluster's number is known.
    pub fn set_cluster(&self, cluster: u128) {
        // It does not change while a process lives.
        let _ = self.cluster.set(cluster);
    }

    /// The cluster's number.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        self.cluster.get().copied().unwrap_or_default()
    }

    /// A new controller, which may have so many I/O queues. `None`: there are as many as there are numbers.
    #[must_use]
    pub fn begin(self: &Arc<Self>, subsystem: &str, host: Host, queues_max: u16) -> Option<Registered> {
        let mut inner = lock(&self.inner);
        if inner.by_id.len() >= usize::from(ID_MAX) {
            return None;
        }
        let id = loop {
            let id = next(&mut inner.seed);
            if !inner.by_id.contains_key(&id) {
                break id;
            }
        };
        inner.made += 1;
        let shared = Arc::new(Shared {
            number: inner.made,
            id,
            host,
            subsystem: subsystem.to_owned(),
            is_enabled: AtomicBool::new(false),
            was_heard: AtomicBool::new(true),
            queues: Mutex::new((queues_max, BTreeSet::new())),
        });
        inner.by_id.insert(id, Arc::clone(&shared));
        Some(Registered { controllers: Arc::clone(self), shared })
    }

    /// An I/O queue connects to a controller. No other one has its number then, before the controller is reset.
    ///
    /// # Errors
    /// When it can't.
    pub fn join(&self, id: u16, subsystem: &str, host: &Host, queue: u16) -> Result<Arc<Shared>, NoQueue> {
        let found = lock(&self.inner).by_id.get(&id).cloned();
        let shared = found.filter(|shared| shared.subsystem == subsystem).ok_or(NoQueue::NoController)?;
        if shared.host != *host {
            return Err(NoQueue::OtherHost);
        }
        if !shared.is_enabled() {
            return Err(NoQueue::NotEnabled);
        }
        {
            let mut queues = lock(&shared.queues);
            if queue == 0 || queue > queues.0 || !queues.1.insert(queue) {
                return Err(NoQueue::Queue);
            }
        }
        Ok(shared)
    }

    /// Controllers that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.inner).by_id.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The next number of a controller: as good as random (splitmix64), so that nodes rarely have the same, and that one
/// that was used is not soon used again.
fn next(seed: &mut u64) -> u16 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed % u64::from(ID_MAX)) as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: u8) -> Host {
        Host { name: "nqn.2000-01.example:me".to_owned(), id: [id; 16] }
    }

    #[test]
    fn a_controller_is_there_as_long_as_its_admin_queue() {
        let controllers = Arc::new(Controllers::new(7));
        let one = controllers.begin("sub", host(1), 2).expect("there is room");
        let id = one.shared.id;
        let join = |queue| controllers.join(id, "sub", &host(1), queue).map(|shared| shared.number);
        assert_eq!(join(1), Err(NoQueue::NotEnabled));
        one.shared.enable(true);
        assert_eq!((join(1), join(2)), (Ok(1), Ok(1)));
        assert_eq!((join(1), join(0), join(3)), (Err(NoQueue::Queue), Err(NoQueue::Queue), Err(NoQueue::Queue)));
        assert_eq!(controllers.join(id, "sub", &host(2), 1).err(), Some(NoQueue::OtherHost));
        assert_eq!(controllers.join(id, "other", &host(1), 1).err(), Some(NoQueue::NoController));
        one.shared.forget_queues();
        assert_eq!(join(1), Ok(1));
        drop(one);
        assert_eq!((join(2), controllers.is_empty()), (Err(NoQueue::NoController), true));
    }

    #[test]
    fn numbers_are_possible_and_others_on_other_nodes() {
        let numbers = |seed| {
            let mut seed = seed;
            (0..1000).map(|_| next(&mut seed)).collect::<Vec<u16>>()
        };
        assert!(numbers(1).iter().all(|id| (1..=ID_MAX).contains(id)));
        let same = numbers(1).iter().zip(numbers(2)).filter(|(one, other)| **one == *other).count();
        assert!(same < 5, "{same}");
    }
}
