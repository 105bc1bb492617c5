//! The kernel's NVMe/TCP: a subsystem a volume, which is found by its name (docs/nvme.md).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Attach, Wanted, Way, size, wait};
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
        Nvme { sys }
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
        let address = wanted.address_or_refusal("nvme", "--nvme")?;
        let bad = || AttachError::internal(format!("'{address}' is no address of NVMe/TCP: IP:PORT"));
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let (host, name) = (host.trim_matches(['[', ']']), subsystem(&wanted.volume));
        // It connects again for as long as the volume is staged: a node may restart at any time, and whoever writes
        // waits for the next try.
        let mut options = vec!["connect", "-t", "tcp", "-a", host, "-s", port, "-n", &name];
        options.extend(["--ctrl-loss-tmo", "-1", "--reconnect-delay", RECONNECT_DELAY_S]);
        run(&format!("opening volume '{}'", wanted.volume), CLI, options)?;
        let ready = wait(PATIENCE, || {
            let found = self.find(&wanted.volume)?;
            Ok(found.filter(|device| device.exists() && size(device).is_ok_and(|bytes| bytes > 0)))
        })?;
        let device = ready.ok_or_else(|| AttachError::unavailable(format!("no device of {name} comes up")))?;
        if wanted.read_only {
            run("making the device read-only", "blockdev", ["--setro".as_ref(), device.as_os_str()])?;
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
        if self.find(volume)?.is_none() {
            return Ok(false);
        }
        run(&format!("closing volume '{volume}'"), CLI, ["disconnect", "-n", &subsystem(volume)])?;
        let gone = wait(PATIENCE, || Ok(self.find(volume)?.is_none().then_some(())))?;
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
}
