//! Ways to a block device for a volume.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_api::EndpointView;

use crate::{AttachError, Outcome, programs};

mod fuse;
mod loops;
mod nbd;
mod nvme;
mod qmp;

pub use fuse::folder;

/// How the machine gets a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// Of the others, the first that works here and whose requests wait while the node restarts; else the first that
    /// works here.
    Auto,
    /// The kernel's NVMe/TCP.
    Nvme,
    /// The kernel's NBD.
    Nbd,
    /// A file of FUSE and a loop device.
    Fuse,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Way::Auto => "auto",
            Way::Nvme => "nvme",
            Way::Nbd => "nbd",
            Way::Fuse => "fuse",
        })
    }
}

/// What is wanted of a way.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The volume's name.
    pub volume: String,
    /// Where the node that this machine uses serves clients.
    pub endpoints: Vec<EndpointView>,
    /// The volume's size.
    pub size_bytes: u64,
    /// Its requests have at least so many bytes, and begin at a multiple of that.
    pub request_bytes_min: u32,
    /// Nothing is to be written.
    pub read_only: bool,
    /// Others may write at the same time: nothing that was read before is to be shown again.
    pub shared: bool,
}

/// A volume that is a device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The device.
    pub device: PathBuf,
    /// How it has come.
    pub way: Way,
    /// The ways that would have been better and are not here, if it was made now.
    pub passed_over: Vec<PassedOver>,
}

/// A way that a machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Which.
    pub way: Way,
    /// What is missing.
    pub why: String,
}

/// A device of this machine that is a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The volume's name.
    pub volume: String,
    /// The device.
    pub device: PathBuf,
    /// How it has come.
    pub way: Way,
}

impl Wanted {
    /// The address of this protocol.
    fn address(&self, protocol: &str) -> Option<&str> {
        let of = |unix: bool| {
            let fits = |endpoint: &&EndpointView| {
                endpoint.protocol == protocol && endpoint.address.starts_with("unix:") == unix
            };
            self.endpoints.iter().find(fits)
        };
        of(true).or_else(|| of(false)).map(|endpoint| endpoint.address.as_str())
    }

    fn address_or_refusal(&self, protocol: &str, option: &str) -> Outcome<&str> {
        self.address(protocol).ok_or_else(|| {
            AttachError::precondition(format!("the node serves no {protocol} here: start it with {option}"))
        })
    }
}

/// A way to a device. What it has done is found in the kernel and in files; each function may be repeated.
pub(crate) trait Attach: std::fmt::Debug + Send + Sync {
    /// Which it is.
    fn way(&self) -> Way;
    /// Whether this machine and its node have it; else what is missing.
    fn fits(&self, wanted: &Wanted) -> Outcome<()>;
    /// Whether requests of clients wait while the node restarts, however that may end. They fail otherwise, and file
    /// systems go read-only.
    fn outlives_node(&self, wanted: &Wanted) -> bool;
    /// The volume's device, if there is one of this way.
    fn find(&self, volume: &str) -> Outcome<Option<PathBuf>>;
    /// All volumes that have a device of this way, with the device.
    fn list(&self) -> Outcome<Vec<(String, PathBuf)>>;
    /// The volume's device, which is made if it is not there.
    fn attach(&self, wanted: &Wanted) -> Outcome<PathBuf>;
    /// Whether the volume's device can answer: nothing that it needs on this machine has ended.
    fn is_sound(&self, _volume: &str) -> Outcome<bool> {
        Ok(true)
    }
    /// Makes the device as large as the volume.
    fn grow(&self, wanted: &Wanted, device: &Path) -> Outcome<()>;
    /// Takes the device away; nothing may be mounted on it. All that was written is in the volume then.
    fn detach(&self, volume: &str) -> Outcome<()>;
    /// Takes the device away although it is used; true if there was one. For ways whose requests wait for ever for a
    /// volume that is another machine's by now: with others they fail.
    fn cut(&self, _volume: &str) -> Outcome<bool> {
        Ok(false)
    }
}

