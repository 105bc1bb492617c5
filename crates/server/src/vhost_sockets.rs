//! Sockets of volumes that are made while the node runs, and are there again when it has been started anew.
//!
//! They are the node's own business: a path means something on its machine alone. So what was asked for is in the data
//! folder (`vhost.json`), and the configuration is told of it as of other doors. All of them are in one folder, which
//! an option names: who administers the cluster makes and removes files there, and nowhere else on the machine.

use crate::args::NodeArgs;
use crate::disk::files::write_json;
use crate::driver::commands::{Command, DoorWish};
use crate::driver::messages::Handles;
use crate::listeners::{Access, ClientListener};
use crate::shards::Shards;
use azekura_base::{NodeId, VolumeId};
use azekura_meta::MetaClient;
use azekura_model::{Endpoint, Model};
use azekura_nvme::Controllers;
use azekura_reactor::UnixDoor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// The file in the data folder.
const FILE: &str = "vhost.json";
/// Bytes of a socket's path (unix(7): `sun_path` has 108, with a zero at its end).
const PATH_BYTES_MAX: usize = 107;
/// Sockets that a node makes so.
const SOCKETS_MAX: usize = 1024;
/// Pause before the configuration is told again that could not be.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Socket {
    /// The volume's number: the next one of its name is another.
    volume: u64,
    /// Its name.
    name: String,
    path: PathBuf,
}

/// What the file says.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    sockets: Vec<Socket>,
}

/// See the module's description.
pub struct VhostSockets {
    file: PathBuf,
    /// Where they are; `None`: nobody has named a folder.
    folder: Option<PathBuf>,
    access: Access,
    shards: Handles,
    controllers: Arc<Controllers>,
    client: MetaClient,
    node: NodeId,
    /// The doors that options ask for.
    options: Vec<Endpoint>,
    /// Those that were asked for, in their order, and the paths of those that are open.
    sockets: Mutex<(Vec<Socket>, BTreeSet<PathBuf>)>,
    /// The configuration is to be told.
    changed: watch::Sender<()>,
}

/// The path that is meant by what somebody has called a socket, or why there is none.
fn place(folder: Option<&Path>, volume: &str, socket: Option<&str>) -> Result<PathBuf, String> {
    let folder = folder.ok_or("it has no folder for sockets: start it with --vhost-folder")?;
    // A project's volume has its name behind the project's.
    let own = format!("{}.sock", volume.replace('/', "-"));
    let named = Path::new(socket.unwrap_or(&own));
    let name = if named.is_absolute() { named.strip_prefix(folder).ok() } else { Some(named) };
    let is_plain = |name: &&Path| matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    let name = name.filter(is_plain).ok_or_else(|| {
        format!("{} is not in its folder for sockets, which is {} (--vhost-folder)", named.display(), folder.display())
    })?;
    let path = folder.join(name);
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        return Err(format!(
            "{} has {bytes} bytes, and the path of a socket has {PATH_BYTES_MAX} at the most: call it by a shorter name",
            path.display()
        ));
    }
    Ok(path)
}

/// Why nobody can listen at a path, in words that say what to do.
fn why_not_there(path: &Path, error: &io::Error) -> String {
    let parent = path.parent().unwrap_or(Path::new("/"));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            format!("{} is there and is no socket: remove it, or name another one", path.display())
        }
        Ok(_) if error.kind() == io::ErrorKind::AddrInUse => {
            format!("somebody listens at {} already: end that, or name another one", path.display())
        }
        _ if !parent.is_dir() => format!("there is no folder {}: make it", parent.display()),
        _ => error.to_string(),
    }
}

impl VhostSockets {
    /// Opens those that were asked for before. One that can't be opened is said to be so, and stays asked for.
    pub async fn start(
        args: &NodeArgs,
        data: &Path,
        data_plane: &Shards,
        client: MetaClient,
        node: NodeId,
    ) -> anyhow::Result<Arc<VhostSockets>> {
        let file = data.join(FILE);
        let kept: Kept = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| anyhow::anyhow!("{} is damaged: {error}; remove it", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(anyhow::anyhow!("can't read {}: {error}", file.display())),
        };
        anyhow::ensure!(kept.version <= 1, "{} has version {}, this program knows 1", file.display(), kept.version);
        let made = VhostSockets {
            file,
            folder: args.vhost_folder.clone(),
            access: Access::of(args.vhost_socket_mode, args.vhost_socket_group.clone()),
            shards: data_plane.handles(),
            controllers: data_plane.controllers(),
            client,
            node,
            options: ClientListener::endpoints(args),
            sockets: Mutex::default(),
            changed: watch::Sender::new(()),
        };
        let mut sockets = made.sockets.lock().await;
        let known = made.client.model();
        for socket in kept.sockets {
            if !is_there(&known, &socket) {
                continue;
            }
            match made.open(&socket).await {
                Ok(()) => {
                    sockets.1.insert(socket.path.clone());
                }
                Err(why) => tracing::warn!("volume {} is not served by vhost-user: {why}", socket.name),
            }
            sockets.0.push(socket);
        }
        drop(sockets);
        Ok(Arc::new(made))
    }

