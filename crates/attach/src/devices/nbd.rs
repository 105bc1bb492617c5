//! The kernel's NBD. Its devices are found by the command lines of their programs, which hold the connections.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Attach, Wanted, Way, make_writable, size, wait};
use crate::programs::{is_there, run};
use crate::{AttachError, Outcome};

const CLIENT: &str = "nbd-client";
/// The machine's namespace of process numbers, PROC_PID_INIT_INO.
const MACHINES_PIDS: &str = "pid:[4026531836]";
const PATIENCE: Duration = Duration::from_secs(20);

/// The way.
#[derive(Debug)]
pub(crate) struct Nbd {
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
}

/// The volume that a program's command line connects.
fn connected(line: &[u8]) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0).skip_while(|word| *word != b"-N");
    words.nth(1).and_then(|volume| String::from_utf8(volume.to_vec()).ok())
}

impl Nbd {
    pub(crate) fn new(sys: PathBuf, proc: PathBuf) -> Nbd {
        Nbd { sys, proc, dev: "/dev".into() }
    }

    fn is_free(&self, name: &str) -> bool {
        !self.sys.join("block").join(name).join("pid").exists()
    }

    /// A device that nobody has, and that no other process takes while the file is open. The driver of Kubernetes and
    /// `azekura attach` may look for one at the same time, and `nbd-client` does not ask whose a device is.
    /// The lock is on the device's own file, which all who share the kernel's devices have, whatever folders they have.
    fn take_free(&self) -> Outcome<(PathBuf, File)> {
        let mut why = AttachError::exhausted("all NBD devices of the kernel are taken: modprobe nbd nbds_max=…");
        for (name, _) in self.devices() {
            let device = self.dev.join(&name);
            if !self.is_free(&name) {
                continue;
            }
            let file = match File::open(&device) {
                Ok(file) => file,
                Err(error) => {
                    why = AttachError::internal(format!("can't open {}: {error}", device.display()));
                    continue;
                }
            };
            if file.try_lock().is_err() {
                // udev locks devices, too, while it looks at them.
                why = AttachError::unavailable(format!("{} is being taken by somebody: try again", device.display()));
            } else if self.is_free(&name) {
                // Who had the lock before may have connected it.
                return Ok((device, file));
            }
        }
        Err(why)
    }

    /// Whether process numbers here are not those that the kernel names its devices' programs by: it names the
    /// machine's (drivers/block/nbd.c), whose namespace has a number of its own (include/linux/proc_ns.h).
    fn is_apart(&self) -> bool {
        let namespace = fs::read_link(self.proc.join("self/ns/pid"));
        namespace.is_ok_and(|namespace| namespace != Path::new(MACHINES_PIDS))
    }

    /// The kernel's devices with the command line of the program that holds each.
    fn devices(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let Ok(entries) = fs::read_dir(self.sys.join("block")) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let held = |name: String| {
            let pid = fs::read_to_string(self.sys.join("block").join(&name).join("pid")).ok();
            let line = pid.and_then(|pid| fs::read(self.proc.join(pid.trim()).join("cmdline")).ok());
            (name, line)
        };
        let mut devices: Vec<_> = names.filter(|name| name.starts_with("nbd")).map(held).collect();
        devices.sort_by_key(|(name, _)| (name.len(), name.clone()));
        devices
    }
}

impl Attach for Nbd {
    fn way(&self) -> Way {
        Way::Nbd
    }

    fn outlives_node(&self, _wanted: &Wanted) -> bool {
        false
    }

    fn fits(&self, wanted: &Wanted) -> Outcome<()> {
        wanted.address_or_refusal("nbd", "--nbd")?;
        if wanted.request_bytes_min > 1 {
            return Err(AttachError::precondition(format!(
                "{CLIENT} does not ask for block sizes, and the requests of volume '{}' are of {} bytes at least: it is \
                 encrypted, or has such logical blocks",
                wanted.volume, wanted.request_bytes_min
            )));
        }
        if !is_there(CLIENT) {
            return Err(AttachError::precondition(format!("{CLIENT} is not installed")));
        }
        if self.is_apart() {
            let why = "this container has process numbers of its own, and NBD's devices are found by the machine's";
            return Err(AttachError::precondition(why));
        }
        if self.devices().is_empty() {
            return Err(AttachError::precondition("the kernel has no NBD devices (modprobe nbd)"));
        }
        Ok(())
    }

    fn find(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        Ok(self.list()?.into_iter().find(|(found, _)| found == volume).map(|(_, device)| device))
    }

    fn list(&self) -> Outcome<Vec<(String, PathBuf)>> {
        let volume = |(name, line): (String, Option<Vec<u8>>)| Some((connected(&line?)?, Path::new("/dev").join(name)));
        Ok(self.devices().into_iter().filter_map(volume).collect())
    }

    fn attach(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        if let Some(device) = self.find(&wanted.volume)? {
            return Ok(device);
        }
        let address = wanted.address_or_refusal("nbd", "--nbd")?;
        let (device, lock) = self.take_free()?;
        let mut arguments: Vec<String> = match address.strip_prefix("unix:") {
            Some(path) => vec!["-unix".into(), path.into()],
            None => {
                let bad = || AttachError::internal(format!("'{address}' is no address of NBD: HOST:PORT"));
                let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
                vec![host.trim_matches(['[', ']']).into(), port.into()]
            }
        };
        arguments.push(device.to_string_lossy().into_owned());
        // Without netlink a program holds the connection, and makes it anew when the node restarts.
        arguments.extend(["-N", &wanted.volume, "-b", "512", "-persist", "-nonetlink"].map(str::to_owned));
        if wanted.read_only {
            arguments.push("-R".into());
        }
        run(&format!("opening volume '{}'", wanted.volume), CLIENT, arguments)?;
        let ready = wait(PATIENCE, || Ok(self.find(&wanted.volume)?.filter(|found| size(found).is_ok_and(|n| n > 0))))?;
        // By now all see that it is taken.
        drop(lock);
        ready.ok_or_else(|| AttachError::unavailable(format!("{} does not come up", device.display())))
    }

