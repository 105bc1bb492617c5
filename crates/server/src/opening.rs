//! Opening a node's devices when the node starts.
//!
//! All are opened side by side, and the node waits for them for a while only: a device may hang, or its map may have
//! to be read whole after an unclean stop. The node serves what the others hold, and such a device follows when it is
//! open.

use crate::disk::device::{DeviceDir, DeviceLost, Limits};
use crate::disk::layers_file;
use crate::driver::commands::ReadyDevice;
use crate::driver::messages::{Report, Reports};
use anyhow::{Context, Result};
use azekura_base::{DeviceId, Shard};
use azekura_meta::MetaClient;
use azekura_meta::cluster::DeviceSpec;
use azekura_meta::time::now_rfc3339;
use azekura_model::{DeviceFailure, DeviceRecord, FailureKind, Kind, MetaError};
use azekura_node::{Breakdown, Identity};
use azekura_reactor::{DeviceFile, DeviceOptions};
use azekura_store::Options;
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};

/// The node starts without devices that are not open after so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// While a device is being opened, people are told so often.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The devices of a node that starts.
pub struct Opened {
    /// Those that are open.
    pub ready: Vec<ReadyDevice>,
    /// Those that follow.
    pub late: mpsc::UnboundedReceiver<ReadyDevice>,
}

/// What is needed to open devices.
#[derive(Clone)]
pub struct Opener {
    /// The configuration.
    pub client: MetaClient,
    /// The node, as its first shard.
    pub identity: Identity,
    /// How many shards it has.
    pub shards: NonZeroU8,
    /// Of each device.
    pub limits: Limits,
    /// A device that is not open after so long is out of service until it is.
    pub timeout: Duration,
    /// Where it is told what became of a device.
    pub reports: Reports,
}

type Reading = JoinHandle<Result<DeviceDir>>;

/// A device's name, and the shard that is to have it: the devices are dealt out in the order of their numbers.
struct Named {
    name: String,
    shard: Shard,
}