/// All ways of this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Devices {
    ways: Vec<Arc<dyn Attach>>,
    way: Way,
}

impl Devices {
    /// New devices come by `way`; those that are there are found whatever way they came. `state` is a folder that is
    /// empty after a restart of the machine.
    #[must_use]
    pub fn new(way: Way, state: &Path) -> Devices {
        let ways: Vec<Arc<dyn Attach>> = vec![
            Arc::new(nvme::Nvme::new("/sys".into())),
            Arc::new(nbd::Nbd::new("/sys".into(), "/proc".into())),
            Arc::new(fuse::Fuse::new(state.to_owned())),
        ];
        Devices { ways, way }
    }

    fn found(&self, volume: &str) -> Outcome<Option<(&dyn Attach, PathBuf)>> {
        for way in &self.ways {
            if let Some(device) = way.find(volume)? {
                return Ok(Some((&**way, device)));
            }
        }
        Ok(None)
    }

    /// The ways that may be taken, best first.
    fn ways_for(&self, wanted: &Wanted) -> impl Iterator<Item = &Arc<dyn Attach>> {
        let allowed = self.ways.iter().filter(|way| self.way == Way::Auto || self.way == way.way());
        let (first, last): (Vec<_>, Vec<_>) = allowed.partition(|way| way.outlives_node(wanted));
        first.into_iter().chain(last)
    }

    /// The volume's device, if there is one.
    ///
    /// # Errors
    /// When the kernel's lists can't be read.
    pub fn find(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        Ok(self.found(volume)?.map(|(_, device)| device))
    }

    /// All devices that are volumes, by the volumes' names.
    ///
    /// # Errors
    /// When the kernel's lists can't be read.
    pub fn list(&self) -> Outcome<Vec<Found>> {
        let mut all = Vec::new();
        for each in &self.ways {
            let way = each.way();
            all.extend(each.list()?.into_iter().map(|(volume, device)| Found { volume, device, way }));
        }
        all.sort_by(|a, b| (&a.volume, &a.device).cmp(&(&b.volume, &b.device)));
        Ok(all)
    }

    /// Whether the volume's device, if there is one, can answer.
    ///
    /// # Errors
    /// When the kernel's lists can't be read.
    pub fn is_sound(&self, volume: &str) -> Outcome<Option<bool>> {
        self.found(volume)?.map(|(way, _)| way.is_sound(volume)).transpose()
    }

    /// The volume's device, which is made if it is not there.
    ///
    /// # Errors
    /// When no way is here, with what each of them lacks; when the one that is here fails.
    pub fn attach(&self, wanted: &Wanted) -> Outcome<Attached> {
        if let Some((way, _)) = self.found(&wanted.volume)? {
            let attached = Attached { device: way.attach(wanted)?, way: way.way(), passed_over: Vec::new() };
            if wanted.read_only {
                set_read_only(Path::new("/sys"), Path::new("blockdev"), &attached.device)?;
            }
            return Ok(attached);
        }
        let mut passed_over = Vec::new();
        for way in self.ways_for(wanted) {
            match way.fits(wanted) {
                Ok(()) => {
                    let (device, way) = (way.attach(wanted)?, way.way());
                    tracing::info!(volume = wanted.volume, "volume {} is {} by {way}", wanted.volume, device.display());
                    return Ok(Attached { device, way, passed_over });
                }
                Err(error) => passed_over.push(PassedOver { way: way.way(), why: error.message }),
            }
        }
        let told: Vec<String> = passed_over.iter().map(|PassedOver { way, why }| format!("{way}: {why}")).collect();
        Err(AttachError::precondition(format!("no way to a block device on this machine: {}", told.join("; "))))
    }

    /// Sees to it that nothing can be written to the volume's device. One that is there may be one to write, and
    /// who made it may have ended before it was to be read.
    ///
    /// # Errors
    /// When the volume has no device here, it is used to write, or the kernel does not do it.
    pub fn make_read_only(&self, volume: &str) -> Outcome<()> {
        let absent = || AttachError::not_found(format!("volume '{volume}' is not attached here"));
        let device = self.find(volume)?.ok_or_else(absent)?;
        set_read_only(Path::new("/sys"), Path::new("blockdev"), &device)
    }

