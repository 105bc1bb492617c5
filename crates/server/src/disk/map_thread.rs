//! A device's map: a database whose calls block, on threads of its own.
//!
//! What changes or lists the map is done by one thread, in the order in which the store asks. Lookups
//! ([`Effect::is_lookup`]) are done by others, beside that (decision 0035).

use crate::driver::commands::Command;
use crate::driver::messages::Handle;
use azekura_base::DeviceId;
use azekura_store::{Done, Effect, IoId, MapError, SavedMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Threads that do lookups. Each waits for the device, so they are more than processors (decision 0035).
const READERS: usize = 8;

/// The way to the threads; they end, with the database closed, when this is dropped.
pub struct MapThread {
    ways: Option<Ways>,
    threads: Vec<JoinHandle<()>>,
}

struct Ways {
    /// To the thread that does one thing after the other.
    in_order: mpsc::Sender<Effect>,
    /// To those that do lookups.
    lookups: mpsc::Sender<Effect>,
}

impl MapThread {
    /// Starts the threads. What they do is reported to the data plane as [`Command::MapDone`].
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(
        device: DeviceId,
        map: impl SavedMap + Clone + Send + 'static,
        data_plane: Handle,
    ) -> io::Result<MapThread> {
        let report = move |io, done| data_plane.send(Command::MapDone(device, io, done));
        MapThread::spawn(&format!("map-{device}"), &map, &report)
    }

    fn spawn<M: SavedMap + Clone + Send + 'static>(
        name: &str,
        map: &M,
        report: &(impl Fn(IoId, Done) + Clone + Send + 'static),
    ) -> io::Result<MapThread> {
        // After a panic nothing is known of what the database has in memory: it is not asked again.
        let panicked = Arc::new(AtomicBool::new(false));
        let (in_order, effects) = mpsc::channel::<Effect>();
        let (lookups, wanted) = mpsc::channel::<Effect>();
        let wanted = Arc::new(Mutex::new(wanted));
        let mut threads = Vec::new();
        let mut work = Work { map: map.clone(), panicked: panicked.clone() };
        let report_done = report.clone();
        threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(effect) = effects.recv() {
                work.perform(effect).into_iter().for_each(|(io, done)| report_done(io, done));
            }
        })?);
        for reader in 0..READERS {
            let mut work = Work { map: map.clone(), panicked: panicked.clone() };
            let (wanted, report_done) = (wanted.clone(), report.clone());
            let next = move || wanted.lock().unwrap_or_else(PoisonError::into_inner).recv();
            threads.push(std::thread::Builder::new().name(format!("{name}-r{reader}")).spawn(move || {
                while let Ok(effect) = next() {
                    work.perform(effect).into_iter().for_each(|(io, done)| report_done(io, done));
                }
            })?);
        }
        Ok(MapThread { ways: Some(Ways { in_order, lookups }), threads })
    }

    /// Has the database do something.
    pub fn perform(&self, effect: Effect) {
        let Some(ways) = &self.ways else { return };
        // The threads end only after their senders have been dropped; whatever else should happen to them, the store
        // gives a map up that does not answer.
        let _ = match effect {
            lookup if lookup.is_lookup() => ways.lookups.send(lookup),
            in_order => ways.in_order.send(in_order),
        };
    }
}

