//! The devices of the data plane: what their stores ask for, and what comes of it.

use crate::disk::map_thread::MapThread;
use crate::driver::dataplane::DataPlane;
use crate::opening::{ReadyDevice, out_of_service};
use anyhow::Context;
use azekura_base::DeviceId;
use azekura_reactor::{DeviceOptions, FileId};
use azekura_store as store;
use bytes::Bytes;
use std::io;

/// A device, opened by the loop's thread.
pub(super) struct OpenDevice {
    /// The log.
    file: FileId,
    /// The map's thread.
    map: MapThread,
}

/// A device operation under way: what the reactor's token means.
pub(super) type DeviceIo = (DeviceId, store::IoId, IoKind);

#[derive(Clone, Copy)]
pub(super) enum IoKind {
    Write,
    Flush,
    Read,
}

impl DataPlane {
    /// Takes a device in. One whose log or map can't be had is reported.
    pub(crate) fn add_device(&mut self, device: ReadyDevice) {
        let ReadyDevice { id, dir, store, map, .. } = device;
        let path = dir.log_path();
        let file = self.reactor.open_device(&path, DeviceOptions::default());
        let opened = file.with_context(|| format!("can't open the log {}", path.display())).and_then(|file| {
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
        match effect {
            store::Effect::Write { io, offset, pieces, durable } => {
                let token = self.io.insert((id, io, IoKind::Write));
                self.reactor.write(device.file, offset, pieces, durable, token);
            }
            store::Effect::Read { io, offset, len } => {
                let token = self.io.insert((id, io, IoKind::Read));
                self.reactor.read(device.file, offset, len, token);
            }
            store::Effect::Flush { io } => {
                let token = self.io.insert((id, io, IoKind::Flush));
                self.reactor.sync(device.file, token);
            }
            for_the_map => device.map.perform(for_the_map),
        }
    }

    pub(super) fn device_read(&mut self, token: u64, result: io::Result<Bytes>) {
        if let Some((device, io, IoKind::Read)) = self.io.remove(token) {
            let result = result.map_err(|error| store::DeviceError(error.to_string()));
            self.node.store_done(device, io, store::Done::Read(result));
        }
    }

    pub(super) fn device_written(&mut self, token: u64, result: io::Result<()>) {
        let result = result.map_err(|error| store::DeviceError(error.to_string()));
        match self.io.remove(token) {
            Some((device, io, IoKind::Flush)) => self.node.store_done(device, io, store::Done::Flushed(result)),
            Some((device, io, _)) => self.node.store_done(device, io, store::Done::Written(result)),
            None => {}
        }
    }
}