    /// Makes the device as large as the volume.
    ///
    /// # Errors
    /// When the volume has no device here, or its way can't.
    pub fn grow(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        let absent = || AttachError::not_found(format!("volume '{}' is not attached here", wanted.volume));
        let (way, device) = self.found(&wanted.volume)?.ok_or_else(absent)?;
        if size(&device)? < wanted.size_bytes {
            way.grow(wanted, &device)?;
        }
        Ok(device)
    }

    /// Takes the volume's devices away, whatever way they came. All that was written is in the volume then. Without one
    /// it does nothing.
    ///
    /// # Errors
    /// When somebody has the device open, or the cluster does not take what was written.
    pub fn detach(&self, volume: &str) -> Outcome<()> {
        self.ways.iter().try_for_each(|way| way.detach(volume))
    }

    /// Takes the devices away of a volume that this machine must not use any more: whoever waits for an answer of them
    /// gets an error, and what was not written yet is lost. True if one was taken away. Devices whose requests fail by
    /// themselves stay.
    ///
    /// # Errors
    /// When the kernel does not give one back.
    pub fn cut(&self, volume: &str) -> Outcome<bool> {
        self.ways.iter().try_fold(false, |cut, way| Ok(way.cut(volume)? || cut))
    }
}

/// Whether the kernel has the device for something: a mounted file system, swap, RAID, LVM. open(2), O_EXCL.
#[must_use]
pub fn is_claimed(device: &Path) -> bool {
    let mut opening = fs::OpenOptions::new();
    let opened = opening.read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(device);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
}

/// Whether nothing can be written to a device.
///
/// # Errors
/// When there is no such device.
pub fn is_read_only(device: &Path) -> Outcome<bool> {
    shows_read_only(Path::new("/sys"), device)
}

fn shows_read_only(sys: &Path, device: &Path) -> Outcome<bool> {
    let path = sys.join("class/block").join(device.file_name().unwrap_or_default()).join("ro");
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| AttachError::internal(format!("can't read {}: {error}", path.display())))?;
    Ok(text.trim() == "1")
}

/// Makes a device one to read, unless it is, and looks whether it has become that.
fn set_read_only(sys: &Path, blockdev: &Path, device: &Path) -> Outcome<()> {
    if shows_read_only(sys, device)? {
        return Ok(());
    }
    if is_claimed(device) {
        return Err(AttachError::precondition(format!(
            "{} is used to write: unmount it, or take it out of there, before it is to be read only",
            device.display()
        )));
    }
    let arguments = ["--setro".as_ref(), device.as_os_str()];
    programs::run("making the device read-only", &blockdev.to_string_lossy(), arguments)?;
    if shows_read_only(sys, device)? {
        return Ok(());
    }
    Err(AttachError::internal(format!("{} can still be written, although it was made read-only", device.display())))
}

/// Takes back what [`set_read_only`] has done to a device that is about to be given back: the kernel keeps that for the
/// device's name, and whoever gets the device next could not write to it.
fn make_writable(device: &Path) {
    if !is_read_only(device).unwrap_or(false) {
        return;
    }
    if let Err(error) = programs::run("giving the device back", "blockdev", ["--setrw".as_ref(), device.as_os_str()]) {
        tracing::warn!("{} may stay read-only for whoever gets it next: {error}", device.display());
    }
}

/// A device's size, bytes.
///
/// # Errors
/// When there is no such device.
pub fn size(device: &Path) -> Outcome<u64> {
    let name = device.file_name().unwrap_or_default();
    let path = Path::new("/sys/class/block").join(name).join("size");
    let sectors = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let sectors = sectors.ok_or_else(|| AttachError::internal(format!("can't read {}", path.display())))?;
    Ok(sectors.saturating_mul(512))
}

