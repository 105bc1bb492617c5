//! The kernel's NVMe/TCP: a subsystem a volume, which is found by its name (docs/nvme.md).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Attach, Wanted, Way, set_read_only, size, wait};
use crate::programs::{is_there, run};
use crate::{AttachError, Outcome};

const CLI: &str = "nvme";
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds between two tries to connect again; ten are the kernel's own, in which a node has long restarted.
const RECONNECT_DELAY_S: &str = "2";

/// The way.
#[derive(Debug)]
pub(crate) struct Nvme {
    sys: PathBuf,
    /// The program that makes and ends connections.
    cli: PathBuf,
    /// A namespace, or its end, may take so long.
    patience: Duration,
}

/// What the names of volumes' subsystems begin with.
const PREFIX: &str = "nqn.2026-01.io.azekura:";

fn subsystem(volume: &str) -> String {
    format!("{PREFIX}{volume}")
}

/// A namespace, and no path of one (`nvme0c0n1`).
fn is_namespace(name: &str) -> bool {
    name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')).is_some_and(|(number, namespace)| {
        [number, namespace].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

impl Nvme {
    pub(crate) fn new(sys: PathBuf) -> Nvme {
        Nvme { sys, cli: CLI.into(), patience: PATIENCE }
    }

    /// Whether the volume has a controller, with a namespace or without. With the kernel's multipath a namespace
    /// may stay without any for a while, and a controller may never get one: the node has not served the volume yet, or
    /// has ceased to.
    fn is_connected(&self, volume: &str) -> bool {
        let Ok(entries) = fs::read_dir(self.sys.join("class/nvme")) else { return false };
        let mut names = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("subsysnqn")).ok());
        names.any(|name| name.trim() == subsystem(volume))
    }

    /// Runs the program that makes and ends connections.
    fn run(&self, doing: &str, arguments: &[&str]) -> Outcome<()> {
        run(doing, &self.cli.to_string_lossy(), arguments).map(drop)
    }

    /// Waits for the volume's namespace.
    fn ready(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        wait(self.patience, || {
            let found = self.find(volume)?;
            Ok(found.filter(|device| device.exists() && size(device).is_ok_and(|bytes| bytes > 0)))
        })
    }

    /// Makes a connection, unless there is one.
    fn connect(&self, wanted: &Wanted) -> Outcome<()> {
        // One that was left behind by a process that has ended: the kernel refuses a second one, and its namespace may
        // come.
        if self.is_connected(&wanted.volume) {
            return Ok(());
        }
        let address = wanted.address_or_refusal("nvme", "--nvme")?;
        let bad = || AttachError::internal(format!("'{address}' is no address of NVMe/TCP: IP:PORT"));
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let (host, name) = (host.trim_matches(['[', ']']), subsystem(&wanted.volume));
        // It connects again for as long as the volume is staged: a node may restart at any time, and whoever writes
        // waits for the next try.
        let mut options = vec!["connect", "-t", "tcp", "-a", host, "-s", port, "-n", &name];
        options.extend(["--ctrl-loss-tmo", "-1", "--reconnect-delay", RECONNECT_DELAY_S]);
        self.run(&format!("opening volume '{}'", wanted.volume), &options)
    }

    /// The volumes that are namespaces, each once. With the kernel's multipath the namespaces stand under the
    /// subsystem, else under the controller.
    fn namespaces(&self) -> Vec<(String, PathBuf)> {
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for kind in ["class/nvme-subsystem", "class/nvme"] {
            let Ok(entries) = fs::read_dir(self.sys.join(kind)) else { continue };
            for entry in entries.flatten() {
                let name = fs::read_to_string(entry.path().join("subsysnqn")).unwrap_or_default();
                let Some(volume) = name.trim().strip_prefix(PREFIX) else { continue };
                let Ok(children) = fs::read_dir(entry.path()) else { continue };
                let names = children.flatten().filter_map(|child| child.file_name().into_string().ok());
                let device = names.into_iter().find(|name| is_namespace(name));
                if let Some(device) = device.filter(|_| found.iter().all(|(known, _)| known != volume)) {
                    found.push((volume.to_owned(), Path::new("/dev").join(device)));
                }
            }
        }
        found
    }
}

impl Attach for Nvme {
    fn way(&self) -> Way {
        Way::Nvme
    }

    fn outlives_node(&self, _wanted: &Wanted) -> bool {
        true
    }

    fn fits(&self, wanted: &Wanted) -> Outcome<()> {
        wanted.address_or_refusal("nvme", "--nvme")?;
        if !is_there(CLI) {
            return Err(AttachError::precondition("nvme-cli is not installed"));
        }
        if !self.sys.join("module/nvme_tcp").exists() && !Path::new("/dev/nvme-fabrics").exists() {
            return Err(AttachError::precondition("the kernel has no NVMe/TCP (modprobe nvme-tcp)"));
        }
        Ok(())
    }

    fn find(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        Ok(self.namespaces().into_iter().find(|(found, _)| found == volume).map(|(_, device)| device))
    }

    fn list(&self) -> Outcome<Vec<(String, PathBuf)>> {
        Ok(self.namespaces())
    }