    /// Tells the configuration where clients connect, and closes sockets whose volumes are gone. `configured` moves
    /// with what the node knows of the configuration; this ends with it.
    pub async fn follow(self: Arc<VhostSockets>, mut configured: watch::Receiver<u64>) {
        let mut changed = self.changed.subscribe();
        changed.mark_changed();
        loop {
            tokio::select! {
                news = changed.changed() => {
                    if news.is_err() {
                        return;
                    }
                    let endpoints = self.endpoints().await;
                    if let Err(error) = self.client.set_node_endpoints(self.node, &endpoints).await {
                        tracing::debug!("can't tell where clients connect yet: {error}");
                        tokio::time::sleep(RETRY_PAUSE).await;
                        changed.mark_changed();
                    }
                }
                news = configured.changed() => {
                    if news.is_err() {
                        return;
                    }
                    self.forget_deleted().await;
                }
            }
        }
    }

    async fn endpoints(&self) -> Vec<Endpoint> {
        let sockets = self.sockets.lock().await;
        let open = sockets.0.iter().filter(|socket| sockets.1.contains(&socket.path));
        let endpoint = |socket: &Socket| {
            let address = format!("{}{}", Endpoint::UNIX_PREFIX, socket.path.display());
            Endpoint::of_volume(Endpoint::VHOST_USER, &socket.name, &address)
        };
        self.options.iter().cloned().chain(open.map(endpoint)).collect()
    }

    /// Whoever comes to the socket of a volume that is gone would come to the next one of its name.
    async fn forget_deleted(&self) {
        let known = self.client.model();
        let mut sockets = self.sockets.lock().await;
        let (left, gone): (Vec<_>, Vec<_>) = sockets.0.drain(..).partition(|socket| is_there(&known, socket));
        sockets.0 = left;
        if gone.is_empty() {
            return;
        }
        for socket in &gone {
            self.close(socket, &mut sockets.1);
        }
        if let Err(error) = self.keep(&sockets.0) {
            // They are left out at the next start as well.
            tracing::warn!("{error}");
        }
        self.changed.send_replace(());
    }

    fn keep(&self, sockets: &[Socket]) -> Result<(), String> {
        write_json(&self.file, &Kept { version: 1, sockets: sockets.to_vec() }).map_err(|error| format!("{error:#}"))
    }