impl Opener {
    /// Registers and opens the devices with these names and folders; one that was only begun is made of `size` bytes.
    /// What can't be opened, or is not there any more, is reported, and the node does without it.
    ///
    /// # Errors
    /// When a device belongs to another cluster, or the configuration can't be reached.
    pub async fn open_all(&self, folders: Vec<(String, PathBuf)>, size: Option<u64>) -> Result<Opened> {
        let shards = (0..self.shards.get()).map(Shard).cycle();
        let begin = |((name, path), shard): ((String, PathBuf), Shard)| {
            let reading: Reading = spawn_blocking(move || DeviceDir::open_or_finish(&path, size));
            (Named { name, shard }, reading)
        };
        let reading: Vec<(Named, Reading)> = folders.into_iter().zip(shards).map(begin).collect();
        let deadline = Instant::now() + PATIENCE;
        let (mut dirs, mut silent) = (Vec::new(), Vec::new());
        for (name, mut reading) in reading {
            match timeout_at(deadline, &mut reading).await {
                Ok(dir) => dirs.push((name, dir.context("reading a device's folder failed")?)),
                Err(_) => silent.push((name, reading)),
            }
        }
        self.note_missing(&dirs, &silent).await?;
        for (_, dir) in &dirs {
            dir.iter().for_each(|dir| note_other_size(dir, size));
        }
        let mut opening = JoinSet::new();
        for (name, dir) in dirs {
            if let Some((id, dir)) = self.register(&name, dir).await? {
                opening.spawn(self.clone().open(name.shard, id, dir));
            }
        }
        for (name, reading) in silent {
            opening.spawn(self.clone().open_silent(name, reading));
        }
        let mut ready = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while let Ok(Some(opened)) = timeout_at(deadline, opening.join_next()).await {
            ready.extend(opened.context("opening a device failed")?);
        }
        ready.sort_unstable_by_key(|device| device.id);
        let (sender, late) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(opened) = opening.join_next().await {
                let device = opened.unwrap_or_else(|error| {
                    tracing::error!("opening a device failed: {error}");
                    None
                });
                // Nobody waits for it while the process ends.
                device.into_iter().for_each(|device| drop(sender.send(device)));
            }
        });
        Ok(Opened { ready, late })
    }

    /// Takes up a device whose folder could be read; `None` for one that the node does without.
    async fn register(&self, named: &Named, dir: Result<DeviceDir>) -> Result<Option<(DeviceId, DeviceDir)>> {
        let Named { name, shard } = named;
        let dir = match dir {
            Ok(dir) => dir,
            Err(error) => {
                match self.called(name) {
                    Some(device) => self.out_of_service(device, &error),
                    None => tracing::error!(device = %name, "{error:#}; the node goes on without {name}"),
                }
                return Ok(None);
            }
        };
        let model = self.client.model();
        if dir.file.id.is_some() && !model.devices.values().any(|record| record.uuid == dir.file.uuid) {
            let error = MetaError::Removed { kind: Kind::Device, name: name.clone() };
            let hint = error.hint().unwrap_or_default();
            tracing::error!(device = %name, "{error}: {hint}; the node goes on without {}", dir.path().display());
            return Ok(None);
        }
        dir.check_cluster(self.identity.cluster)?;
        let spec = DeviceSpec {
            uuid: dir.file.uuid.clone(),
            node: self.identity.endpoint.node,
            shard: *shard,
            name: name.clone(),
            capacity_bytes: dir.options().device_bytes(),
            usable_bytes: dir.options().usable_bytes(),
        };
        let id = self.client.register_device(&spec).await?.id;
        Ok(Some((id, dir)))
    }

    /// Opens a registered device, however long that takes.
    async fn open(self, shard: Shard, id: DeviceId, mut dir: DeviceDir) -> Option<ReadyDevice> {
        let (cluster, limits) = (self.identity.cluster, self.limits);
        let path = dir.path().to_owned();
        let work = move || -> Result<ReadyDevice> {
            let parents = layers_file::read(dir.path()).unwrap_or_else(|error| {
                tracing::warn!(device = %id, "the layers of {} can't be read: {error}", dir.path().display());
                Vec::new()
            });
            let (store, map) = dir.open_store(cluster, id, limits)?;
            let path = dir.log_path();
            let log = DeviceFile::open(&path, DeviceOptions::default());
            let log = log.with_context(|| format!("can't open the log {}", path.display()))?;
            Ok(ReadyDevice { id, shard, dir, log, parents, store, map })
        };
        let what = format!("device {id} ({})", path.display());
        let opened = self.wait_for(&what, Some(id), spawn_blocking(work)).await;
        match opened.context("opening a device failed").flatten() {
            Ok(device) => Some(device),
            Err(error) => {
                self.out_of_service(id, &error);
                None
            }
        }
    }

    /// Opens a device whose folder has not been read in time.
    async fn open_silent(self, named: Named, reading: Reading) -> Option<ReadyDevice> {
        let name = &named.name;
        let dir = self.wait_for(name, self.called(name), reading).await.context("reading a device's folder failed");
        match self.register(&named, dir.flatten()).await {
            Ok(found) => match found {
                Some((id, dir)) => self.open(named.shard, id, dir).await,
                None => None,
            },
            Err(error) => {
                tracing::error!(device = %name, "{error:#}; the node goes on without {name}");
                None
            }
        }
    }

    /// Waits for what may never end, and says so now and then. After [`Opener::timeout`] the device counts as out of
    /// service.
    async fn wait_for<T>(&self, what: &str, device: Option<DeviceId>, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut reported = false;
        // Until the cluster knows the device, its name is all that there is.
        let named = device.map_or_else(|| what.to_owned(), |device| device.to_string());
        loop {
            let report_interval = if reported { REPORT_INTERVAL } else { REPORT_INTERVAL.min(self.timeout) };
            if let Ok(done) = timeout(report_interval, &mut work).await {
                if began.elapsed() >= REPORT_INTERVAL {
                    tracing::info!(device = named, "{what} is open after {} s", began.elapsed().as_secs());
                }
                return done;
            }
            let seconds = began.elapsed().as_secs();
            tracing::warn!(
                device = named,
                "{what} has been opening for {seconds} s; the node goes on without the device until it is open"
            );
            if let Some(device) = device.filter(|_| !reported && began.elapsed() >= self.timeout) {
                reported = true;
                self.reports.send(opens_late(device, began.elapsed()));
            }
        }
    }

    /// The node's device of this name. One that is gone for good may have left its name to another.
    fn called(&self, name: &str) -> Option<DeviceId> {
        let model = self.client.model();
        model.devices.values().find(|record| is_called(record, self.identity, name)).map(|record| record.id)
    }

    /// Notes which of the node's registered devices are not in its data folder any more. Another device may have such
    /// a one's name then.
    async fn note_missing(
        &self,
        dirs: &[(Named, Result<DeviceDir>)],
        silent: &[(Named, Reading)],
    ) -> Result<(), MetaError> {
        let model = self.client.model();
        let by_name: BTreeMap<&str, Option<&DeviceDir>> = dirs
            .iter()
            .map(|(named, dir)| (named.name.as_str(), dir.as_ref().ok()))
            .chain(silent.iter().map(|(named, _)| (named.name.as_str(), None)))
            .collect();
        let is_missing = |record: &DeviceRecord| {
            let is_it = |(name, dir): (&&str, &Option<&DeviceDir>)| match dir {
                Some(dir) => dir.file.uuid == record.uuid,
                None => is_called(record, self.identity, name),
            };
            record.node == self.identity.endpoint.node && !record.removed && !by_name.iter().any(is_it)
        };
        for record in model.devices.values().filter(|record| is_missing(record)) {
            let reason = format!("{} is not in its node's data folder any more", record.name);
            tracing::error!(device = %record.id, "device {}: {reason}", record.id);
            let failure = DeviceFailure { kind: FailureKind::Lost, reason, since: now_rfc3339() };
            self.client.note_device_failure(record.id, Some(&failure)).await?;
        }
        Ok(())
    }

    fn out_of_service(&self, device: DeviceId, error: &anyhow::Error) {
        // The reports are worked off as long as the node is up.
        self.reports.send(out_of_service(device, error));
    }
}