    fn attach(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        if let Some(device) = self.find(&wanted.volume)? {
            return Ok(device);
        }
        self.connect(wanted)?;
        let Some(device) = self.ready(&wanted.volume)? else {
            let name = subsystem(&wanted.volume);
            let mut why = format!("no device of {name} has come up in {} s", self.patience.as_secs());
            // The kernel would try for ever, and nobody would find the controller: it has no device.
            if let Err(error) = self.cut(&wanted.volume) {
                why += &format!(", and its connection stays ({error}): nvme disconnect -n {name}");
            }
            return Err(AttachError::unavailable(why));
        };
        if wanted.read_only {
            set_read_only(&self.sys, Path::new("blockdev"), &device)?;
        }
        Ok(device)
    }

    fn grow(&self, wanted: &Wanted, device: &Path) -> Outcome<()> {
        // The node tells the kernel by itself.
        let grown = wait(PATIENCE, || Ok((size(device)? >= wanted.size_bytes).then_some(())))?;
        grown.ok_or_else(|| {
            AttachError::unavailable(format!("{} has not grown to {} bytes yet", device.display(), wanted.size_bytes))
        })
    }

    fn detach(&self, volume: &str) -> Outcome<()> {
        self.cut(volume).map(drop)
    }

    fn cut(&self, volume: &str) -> Outcome<bool> {
        if self.find(volume)?.is_none() && !self.is_connected(volume) {
            return Ok(false);
        }
        self.run(&format!("closing volume '{volume}'"), &["disconnect", "-n", &subsystem(volume)])?;
        let gone = wait(self.patience, || {
            let is_gone = self.find(volume)?.is_none() && !self.is_connected(volume);
            Ok(is_gone.then_some(()))
        })?;
        gone.map(|()| true).ok_or_else(|| AttachError::late(format!("the devices of {} stay", subsystem(volume))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_found_by_its_subsystem() {
        let root = tempfile::tempdir().unwrap();
        let make = |kind: &str, name: &str, volume: &str, children: &[&str]| {
            let folder = root.path().join("class").join(kind).join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("subsysnqn"), format!("{}\n", subsystem(volume))).unwrap();
            children.iter().for_each(|child| fs::create_dir(folder.join(child)).unwrap());
        };
        make("nvme-subsystem", "nvme-subsys0", "vol1", &["nvme0", "nvme0c0n1", "nvme0n1"]);
        make("nvme-subsystem", "nvme-subsys1", "vol10", &["nvme1"]);
        make("nvme", "nvme1", "vol10", &["hwmon1", "nvme1n1"]);
        let nvme = Nvme::new(root.path().to_owned());
        assert_eq!(nvme.find("vol1").unwrap(), Some("/dev/nvme0n1".into()));
        assert_eq!(nvme.find("vol10").unwrap(), Some("/dev/nvme1n1".into()));
        assert_eq!(nvme.find("vol").unwrap(), None);
        let mut all: Vec<String> = nvme.list().unwrap().into_iter().map(|(volume, _)| volume).collect();
        all.sort();
        assert_eq!(all, ["vol1", "vol10"]);
    }

    /// A machine whose `nvme` makes controllers that get no namespace.
    fn without_namespaces(root: &Path) -> Nvme {
        use std::os::unix::fs::PermissionsExt;
        let (program, class) = (root.join("nvme"), root.join("sys/class/nvme"));
        fs::create_dir_all(&class).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$1\" >> {0}/calls\ncase $1 in\n\
             connect) mkdir {1}/nvme7 && echo {2} > {1}/nvme7/subsysnqn ;;\n\
             disconnect) rm -r {1}/nvme7 ;;\nesac\n",
            root.display(),
            class.display(),
            subsystem("vol1"),
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Nvme { sys: root.join("sys"), cli: program, patience: Duration::from_millis(120) }
    }

    fn wanted() -> Wanted {
        let (protocol, address) = ("nvme".to_owned(), "10.0.0.1:4420".to_owned());
        Wanted {
            volume: "vol1".into(),
            endpoints: vec![azekura_api::EndpointView { protocol, address, uri: None }],
            size_bytes: 4096,
            request_bytes_min: 1,
            read_only: false,
            shared: false,
        }
    }

    #[test]
    fn a_controller_that_gets_no_namespace_is_not_left_behind() {
        let root = tempfile::tempdir().unwrap();
        let nvme = without_namespaces(root.path());
        let error = nvme.attach(&wanted()).unwrap_err();
        assert_eq!(error.kind, crate::Kind::Unavailable);
        assert!(error.message.contains("no device of nqn.2026-01.io.azekura:vol1"), "{error}");
        assert!(!root.path().join("sys/class/nvme/nvme7").exists(), "the controller stays");
    }

    #[test]
    fn a_controller_without_a_namespace_is_detached_and_not_made_twice() {
        let root = tempfile::tempdir().unwrap();
        let nvme = without_namespaces(root.path());
        nvme.connect(&wanted()).unwrap();
        nvme.connect(&wanted()).unwrap();
        nvme.detach("vol10").unwrap();
        assert!(root.path().join("sys/class/nvme/nvme7").exists());
        nvme.detach("vol1").unwrap();
        assert!(!root.path().join("sys/class/nvme/nvme7").exists(), "the controller stays");
        assert_eq!(fs::read_to_string(root.path().join("calls")).unwrap(), "connect\ndisconnect\n");
    }
}
