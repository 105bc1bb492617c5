//! The node's data folder: `lock` (held while a process uses it), `node.json` (who the node is), `device-N` folders,
//! `vhost.json` (sockets that were made while it ran), and `config.redb` where this node serves the configuration.

use crate::disk::device::DeviceDir;
use crate::disk::disks::Disk;
use crate::disk::files::write_json;
use crate::disk::room;
use crate::random;
use anyhow::{Context, Result, bail, ensure};
use azekura_base::NodeId;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// Who a node is, kept in its data folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeFile {
    /// Version of this file's format.
    pub version: u32,
    /// The data folder's own identity.
    pub uuid: String,
    /// The cluster, as 32 hexadecimal digits; `None` before it has joined one.
    pub cluster: Option<String>,
    /// Its number in the cluster.
    pub id: Option<NodeId>,
    /// Raised at each start.
    pub incarnation: u64,
}

/// Devices that a start may make.
#[derive(Clone, Debug)]
pub enum NewDevices {
    None,
    /// Files of `size` bytes in the data folder, where there is no device at all.
    Files {
        size: u64,
        count: u32,
    },
    /// One on each of these that is no device yet.
    Disks(Vec<Disk>),
}

/// Devices of a node that the cluster knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    None,
    Some,
}

/// The database of the configuration server in a data folder.
#[must_use]
pub fn config_database(folder: &Path) -> PathBuf {
    folder.join("config.redb")
}

/// A data folder that this process has to itself.
pub struct DataFolder {
    path: PathBuf,
    /// What `node.json` says.
    pub file: NodeFile,
    _lock: File,
}

