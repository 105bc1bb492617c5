//! A device's map: a database whose calls block, on a thread of its own.

use crate::driver::messages::{Command, Handle};
use azekura_base::DeviceId;
use azekura_store::{Done, Effect, IoId, MapError, SavedMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The way to the thread; the thread ends, with the database closed, when this is dropped.
pub struct MapThread {
    effects: Option<mpsc::Sender<Effect>>,
    thread: Option<JoinHandle<()>>,
}

impl MapThread {
    /// Starts the thread. What it does is reported to the data plane as [`Command::MapDone`].
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(device: DeviceId, map: impl SavedMap + Send + 'static, data_plane: Handle) -> io::Result<MapThread> {
        let told = move |io, done| data_plane.send(Command::MapDone(device, io, done));
        MapThread::spawn(format!("map-{device}"), map, told)
    }

    fn spawn(
        name: String,
        mut map: impl SavedMap + Send + 'static,
        told: impl Fn(IoId, Done) + Send + 'static,
    ) -> io::Result<MapThread> {
        let (sender, effects) = mpsc::channel::<Effect>();
        let work = move || {
            // After a panic nothing is known of what the database has in memory: it is not asked again.
            let mut panicked = false;
            while let Ok(effect) = effects.recv() {
                let failed = effect.map_error(MapError::Failed(
                    "the database of the map has panicked, as the message before this one says; please report that. \
                     The device is taken up again when the node is started anew"
                        .into(),
                ));
                let done = match panicked {
                    false => {
                        catch_unwind(AssertUnwindSafe(|| map.perform(effect))).map(Result::ok).unwrap_or_else(|_| {
                            panicked = true;
                            failed
                        })
                    }
                    true => failed,
                };
                done.into_iter().for_each(|(io, done)| told(io, done));
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(MapThread { effects: Some(sender), thread: Some(thread) })
    }

    /// Has the database do something.
    pub fn perform(&self, effect: Effect) {
        if let Some(effects) = &self.effects {
            // The thread ends only after its sender has been dropped; whatever else should happen to it, the store
            // gives a map up that does not answer.
            let _ = effects.send(effect);
        }
    }
}

impl Drop for MapThread {
    fn drop(&mut self) {
        self.effects = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
    use azekura_store::{CheckpointBatch, CheckpointRoot, Heir, LeafImage, LeafKey, SavedLeaf};
    use std::time::Duration;

    /// A database that meets a page it does not understand.
    struct Panicking;

    impl SavedMap for Panicking {
        fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
            Ok(None)
        }
        fn checkpoint(&mut self, _: CheckpointBatch) -> Result<(), MapError> {
            Ok(())
        }
        fn load_leaves(&self, _: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError> {
            panic!("internal error: entered unreachable code")
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
        fn load_heirs(&self, _: u32) -> Result<Vec<Heir>, MapError> {
            Ok(Vec::new())
        }
        fn compare_totals(&self, _: PgId) -> Result<Option<String>, MapError> {
            Ok(None)
        }
        fn for_each_leaf(&self, _: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
            Ok(())
        }
    }

    #[test]
    fn after_a_panic_of_the_database_every_effect_ends_with_an_error() {
        let (sender, told) = mpsc::channel();
        let thread =
            MapThread::spawn("map".into(), Panicking, move |io, done| sender.send((io, done)).unwrap()).unwrap();
        let heirs = |io| Effect::LoadHeirs { io: IoId(io), segment: 0 };
        thread.perform(heirs(1));
        thread.perform(Effect::LoadLeaves { io: IoId(2), keys: Vec::new() });
        thread.perform(heirs(3));
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(next(), (IoId(1), Done::Heirs(Ok(_)))));
        assert!(matches!(next(), (IoId(2), Done::Leaves(Err(MapError::Failed(why)))) if why.contains("panicked")));
        assert!(matches!(next(), (IoId(3), Done::Heirs(Err(MapError::Failed(_))))));
    }
}