impl Drop for MapThread {
    fn drop(&mut self) {
        self.ways = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What one of the threads works with.
struct Work<M> {
    map: M,
    /// The database has panicked, whoever asked it.
    panicked: Arc<AtomicBool>,
}

impl<M: SavedMap> Work<M> {
    fn perform(&mut self, effect: Effect) -> Option<(IoId, Done)> {
        let failed = effect.map_error(MapError::Failed(
            "the database of the map has panicked, as the message before this one says; please report that. The device \
             is taken up again when the node is started anew"
                .into(),
        ));
        if self.panicked.load(Ordering::Acquire) {
            return failed;
        }
        let done = catch_unwind(AssertUnwindSafe(|| self.map.perform(effect)));
        done.map(Result::ok).unwrap_or_else(|_| {
            self.panicked.store(true, Ordering::Release);
            failed
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
    use azekura_store::{CheckpointBatch, CheckpointRoot, LeafImage, LeafKey, MergedOwner, SavedLeaf};
    use std::time::Duration;

    /// An empty database in which some things don't go as usual.
    #[derive(Clone, Default)]
    struct Unusual {
        /// It does not understand its pages, and panics when it looks up a leaf.
        panics: bool,
        /// Totals are compared only when it is let.
        let_totals: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
    }

    impl SavedMap for Unusual {
        fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
            Ok(None)
        }
        fn checkpoint(&mut self, _: CheckpointBatch) -> Result<(), MapError> {
            Ok(())
        }
        fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError> {
            assert!(!self.panics, "internal error: entered unreachable code");
            Ok(vec![SavedLeaf::Absent; keys.len()])
        }
        fn scan_layer(&self, _: LayerId, _: ChunkIndex, _: usize) -> Result<Vec<LeafKey>, MapError> {
            Ok(Vec::new())
        }
        fn scan_modified(
            &self,
            _: PgId,
            _: Sequence,
            _: (LayerId, ChunkIndex),
            _: usize,
        ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
            Ok(Vec::new())
        }
        fn load_merged_owners(&self, _: u32) -> Result<Vec<MergedOwner>, MapError> {
            Ok(Vec::new())
        }
        fn compare_totals(&self, _: PgId) -> Result<Option<String>, MapError> {
            if let Some(let_totals) = &self.let_totals {
                let_totals.lock().unwrap().recv().unwrap();
            }
            Ok(None)
        }
        fn for_each_leaf(&self, _: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
            Ok(())
        }
    }

    #[test]
    fn after_a_panic_of_the_database_every_effect_ends_with_an_error() {
        let (sender, received) = mpsc::channel();
        let reports = move |io, done| sender.send((io, done)).unwrap();
        let thread = MapThread::spawn("map", &Unusual { panics: true, ..Unusual::default() }, &reports).unwrap();
        let merged_owners = |io| Effect::LoadMergedOwners { io: IoId(io), segment: 0 };
        let next = || received.recv_timeout(Duration::from_secs(60)).unwrap();
        thread.perform(merged_owners(1));
        assert!(matches!(next(), (IoId(1), Done::MergedOwners(Ok(_)))));
        thread.perform(Effect::LoadLeaves { io: IoId(2), keys: Vec::new(), addresses: 1..2 });
        assert!(matches!(next(), (IoId(2), Done::Leaves(Err(MapError::Failed(why)))) if why.contains("panicked")));
        thread.perform(merged_owners(3));
        assert!(matches!(next(), (IoId(3), Done::MergedOwners(Err(MapError::Failed(_))))));
    }

    #[test]
    fn lookups_are_done_while_something_else_takes_its_time() {
        let (sender, received) = mpsc::channel();
        let reports = move |io, done| sender.send((io, done)).unwrap();
        let (let_go, waits) = mpsc::channel();
        let map = Unusual { let_totals: Some(Arc::new(Mutex::new(waits))), ..Unusual::default() };
        let thread = MapThread::spawn("map", &map, &reports).unwrap();
        let next = || received.recv_timeout(Duration::from_secs(60)).unwrap();
        thread.perform(Effect::CompareTotals { io: IoId(1), pg: PgId(1) });
        thread.perform(Effect::LoadLeaves { io: IoId(2), keys: Vec::new(), addresses: 1..2 });
        assert!(matches!(next(), (IoId(2), Done::Leaves(Ok(_)))));
        thread.perform(Effect::LoadMergedOwners { io: IoId(3), segment: 0 });
        assert!(matches!(next(), (IoId(3), Done::MergedOwners(Ok(_)))));
        let_go.send(()).unwrap();
        assert!(matches!(next(), (IoId(1), Done::Totals(Ok(None)))));
    }
}