    /// To listen may take a moment, so it is not done by the shard.
    async fn open(&self, socket: &Socket) -> Result<(), String> {
        let (path, access) = (socket.path.clone(), self.access.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let no = |error: &io::Error| why_not_there(&path, error);
            let is_other = |found: fs::Metadata| !found.file_type().is_socket();
            if fs::symlink_metadata(&path).is_ok_and(is_other) {
                return Err(no(&io::ErrorKind::AlreadyExists.into()));
            }
            let door = UnixDoor::open(&path).map_err(|error| no(&error))?;
            access.apply(&path).map_err(|error| no(&error))?;
            Ok(door)
        });
        let door = opened.await.map_err(|error| error.to_string())??;
        let speak = ClientListener::vhost_user(socket.name.clone(), Arc::clone(&self.controllers));
        self.shards.first().send(Command::Door(DoorWish::Open(socket.path.clone(), door, speak)));
        Ok(())
    }

    fn close(&self, socket: &Socket, open: &mut BTreeSet<PathBuf>) {
        if open.remove(&socket.path) {
            self.shards.first().send(Command::Door(DoorWish::Close(socket.path.clone())));
        }
    }

    /// Serves a volume at a socket; else why not. What is so already is no error.
    pub async fn expose(&self, name: String, socket: Option<String>) -> Result<(), String> {
        let path = place(self.folder.as_deref(), &name, socket.as_deref())?;
        let volume = self.client.model().volumes.get(&name).map(|volume| volume.id.0);
        let socket = Socket { volume: volume.ok_or("there is no such volume")?, name, path };
        let mut sockets = self.sockets.lock().await;
        let known = sockets.0.iter().position(|other| other.path == socket.path);
        let is_socket = fs::symlink_metadata(&socket.path).is_ok_and(|found| found.file_type().is_socket());
        let is_open = sockets.1.contains(&socket.path) && is_socket;
        match known.map(|index| &sockets.0[index]) {
            Some(other) if *other == socket && is_open => return Ok(()),
            Some(other) if *other != socket => {
                return Err(format!("volume {} is served at {}: name another one", other.name, other.path.display()));
            }
            // It could not be opened before, or somebody has removed its file.
            Some(_) => self.close(&socket, &mut sockets.1),
            None if sockets.0.len() >= SOCKETS_MAX => {
                return Err(format!("it has {SOCKETS_MAX} of them, which is the most: take one back"));
            }
            None => {}
        }
        self.open(&socket).await?;
        sockets.1.insert(socket.path.clone());
        if known.is_none() {
            sockets.0.push(socket.clone());
            if let Err(why) = self.keep(&sockets.0) {
                self.close(&socket, &mut sockets.1);
                sockets.0.pop();
                return Err(why);
            }
        }
        drop(sockets);
        self.tell().await;
        Ok(())
    }

    /// No longer at this socket, or at none; else why not.
    pub async fn unexpose(&self, name: String, socket: Option<String>) -> Result<(), String> {
        let path = socket.map(|socket| place(self.folder.as_deref(), &name, Some(&socket))).transpose()?;
        let mut sockets = self.sockets.lock().await;
        let is_meant = |other: &Socket| other.name == name && path.as_ref().is_none_or(|path| *path == other.path);
        let (gone, left): (Vec<Socket>, Vec<Socket>) = sockets.0.iter().cloned().partition(is_meant);
        if gone.is_empty() {
            return Err("no socket of it there was made by 'azekura volume expose'".to_owned());
        }
        self.keep(&left)?;
        sockets.0 = left;
        gone.iter().for_each(|socket| self.close(socket, &mut sockets.1));
        drop(sockets);
        self.tell().await;
        Ok(())
    }

    /// Tells the configuration before the answer, so that whoever has it finds the socket there; later, where that
    /// can't be reached.
    async fn tell(&self) {
        let endpoints = self.endpoints().await;
        let told = tokio::time::timeout(RETRY_PAUSE, self.client.set_node_endpoints(self.node, &endpoints)).await;
        if !matches!(told, Ok(Ok(_))) {
            self.changed.send_replace(());
        }
    }
}

fn is_there(model: &Model, socket: &Socket) -> bool {
    model.volumes.get(&socket.name).is_some_and(|volume| volume.id == VolumeId(socket.volume))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sockets_are_in_their_folder() {
        let folder = Some(Path::new("/run/azekura"));
        let of = |socket| place(folder, "vm1", socket);
        assert_eq!(of(None), Ok("/run/azekura/vm1.sock".into()));
        assert_eq!(place(folder, "accounts/db", None), Ok("/run/azekura/accounts-db.sock".into()));
        assert_eq!(of(Some("root")), Ok("/run/azekura/root".into()));
        assert_eq!(of(Some("/run/azekura/root")), Ok("/run/azekura/root".into()));
        for elsewhere in ["/run/root", "../root", "a/b", "/run/azekura/../root", "", ".", "..", "/run/azekura"] {
            assert!(of(Some(elsewhere)).unwrap_err().contains("not in its folder"), "{elsewhere}");
        }
        assert!(place(None, "vm1", None).unwrap_err().contains("--vhost-folder"));
        let longest = "x".repeat(PATH_BYTES_MAX - "/run/azekura/".len());
        assert!(of(Some(&longest)).is_ok());
        assert!(of(Some(&format!("{longest}x"))).unwrap_err().contains("108 bytes"));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let in_use = io::Error::from(io::ErrorKind::AddrInUse);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(why_not_there(&file, &in_use).contains("is no socket: remove it"));
        let socket = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(why_not_there(&socket, &in_use).contains("somebody listens"));
        let nowhere = folder.path().join("none/socket");
        assert!(why_not_there(&nowhere, &io::ErrorKind::NotFound.into()).contains("none: make it"));
        assert_eq!(why_not_there(&folder.path().join("new"), &io::Error::other("why")), "why");
    }
}
