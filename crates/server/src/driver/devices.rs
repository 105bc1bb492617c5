//! The devices of the data plane: what their stores ask for, and what comes of it.

use crate::disk::map_thread::MapThread;
use crate::driver::commands::ReadyDevice;
use crate::driver::dataplane::DataPlane;
use crate::opening::out_of_service;
use anyhow::Context;
use azekura_base::DeviceId;
use azekura_reactor::{FileId, Token};
use azekura_store as store;
use std::io;

/// A device, opened by the loop's thread.
pub(super) struct OpenDevice {
    /// The log.
    file: FileId,
    /// The map's thread.
    map: MapThread,
}

impl DataPlane {
    /// Takes a device in. One whose log or map can't be had is reported.
    pub(crate) fn add_device(&mut self, device: ReadyDevice) {
        let ReadyDevice { id, dir, log, store, map, .. } = device;
        let path = dir.log_path();
        let file = self.reactor.add_device(log);
        let opened = file.with_context(|| format!("can't take in the log {}", path.display())).and_then(|file| {
            let map = MapThread::start(id, map, self.handle()).context("can't start the map's thread")?;
            Ok(OpenDevice { file, map })
        });
        match opened {
            Ok(device) => {
                self.devices.insert(id, device);
                self.node.add_device(id, store);
            }
            Err(error) => self.report(out_of_service(id, &error)),
        }
    }

    pub(super) fn store_effect(&mut self, id: DeviceId, effect: store::Effect) {
        let Some(device) = self.devices.get(&id) else { return };
        let token = |io: store::IoId| Token { owner: id.0, number: io.0 };
        match effect {
            store::Effect::Write { io, offset, pieces, durable } => {
                self.reactor.write(device.file, offset, pieces, durable, token(io));
            }
            store::Effect::Read { io, offset, len } => self.reactor.read(device.file, offset, len, token(io)),
            store::Effect::Flush { io } => self.reactor.sync(device.file, token(io)),
            for_the_map => device.map.perform(for_the_map),
        }
    }

    /// An operation of a device is done.
    pub(super) fn io_done(&mut self, token: Token, done: store::Done) {
        self.node.store_done(DeviceId(token.owner), store::IoId(token.number), done);
    }
}

/// What a device did, as its store is told.
pub(super) fn device_result<T>(result: io::Result<T>) -> Result<T, store::DeviceError> {
    result.map_err(|error| store::DeviceError(error.to_string()))
}