impl DataFolder {
    /// Opens the folder, or makes it, and counts this start. The cluster counts them, too: in a folder of one of its
    /// nodes the count need not be kept, should there be no room for it.
    ///
    /// # Errors
    /// When another process uses it, it can't be read, or a new one can't be written.
    pub fn open(path: &Path) -> Result<DataFolder> {
        std::fs::create_dir_all(path).with_context(|| format!("can't make the data folder {}", path.display()))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .with_context(|| format!("can't write {}", lock_path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "the data folder {} is in use by another azekura process; stop it, or give this one its own --data",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("can't lock {}", lock_path.display()));
            }
        }
        let json = path.join("node.json");
        let mut file = match std::fs::read_to_string(&json) {
            Ok(text) => serde_json::from_str::<NodeFile>(&text).with_context(|| {
                format!("{} is damaged; restore it from a backup, or give the node a new data folder", json.display())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => NodeFile {
                version: 1,
                uuid: format!("{:032x}", random::bits()),
                cluster: None,
                id: None,
                incarnation: 0,
            },
            Err(error) => return Err(error).with_context(|| format!("can't read {}", json.display())),
        };
        ensure!(file.version == 1, "{} has version {}, this program knows 1", json.display(), file.version);
        file.incarnation += 1;
        let folder = DataFolder { path: path.to_owned(), file, _lock: lock };
        folder.save(folder.file.id.is_some())?;
        Ok(folder)
    }

    /// Keeps the node's number and cluster, and its count of starts as the cluster has it.
    ///
    /// # Errors
    /// When the folder can't be written, and did not say which node of which cluster this is.
    pub fn joined(&mut self, cluster: &str, id: NodeId, incarnation: u64) -> Result<()> {
        let known = self.file.cluster.as_deref() == Some(cluster) && self.file.id == Some(id);
        (self.file.cluster, self.file.id) = (Some(cluster.to_owned()), Some(id));
        self.file.incarnation = incarnation;
        self.save(known)
    }

    /// Writes `node.json`. Where only the count of starts is new (`known`), it is not missed.
    fn save(&self, known: bool) -> Result<()> {
        let saved = write_json(&self.path.join("node.json"), &self.file);
        match saved {
            Err(error) if known => {
                tracing::warn!(
                    "{error:#}; the node starts all the same. Its devices need room for their maps: make some"
                );
                Ok(())
            }
            saved => saved,
        }
    }

    /// Refuses another cluster than the one that the folder belongs to.
    ///
    /// # Errors
    /// Names both clusters.
    pub fn check_cluster(&self, cluster: u128) -> Result<()> {
        let hex = format!("{cluster:032x}");
        match &self.file.cluster {
            Some(mine) if *mine != hex => bail!(
                "the data folder {} belongs to cluster {mine}, but the configuration server is that of cluster {hex}; \
                 check --config, or give the node another data folder",
                self.path.display()
            ),
            _ => Ok(()),
        }
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database of the configuration server.
    #[must_use]
    pub fn config_database(&self) -> PathBuf {
        config_database(&self.path)
    }

    /// The socket of the REST API, for who may do everything with the node anyway.
    #[must_use]
    pub fn local_door(&self) -> PathBuf {
        self.path.join("api.sock")
    }

    /// The numbers of the devices that there are, ascending.
    fn device_numbers(&self) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        let entries = std::fs::read_dir(&self.path).with_context(|| format!("can't read {}", self.path.display()))?;
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("device-")?.parse::<u32>().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// How many devices [`DataFolder::devices`] gives at the most.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn device_count(&self, new: &NewDevices) -> Result<usize> {
        let there = self.device_numbers()?;
        Ok(match new {
            NewDevices::Files { count, .. } if there.is_empty() => *count as usize,
            NewDevices::Files { .. } | NewDevices::None => there.len(),
            NewDevices::Disks(disks) => there.len() + self.unused(disks, &there).len(),
        })
    }

    /// The disks that are no device's yet.
    fn unused<'a>(&self, disks: &'a [Disk], numbers: &[u32]) -> Vec<&'a Disk> {
        let is_used = |disk: &Disk| numbers.iter().any(|number| disk.is(&self.named(*number).1.join("log")));
        disks.iter().filter(|disk| !is_used(disk)).collect()
    }

    /// A device's name and folder.
    fn named(&self, number: u32) -> (String, PathBuf) {
        let name = format!("device-{number}");
        let path = self.path.join(&name);
        (name, path)
    }

    /// The names and folders of the devices, in the order of their numbers, with those that are made now. What is in
    /// the folders of the others has not been looked at.
    ///
    /// A disk that can't be taken keeps no node from serving what it has on others: that is logged. A node whose disks
    /// were named, and that gets none of them, does not start. Where patterns alone are given, machines without a blank
    /// disk are expected: such a node has no devices, and serves the volumes that others keep.
    ///
    /// Where `known` devices of the node are all away, no file takes their place: perhaps a file system is not mounted.
    ///
    /// # Errors
    /// When the folder can't be read, or a node's first devices can't be made.
    pub fn devices(&self, new: &NewDevices, known: Known) -> Result<Vec<(String, PathBuf)>> {
        let mut numbers = self.device_numbers()?;
        match new {
            NewDevices::Files { .. } if numbers.is_empty() && known == Known::Some => {
                let path = self.path.display();
                tracing::error!(
                    "none of the node's devices is in {path}, and no new one is made in their place: is a file system not \
                     mounted there? Then stop the node, mount it, and start the node. If the devices are gone for good, \
                     'mkdir {path}/device-0' and a start make a new one"
                );
            }
            NewDevices::Files { size, count } if numbers.is_empty() => {
                room::check(&self.path, *size, *count)?;
                numbers = (0..*count).collect();
                numbers.iter().try_for_each(|number| DeviceDir::create(&self.named(*number).1, *size).map(drop))?;
            }
            NewDevices::Disks(disks) => self.take(disks, &mut numbers)?,
            NewDevices::Files { .. } | NewDevices::None => {}
        }
        Ok(numbers.into_iter().map(|number| self.named(number)).collect())
    }

    /// Makes devices of the disks that are none yet.
    fn take(&self, disks: &[Disk], numbers: &mut Vec<u32>) -> Result<()> {
        let mut refused = Vec::new();
        for disk in self.unused(disks, numbers) {
            let number = numbers.last().map_or(0, |last| last + 1);
            let (name, path) = self.named(number);
            match DeviceDir::create_on_disk(&path, &disk.path) {
                Ok(_) => {
                    tracing::info!(device = %name, "{name} is made on {}", disk.path.display());
                    numbers.push(number);
                }
                Err(error) => {
                    // A pattern may well mean a disk that is somebody else's.
                    if disk.named {
                        tracing::error!("{error:#}; the node goes on without this disk");
                    } else {
                        tracing::info!("{error:#}");
                    }
                    refused.push(format!("{error:#}"));
                }
            }
        }
        let why = if refused.is_empty() { "no disk was found".to_owned() } else { refused.join("; ") };
        let named = disks.iter().any(|disk| disk.named);
        ensure!(
            !(named && numbers.is_empty()),
            "none of the disks (--disk) can be used, and the node has no others: {why}"
        );
        if numbers.is_empty() {
            tracing::warn!("none of the disks that --disk means can be used, so this node keeps no data: {why}");
        }
        Ok(())
    }
}