/// Says so when `--device-size` asks for another size than a file in the data folder has: a device keeps the one that
/// it was made with.
fn note_other_size(dir: &DeviceDir, asked: Option<u64>) {
    let has = dir.options().device_bytes();
    let asked = asked.map(|bytes| Options::for_device(bytes).device_bytes());
    if let Some(asked) = asked.filter(|asked| *asked != has && !dir.file.disk) {
        let name = dir.path().file_name().unwrap_or_default().display().to_string();
        tracing::warn!(
            device = name,
            "{name} has {} MiB and keeps that: --device-size asks for {} MiB, which is the size of new devices \
             (docs/operations/disks.md: a device of another size)",
            has >> 20,
            asked >> 20
        );
    }
}

/// The report that a device can't be used yet, although it has been asked for so long.
pub fn opens_late(device: DeviceId, silence: Duration) -> Report {
    let reason = format!(
        "it has been opening for {} s: either the drive does not answer, or the map is read whole after an unclean stop; \
         the device goes into service by itself when it is open",
        silence.as_secs()
    );
    Report::DeviceOpen(device, Err(Breakdown { reason, for_good: false }))
}

/// The report that a device can't be used.
pub fn out_of_service(device: DeviceId, error: &anyhow::Error) -> Report {
    let for_good = error.downcast_ref::<DeviceLost>().is_some();
    Report::DeviceOpen(device, Err(Breakdown { reason: format!("{error:#}"), for_good }))
}

/// It is the node's device of this name. One that is gone for good may have left its name to another.
fn is_called(record: &DeviceRecord, identity: Identity, name: &str) -> bool {
    record.node == identity.endpoint.node && record.name == name && !record.is_lost()
}
