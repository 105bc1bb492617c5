//! Ways to a block device for a volume that is attached to this machine's Azekura node.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_api::EndpointView;
use tonic::Status;

use crate::Outcome;

mod fuse;
mod loops;
mod nbd;
mod nvme;
mod qmp;

pub(super) use fuse::folder;

/// How the machine gets a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// The first of the others that works here.
    Auto,
    /// The kernel's NVMe/TCP.
    Nvme,
    /// The kernel's NBD.
    Nbd,
    /// A file of FUSE and a loop device.
    Fuse,
}

/// What is wanted of a way.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The volume's name.
    pub(crate) volume: String,
    /// Where this machine's node serves clients.
    pub(crate) endpoints: Vec<EndpointView>,
    /// The volume's size.
    pub(crate) size_bytes: u64,
    /// Nothing is to be written.
    pub(crate) read_only: bool,
    /// Others may write at the same time: nothing that was read before is to be shown again.
    pub(crate) shared: bool,
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
            Status::failed_precondition(format!("this machine's node serves no {protocol}: start it with {option}"))
        })
    }
}

/// A way to a device. What it has done is found in the kernel and in files; each function may be repeated.
pub(super) trait Attach: std::fmt::Debug + Send + Sync {
    /// Which it is.
    fn way(&self) -> Way;
    /// Whether this machine and its node have it; else what is missing.
    fn fits(&self, wanted: &Wanted) -> Outcome<()>;
    /// The volume's device, if there is one of this way.
    fn find(&self, volume: &str) -> Outcome<Option<PathBuf>>;
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
}

/// All ways of this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    ways: Vec<Arc<dyn Attach>>,
    way: Way,
}

impl Devices {
    /// New devices come by `way`; those that are there are found whatever way they came.
    pub(super) fn new(way: Way, state: &Path) -> Devices {
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

    /// The volume's device, if there is one.
    pub(super) fn find(&self, volume: &str) -> Outcome<Option<PathBuf>> {
        Ok(self.found(volume)?.map(|(_, device)| device))
    }

    /// Whether the volume's device, if there is one, can answer.
    pub(super) fn is_sound(&self, volume: &str) -> Outcome<Option<bool>> {
        self.found(volume)?.map(|(way, _)| way.is_sound(volume)).transpose()
    }

    /// The volume's device, which is made if it is not there.
    pub(super) fn attach(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        if let Some((way, _)) = self.found(&wanted.volume)? {
            return way.attach(wanted);
        }
        let mut missing = Vec::new();
        for way in self.ways.iter().filter(|way| self.way == Way::Auto || self.way == way.way()) {
            match way.fits(wanted) {
                Ok(()) => {
                    let device = way.attach(wanted)?;
                    tracing::info!("volume {} is {} by {:?}", wanted.volume, device.display(), way.way());
                    return Ok(device);
                }
                Err(status) => missing.push(format!("{:?}: {}", way.way(), status.message())),
            }
        }
        Err(Status::failed_precondition(format!("no way to a block device on this machine: {}", missing.join("; "))))
    }

    /// Makes the device as large as the volume.
    pub(super) fn grow(&self, wanted: &Wanted) -> Outcome<PathBuf> {
        let absent = || Status::not_found(format!("volume '{}' is not staged on this node", wanted.volume));
        let (way, device) = self.found(&wanted.volume)?.ok_or_else(absent)?;
        if size(&device)? < wanted.size_bytes {
            way.grow(wanted, &device)?;
        }
        Ok(device)
    }

    /// Takes the volume's devices away, whatever way they came.
    pub(super) fn detach(&self, volume: &str) -> Outcome<()> {
        self.ways.iter().try_for_each(|way| way.detach(volume))
    }
}

/// A device's size, bytes.
pub(super) fn size(device: &Path) -> Outcome<u64> {
    let name = device.file_name().unwrap_or_default();
    let path = Path::new("/sys/class/block").join(name).join("size");
    let sectors = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let sectors = sectors.ok_or_else(|| Status::internal(format!("can't read {}", path.display())))?;
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

    #[test]
    fn a_socket_of_this_machine_comes_first() {
        let endpoint = |protocol: &str, address: &str| EndpointView {
            protocol: protocol.into(),
            address: address.into(),
            uri: None,
        };
        let endpoints =
            vec![endpoint("nbd", "10.0.0.1:10809"), endpoint("nbd", "unix:/x"), endpoint("nvme", "10.0.0.1:4420")];
        let wanted = Wanted { volume: "v".into(), endpoints, size_bytes: 0, read_only: false, shared: false };
        assert_eq!(wanted.address("nbd"), Some("unix:/x"));
        assert_eq!(wanted.address("nvme"), Some("10.0.0.1:4420"));
        let refusal = wanted.address_or_refusal("iscsi", "--iscsi").unwrap_err();
        assert!(refusal.message().contains("--iscsi"), "{}", refusal.message());
    }
}