    fn grow(&self, wanted: &Wanted, device: &Path) -> Outcome<()> {
        Err(AttachError::precondition(format!(
            "{} keeps the size that volume '{}' had when it was attached: attach it anew (on Kubernetes: restart the pod), or \
             let the node serve NVMe/TCP, by which volumes grow while they are used",
            device.display(),
            wanted.volume
        )))
    }

    fn detach(&self, volume: &str) -> Outcome<()> {
        let Some(device) = self.find(volume)? else { return Ok(()) };
        // The program that holds the connection has the device open, so the kernel writes nothing out when its last
        // user closes it; and what is not written goes when the connection ends. Where it has ended already, nothing
        // is left that could be written, and the device has to be given back.
        if let Err(error) = File::open(&device).and_then(|device| device.sync_all()) {
            tracing::warn!(volume, "{} did not take all that was written to it: {error}", device.display());
        }
        make_writable(&device);
        run(&format!("closing volume '{volume}'"), CLIENT, ["-d".as_ref(), device.as_os_str()])?;
        let gone = wait(PATIENCE, || Ok(self.find(volume)?.is_none().then_some(())))?;
        gone.ok_or_else(|| AttachError::late(format!("{} is not given back", device.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_process_numbers_of_its_own_is_told_from_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let nbd = Nbd::new(root.path().join("sys"), root.path().into());
        assert!(!nbd.is_apart(), "nothing is known");
        fs::create_dir_all(root.path().join("self/ns")).unwrap();
        for (namespace, is_apart) in [(MACHINES_PIDS, false), ("pid:[4026532201]", true)] {
            let link = root.path().join("self/ns/pid");
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(namespace, &link).unwrap();
            assert_eq!(nbd.is_apart(), is_apart, "{namespace}");
        }
    }

    #[test]
    fn volumes_that_want_their_block_size_to_be_asked_for_are_not_opened() {
        let root = tempfile::tempdir().unwrap();
        let nbd = Nbd::new(root.path().join("sys"), root.path().into());
        let endpoint =
            azekura_api::EndpointView { protocol: "nbd".into(), address: "10.0.0.1:10809".into(), uri: None };
        let why = |request_bytes_min| {
            let (volume, endpoints) = ("vol1".to_owned(), vec![endpoint.clone()]);
            let wanted =
                Wanted { volume, endpoints, size_bytes: 4096, request_bytes_min, read_only: false, shared: false };
            nbd.fits(&wanted).unwrap_err().message
        };
        for bytes in [512, 4096] {
            assert!(why(bytes).contains(&format!("are of {bytes} bytes at least")), "{}", why(bytes));
        }
        assert!(!why(1).contains("bytes at least"), "{}", why(1));
    }

    #[test]
    fn a_volume_is_found_by_its_program() {
        let root = tempfile::tempdir().unwrap();
        let (sys, proc) = (root.path().join("sys"), root.path().join("proc"));
        for (name, pid) in [("nbd0", Some("7")), ("nbd1", None), ("nbd10", Some("8")), ("sda", Some("7"))] {
            let folder = sys.join("block").join(name);
            fs::create_dir_all(&folder).unwrap();
            if let Some(pid) = pid {
                fs::write(folder.join("pid"), format!("{pid}\n")).unwrap();
            }
        }
        for (pid, line) in [("7", "nbd-client\0-N\0vol1\0"), ("8", "nbd-client\0-N\0vol10\0-persist\0")] {
            fs::create_dir_all(proc.join(pid)).unwrap();
            fs::write(proc.join(pid).join("cmdline"), line).unwrap();
        }
        let nbd = Nbd::new(sys, proc);
        assert_eq!(nbd.find("vol1").unwrap(), Some("/dev/nbd0".into()));
        assert_eq!(nbd.find("vol10").unwrap(), Some("/dev/nbd10".into()));
        assert_eq!(nbd.find("vol").unwrap(), None);
        let volumes: Vec<String> = nbd.list().unwrap().into_iter().map(|(volume, _)| volume).collect();
        assert_eq!(volumes, ["vol1", "vol10"]);
        let names: Vec<String> = nbd.devices().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["nbd0", "nbd1", "nbd10"]);
    }

    #[test]
    fn two_who_look_for_a_free_device_get_two() {
        let root = tempfile::tempdir().unwrap();
        let (sys, dev) = (root.path().join("sys"), root.path().join("dev"));
        fs::create_dir_all(&dev).unwrap();
        for name in ["nbd0", "nbd1", "nbd2"] {
            fs::create_dir_all(sys.join("block").join(name)).unwrap();
            fs::write(dev.join(name), "").unwrap();
        }
        fs::write(sys.join("block/nbd0/pid"), "7\n").unwrap();
        let nbd = Nbd { sys: sys.clone(), proc: root.path().join("proc"), dev: dev.clone() };
        let first = nbd.take_free().unwrap();
        let second = nbd.take_free().unwrap();
        assert_eq!((&first.0, &second.0), (&dev.join("nbd1"), &dev.join("nbd2")));
        assert_eq!(nbd.take_free().unwrap_err().kind, crate::Kind::Unavailable);
        // One that could not be connected after all is free again.
        drop(first);
        assert_eq!(nbd.take_free().unwrap().0, dev.join("nbd1"));
    }
}
