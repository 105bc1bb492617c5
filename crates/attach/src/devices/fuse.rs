//! A file of FUSE that a program in user space serves, and a loop device of it: for kernels without NVMe/TCP.
//!
//! The program is qemu-storage-daemon, which connects again when the node restarts, and can make the file larger while
//! it is used; else nbdfuse, which can do neither. What others write at the same time is seen only past the kernel's
//! cache, and past that cache qemu-storage-daemon 7.2 gives wrong blocks (fio's verification shows it, on any disk). So
//! volumes that nodes share are nbdfuse's.
//!
//! The program lives on when this process ends. A volume's folder below the state folder has its file, its pid and its
//! socket.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::qmp::Qmp;
use super::{Attach, Wanted, Way, loops, size, wait};
use crate::mounts::{Mounts, unmount_all};
use crate::programs::{is_there, run};
use crate::{AttachError, Outcome};

const DAEMON: &str = "qemu-storage-daemon";
const NBDFUSE: &str = "nbdfuse";
/// How long requests wait for a node that restarts, seconds; then they fail.
const RECONNECT_SECONDS: u64 = 30;
/// How long programs may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest name of a socket's file, in bytes (unix(7)), without the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The way.
#[derive(Debug)]
pub(crate) struct Fuse {
    state: PathBuf,
}

/// A volume's folder, and what is in it.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
}

/// A volume's folder below the state folder: sockets have short names, and volumes may have long ones.
#[must_use]
pub fn folder(state: &Path, volume: &str) -> PathBuf {
    state.join(&blake3::hash(volume.as_bytes()).to_hex()[..16])
}

impl Place {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file that the storage daemon serves.
    fn disk(&self) -> PathBuf {
        self.file("disk")
    }

    /// The folder that nbdfuse serves its file in.
    fn files(&self) -> PathBuf {
        self.file("files")
    }

    /// The file that is served, if one is.
    fn served(&self) -> Outcome<Option<PathBuf>> {
        let mounts = Mounts::now()?;
        let (disk, files) = (self.disk(), self.files());
        if mounts.at(&disk).is_some() {
            return Ok(Some(disk));
        }
        Ok(mounts.at(&files).map(|_| files.join("nbd")))
    }

    /// Whether the program behind the file answers.
    fn is_alive(&self) -> Outcome<bool> {
        Ok(self.served()?.is_some_and(|file| fs::metadata(file).is_ok()))
    }

    fn device(&self) -> Outcome<Option<PathBuf>> {
        let (disk, files) = (self.disk(), self.files());
        match loops::find(&disk, &disk)? {
            Some(device) => Ok(Some(device)),
            None => loops::find(&files.join("nbd"), &files),
        }
    }

    /// The device that was made last, if its program has ended and has taken its file along: nothing else tells then
    /// whose the device was.
    fn abandoned(&self) -> Option<PathBuf> {
        let device = PathBuf::from(fs::read_to_string(self.file("device")).ok()?);
        loops::is_abandoned(&device).then_some(device)
    }

