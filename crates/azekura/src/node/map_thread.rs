//! A device's map: a database whose calls block, on a thread of its own.

use super::dataplane::{Command, Handle};
use azekura_base::DeviceId;
use azekura_store::{Effect, SavedMap};
use std::io;
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
    pub fn start(
        device: DeviceId,
        mut map: impl SavedMap + Send + 'static,
        data_plane: Handle,
    ) -> io::Result<MapThread> {
        let (sender, effects) = mpsc::channel::<Effect>();
        let work = move || {
            while let Ok(effect) = effects.recv() {
                if let Ok((io, done)) = map.perform(effect) {
                    data_plane.send(Command::MapDone(device, io, done));
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("map-{device}")).spawn(work)?;
        Ok(MapThread { effects: Some(sender), thread: Some(thread) })
    }

    /// Has the database do something.
    pub fn perform(&self, effect: Effect) {
        if let Some(effects) = &self.effects {
            // The thread ends only after its sender has been dropped.
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