/// Asks again and again until there is an answer, or the time is over.
fn wait<T>(within: Duration, mut ask: impl FnMut() -> Outcome<Option<T>>) -> Outcome<Option<T>> {
    let until = Instant::now() + within;
    loop {
        if let Some(answer) = ask()? {
            return Ok(Some(answer));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way that is never taken.
    #[derive(Debug)]
    struct Told(Way, bool);

    impl Attach for Told {
        fn way(&self) -> Way {
            self.0
        }

        fn outlives_node(&self, wanted: &Wanted) -> bool {
            self.1 && !wanted.shared
        }

        fn fits(&self, _: &Wanted) -> Outcome<()> {
            Err(AttachError::precondition("not here"))
        }

        fn find(&self, _: &str) -> Outcome<Option<PathBuf>> {
            Ok(None)
        }

        fn list(&self) -> Outcome<Vec<(String, PathBuf)>> {
            Ok(Vec::new())
        }

        fn attach(&self, _: &Wanted) -> Outcome<PathBuf> {
            unreachable!("it does not fit")
        }

        fn grow(&self, _: &Wanted, _: &Path) -> Outcome<()> {
            Ok(())
        }

        fn detach(&self, _: &str) -> Outcome<()> {
            Ok(())
        }
    }

    #[test]
    fn ways_whose_requests_wait_for_the_node_come_first() {
        let ways = |way| Devices { ways: vec![Arc::new(Told(Way::Nbd, false)), Arc::new(Told(Way::Fuse, true))], way };
        let order = |way, shared| {
            let wanted = Wanted {
                volume: "v".into(),
                endpoints: Vec::new(),
                size_bytes: 0,
                request_bytes_min: 1,
                read_only: false,
                shared,
            };
            ways(way).ways_for(&wanted).map(|way| way.way()).collect::<Vec<_>>()
        };
        assert_eq!(order(Way::Auto, false), [Way::Fuse, Way::Nbd]);
        assert_eq!(order(Way::Auto, true), [Way::Nbd, Way::Fuse]);
        assert_eq!(order(Way::Nbd, false), [Way::Nbd]);
    }

    #[test]
    fn a_socket_of_this_machine_comes_first() {
        let endpoint = |protocol: &str, address: &str| EndpointView {
            protocol: protocol.into(),
            address: address.into(),
            uri: None,
        };
        let endpoints =
            vec![endpoint("nbd", "10.0.0.1:10809"), endpoint("nbd", "unix:/x"), endpoint("nvme", "10.0.0.1:4420")];
        let wanted = Wanted {
            volume: "v".into(),
            endpoints,
            size_bytes: 0,
            request_bytes_min: 1,
            read_only: false,
            shared: false,
        };
        assert_eq!(wanted.address("nbd"), Some("unix:/x"));
        assert_eq!(wanted.address("nvme"), Some("10.0.0.1:4420"));
        let refusal = wanted.address_or_refusal("iscsi", "--iscsi").unwrap_err();
        assert!(refusal.message.contains("--iscsi"), "{refusal}");
    }

    #[test]
    fn a_device_that_is_there_is_made_read_only_and_looked_at() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let (sys, program, device) = (root.path().join("sys"), root.path().join("blockdev"), root.path().join("nbd0"));
        let ro = sys.join("class/block/nbd0/ro");
        fs::create_dir_all(ro.parent().unwrap()).unwrap();
        fs::write(&device, "").unwrap();
        let blockdev = |script: &str| {
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        // An interrupted call has left it to be written.
        fs::write(&ro, "0\n").unwrap();
        blockdev("true");
        let error = set_read_only(&sys, &program, &device).unwrap_err();
        assert!(error.message.contains("can still be written"), "{error}");
        blockdev(&format!("[ \"$1\" = --setro ] && echo 1 > {}", ro.display()));
        set_read_only(&sys, &program, &device).unwrap();
        assert!(shows_read_only(&sys, &device).unwrap());
        // Nothing is to be done then.
        blockdev("false");
        set_read_only(&sys, &program, &device).unwrap();
    }
}