    fn make(&self, volume: &str) -> Outcome<()> {
        let failed = |error| AttachError::internal(format!("can't make {}: {error}", self.folder.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        fs::write(self.file("volume"), volume).map_err(failed)
    }

    /// The program of this folder, if it runs: the number may be another's by now.
    fn process(&self) -> Option<Pid> {
        let number: i32 = fs::read_to_string(self.file("pid")).ok()?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let folder = self.folder.to_string_lossy().into_owned();
        String::from_utf8_lossy(&line).contains(&folder).then(|| Pid::from_raw(number)).flatten()
    }

    /// Ends the program, which writes out what it has, and removes what is left of it.
    fn clear(&self) -> Outcome<()> {
        // nbdfuse ends when its file is unmounted, the storage daemon unmounts it when it ends.
        if Mounts::now()?.at(&self.files()).is_some() {
            unmount_all(&self.files())?;
        } else if let Some(process) = self.process() {
            let _ended_meanwhile = kill_process(process, Signal::TERM);
        }
        let ended = wait(PATIENCE, || Ok(self.process().is_none().then_some(())))?;
        if ended.is_none() {
            return Err(AttachError::late(format!(
                "the program that serves {} has not ended within {} s: does the cluster answer?",
                self.folder.display(),
                PATIENCE.as_secs()
            )));
        }
        unmount_all(&self.disk())?;
        for name in ["disk", "device", "qmp", "pid", "log", "formatting", "volume"] {
            remove(fs::remove_file(self.file(name)), &self.file(name))?;
        }
        remove(fs::remove_dir(self.files()), &self.files())?;
        remove(fs::remove_dir(&self.folder), &self.folder)
    }
}

fn remove(outcome: std::io::Result<()>, path: &Path) -> Outcome<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(AttachError::internal(format!("can't remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Whether the storage daemon serves the volume; else nbdfuse does.
fn is_daemons(wanted: &Wanted) -> bool {
    is_there(DAEMON) && !wanted.shared
}

/// The volume as a node of QEMU's.
fn block_node(name: &str, wanted: &Wanted) -> Outcome<Value> {
    let address = wanted.address_or_refusal("nbd", "--nbd")?;
    let server = match address.strip_prefix("unix:") {
        Some(path) => json!({ "type": "unix", "path": path }),
        None => {
            let bad = || AttachError::internal(format!("'{address}' is no address of NBD: HOST:PORT"));
            let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
            json!({ "type": "inet", "host": host.trim_matches(['[', ']']), "port": port })
        }
    };
    Ok(json!({
        "driver": "nbd", "node-name": name, "server": server, "export": wanted.volume,
        "reconnect-delay": RECONNECT_SECONDS, "read-only": wanted.read_only, "discard": "unmap",
    }))
}

/// What stands between the volume's node, which is replaced when the volume grows, and the file.
fn disk_node(below: &str, wanted: &Wanted) -> Value {
    json!({ "driver": "raw", "node-name": "disk", "file": below, "read-only": wanted.read_only, "discard": "unmap" })
}

impl Fuse {
    pub(crate) fn new(state: PathBuf) -> Fuse {
        Fuse { state }
    }

    fn place(&self, volume: &str) -> Place {
        Place { folder: folder(&self.state, volume) }
    }

    fn serve(place: &Place, wanted: &Wanted) -> Outcome<PathBuf> {
        place.make(&wanted.volume)?;
        if is_daemons(wanted) {
            Fuse::serve_with_daemon(place, wanted)
        } else {
            Fuse::serve_with_nbdfuse(place, wanted)
        }
    }

    fn serve_with_daemon(place: &Place, wanted: &Wanted) -> Outcome<PathBuf> {
        let (disk, socket) = (place.disk(), place.file("qmp"));
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let reason = format!("{} is too long for a socket: give a shorter --state", socket.display());
            return Err(AttachError::precondition(reason));
        }
        fs::write(&disk, b"")
            .map_err(|error| AttachError::internal(format!("can't make {}: {error}", disk.display())))?;
        let export = json!({
            "type": "fuse", "id": "export", "node-name": "disk", "mountpoint": disk, "writable": !wanted.read_only,
        });
        let first = block_node("net-0", wanted)?;
        let arguments = [
            "--daemonize".to_owned(),
            "--pidfile".to_owned(),
            place.file("pid").to_string_lossy().into_owned(),
            "--blockdev".to_owned(),
            first.to_string(),
            "--blockdev".to_owned(),
            disk_node("net-0", wanted).to_string(),
            "--chardev".to_owned(),
            format!("socket,id=qmp,path={},server=on,wait=off", socket.display()),
            "--monitor".to_owned(),
            "chardev=qmp".to_owned(),
            "--export".to_owned(),
            export.to_string(),
        ];
        run(&format!("opening volume '{}'", wanted.volume), DAEMON, arguments)?;
        Ok(disk)
    }

    fn serve_with_nbdfuse(place: &Place, wanted: &Wanted) -> Outcome<PathBuf> {
        let (files, pid) = (place.files(), place.file("pid"));
        let failed = |error| AttachError::internal(format!("can't make {}: {error}", files.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&files).map_err(failed)?;
        let address = wanted.address_or_refusal("nbd", "--nbd")?;
        let uri = match address.strip_prefix("unix:") {
            Some(path) => format!("nbd+unix:///{}?socket={path}", wanted.volume),
            None => format!("nbd://{address}/{}", wanted.volume),
        };
        remove(fs::remove_file(&pid), &pid)?;
        let file = files.join("nbd");
        // `setsid --fork` ends at once, and what it has started is nobody's child that could end with this process.
        let script = "exec >/dev/null 2>\"$1\"; shift; exec setsid --fork \"$@\"";
        let log = place.file("log");
        let words = ["-c", script, "sh"].map(std::ffi::OsStr::new);
        let mut command: Vec<&std::ffi::OsStr> = vec![log.as_os_str(), NBDFUSE.as_ref(), "--pidfile".as_ref()];
        command.push(pid.as_os_str());
        if wanted.read_only {
            command.push("--readonly".as_ref());
        }
        command.extend([file.as_os_str(), std::ffi::OsStr::new(&uri)]);
        run(&format!("opening volume '{}'", wanted.volume), "sh", words.into_iter().chain(command))?;
        match wait(PATIENCE, || Ok(place.process().filter(|_| file.exists())))? {
            Some(_) => Ok(file),
            None => Err(AttachError::unavailable(format!(
                "nbdfuse has not opened volume '{}' within {} s: {}",
                wanted.volume,
                PATIENCE.as_secs(),
                fs::read_to_string(&log).unwrap_or_default().trim()
            ))),
        }
    }
}

/// Whether the program shows all of a volume that has grown: lets it connect anew, if not. A connection keeps the size
/// that the volume had when it began.
fn shows(qmp: &mut Qmp, wanted: &Wanted) -> Outcome<bool> {
    let bytes = |node: &Value| node["image"]["virtual-size"].as_u64().unwrap_or(0);
    let nodes = block_nodes(qmp)?;
    let of = |driver: &'static str| nodes.iter().filter(move |node| node["drv"] == driver);
    if of("raw").map(bytes).max().unwrap_or(0) >= wanted.size_bytes {
        return Ok(true);
    }
    let names = |node: &Value| node["node-name"].as_str().unwrap_or_default().to_owned();
    let before: Vec<String> = of("nbd").map(names).collect();
    let number = (0..).find(|number| !before.contains(&format!("net-{number}"))).unwrap_or(0);
    let name = format!("net-{number}");
    qmp.ask("blockdev-add", &block_node(&name, wanted)?)?;
    let grown = block_nodes(qmp)?.iter().any(|node| node["node-name"] == *name && bytes(node) >= wanted.size_bytes);
    let unused = if grown {
        qmp.ask("blockdev-reopen", &json!({ "options": [disk_node(&name, wanted)] }))?;
        before
    } else {
        vec![name]
    };
    for node in unused {
        qmp.ask("blockdev-del", &json!({ "node-name": node }))?;
    }
    Ok(grown)
}

fn block_nodes(qmp: &mut Qmp) -> Outcome<Vec<Value>> {
    let nodes = qmp.ask("query-named-block-nodes", &json!({ "flat": true }))?;
    Ok(nodes.as_array().cloned().unwrap_or_default())
}

impl Attach for Fuse {
    fn way(&self) -> Way {
        Way::Fuse
    }

    fn outlives_node(&self, wanted: &Wanted) -> bool {
        is_daemons(wanted)
    }

    fn fits(&self, wanted: &Wanted) -> Outcome<()> {
        wanted.address_or_refusal("nbd", "--nbd")?;
        if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
            return Err(AttachError::precondition("there is no /dev/fuse or no /dev/loop-control"));
        }
        if wanted.shared && !is_there(NBDFUSE) {
            return Err(AttachError::precondition(format!(
                "volumes that nodes share need {NBDFUSE}, which is not installed"
            )));
        }
        if !is_there(DAEMON) && !is_there(NBDFUSE) {
            return Err(AttachError::precondition(format!("neither {DAEMON} nor {NBDFUSE} is installed")));
        }
        Ok(())
    }

    fn find(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        self.place(volume).device()
    }

    fn list(&self) -> Outcome<Vec<(String, PathBuf)>> {
        let Ok(entries) = fs::read_dir(&self.state) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Ok(volume) = fs::read_to_string(entry.path().join("volume")) else { continue };
            if let Some(device) = self.find(&volume)? {
                found.push((volume, device));
            }
        }
        Ok(found)
    }

    fn attach(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        let place = self.place(&wanted.volume);
        let device = place.device()?.or_else(|| place.abandoned());
        if let (Some(device), true) = (&device, place.is_alive()?) {
            return Ok(device.clone());
        }
        if let Some(device) = &device {
            if let Some(mount) = Mounts::now()?.of(device).next() {
                return Err(AttachError::internal(format!(
                    "the program behind {} of volume '{}' has ended, and {} is still mounted: unmount it and detach the \
                     volume (on Kubernetes: end the pod), then attach it again",
                    device.display(),
                    wanted.volume,
                    mount.point.display()
                )));
            }
            self.detach(&wanted.volume)?;
        }
        // A program that a call before this one has started is taken over.
        let file = match place.served()? {
            Some(file) if place.is_alive()? => file,
            Some(_) => {
                self.detach(&wanted.volume)?;
                Fuse::serve(&place, wanted)?
            }
            None => Fuse::serve(&place, wanted)?,
        };
        let device = loops::make(&file, wanted.read_only, file != place.disk())?;
        let noted = fs::write(place.file("device"), device.as_os_str().as_encoded_bytes());
        noted.map_err(|error| AttachError::internal(format!("can't write to {}: {error}", place.folder.display())))?;
        Ok(device)
    }

    fn is_sound(&self, volume: &str) -> Outcome<bool> {
        self.place(volume).is_alive()
    }

    fn grow(&self, wanted: &Wanted, device: &Path) -> Outcome<()> {
        let place = self.place(&wanted.volume);
        if !place.file("qmp").exists() {
            return Err(AttachError::precondition(format!(
                "volume '{}' is served by nbdfuse, which keeps the size that the volume had: attach it anew (on Kubernetes: \
                 restart the pod), or install {DAEMON}, by which volumes of one node grow while they are used",
                wanted.volume
            )));
        }
        let mut qmp = Qmp::connect(&place.file("qmp"))?;
        // The node that the program asks may hear of the new size later than others.
        let shown = wait(PATIENCE, || Ok(shows(&mut qmp, wanted)?.then_some(())))?;
        shown.ok_or_else(|| {
            let (name, bytes) = (&wanted.volume, wanted.size_bytes);
            AttachError::unavailable(format!(
                "volume '{name}' does not have {bytes} bytes at the node of this machine yet"
            ))
        })?;
        // The kernel asks for the file's size again after a second.
        let grown = wait(PATIENCE, || {
            if let Some(file) = place.served()? {
                let _asked = fs::metadata(file);
            }
            loops::refresh(device)?;
            Ok((size(device)? >= wanted.size_bytes).then_some(()))
        })?;
        grown.ok_or_else(|| {
            AttachError::internal(format!("{} has not grown to {} bytes", device.display(), wanted.size_bytes))
        })
    }

    fn detach(&self, volume: &str) -> Outcome<()> {
        let place = self.place(volume);
        if let Some(device) = place.device()? {
            loops::remove(&device)?;
            // The kernel waits for whoever has it open.
            if wait(PATIENCE, || Ok(place.device()?.is_none().then_some(())))?.is_none() {
                return Err(AttachError::precondition(format!("somebody has {} open", device.display())));
            }
        } else if let Some(device) = place.abandoned() {
            loops::remove(&device)?;
        }
        if fs::exists(&place.folder).unwrap_or(true) { place.clear() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use azekura_api::EndpointView;

    use super::*;

    fn wanted(address: &str) -> Wanted {
        let endpoint = EndpointView { protocol: "nbd".into(), address: address.into(), uri: None };
        Wanted {
            volume: "v".into(),
            endpoints: vec![endpoint],
            size_bytes: 0,
            request_bytes_min: 1,
            read_only: true,
            shared: false,
        }
    }

    #[test]
    fn nodes_of_qemu() {
        let node = block_node("n", &wanted("unix:/x y")).unwrap();
        assert_eq!(node["server"], json!({ "type": "unix", "path": "/x y" }));
        assert_eq!((&node["export"], &node["read-only"]), (&json!("v"), &json!(true)));
        let node = block_node("n", &wanted("[::1]:10809")).unwrap();
        assert_eq!(node["server"], json!({ "type": "inet", "host": "::1", "port": "10809" }));
    }

    #[test]
    fn a_pid_of_another_program_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folder: folder.path().to_owned() };
        assert_eq!(place.process(), None);
        fs::write(place.file("pid"), format!("{}\n", std::process::id())).unwrap();
        assert_eq!(place.process(), None);
    }
}
