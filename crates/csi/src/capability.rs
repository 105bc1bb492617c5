//! What a volume is to be used for.

use tonic::Status;

use crate::Outcome;
use crate::proto::VolumeCapability;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;

/// File systems that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl Filesystem {
    pub(crate) const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

    /// Its name, to the kernel as well.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// The smallest volume, in bytes, that can be made, mounted and grown: xfsprogs 6.1 refuses less, and the kernel
    /// grows no btrfs that ends below. Of ext4 it is where its journal begins to have room.
    pub(crate) const fn least_bytes(self) -> u64 {
        match self {
            Filesystem::Ext4 => 1 << 20,
            Filesystem::Xfs => 300 << 20,
            Filesystem::Btrfs => 256 << 20,
        }
    }

    /// The file system of this name; without one, ext4.
    fn read(name: &str) -> Outcome<Filesystem> {
        if name.is_empty() {
            return Ok(Filesystem::Ext4);
        }
        Filesystem::ALL.into_iter().find(|known| known.word() == name).ok_or_else(|| {
            Status::invalid_argument(format!("the file system '{name}' can't be made: take ext4, xfs or btrfs"))
        })
    }
}

/// How containers see a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// As a device.
    Block,
    /// As a folder, with these mount options.
    Mount(Filesystem, Vec<String>),
}

/// One use of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) access: Access,
    mode: Mode,
}

impl Use {
    /// A use that a request has to name.
    pub(crate) fn read(capability: Option<&VolumeCapability>) -> Outcome<Use> {
        let missing = |what: &str| Status::invalid_argument(format!("the request says no {what}"));
        let capability = capability.ok_or_else(|| missing("volume_capability"))?;
        let access = match capability.access_type.as_ref().ok_or_else(|| missing("access_type (block or mount)"))? {
            AccessType::Block(_) => Access::Block,
            AccessType::Mount(mount) => Access::Mount(Filesystem::read(&mount.fs_type)?, mount.mount_flags.clone()),
        };
        let mode = capability.access_mode.as_ref().map_or(Mode::Unknown, |mode| mode.mode());
        if mode == Mode::Unknown {
            return Err(missing("access_mode that this driver knows"));
        }
        let read = Use { access, mode };
        if read.is_shared() && !read.is_read_only() && read.access != Access::Block {
            return Err(Status::invalid_argument(
                "nodes that write to one volume at the same time need it as a block device: ext4, xfs and btrfs would be \
                 destroyed. Take volumeMode Block, or an access mode of one node",
            ));
        }
        Ok(read)
    }

    /// All uses of a list that must not be empty.
    pub(crate) fn read_all(capabilities: &[VolumeCapability]) -> Outcome<Vec<Use>> {
        if capabilities.is_empty() {
            return Err(Status::invalid_argument("the request says no volume_capabilities"));
        }
        capabilities.iter().map(|capability| Use::read(Some(capability))).collect()
    }

    /// The smallest volume, in bytes, that can be used so.
    pub(crate) fn least_bytes(&self) -> u64 {
        match &self.access {
            Access::Block => 0,
            Access::Mount(filesystem, _) => filesystem.least_bytes(),
        }
    }

    /// Several nodes may have it at once.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.mode, Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
    }

    /// Nobody writes.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
    }

    /// One container alone has it.
    pub(crate) fn is_single(&self) -> bool {
        self.mode == Mode::SingleNodeSingleWriter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn mount(fs_type: &str, mode: Mode) -> VolumeCapability {
        let mount = MountVolume { fs_type: fs_type.into(), ..MountVolume::default() };
        VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }
    }

    #[test]
    fn file_systems() {
        let read = |name| Use::read(Some(&mount(name, Mode::SingleNodeWriter)));
        assert_eq!(read("").unwrap().access, Access::Mount(Filesystem::Ext4, Vec::new()));
        assert_eq!(read("btrfs").unwrap().access, Access::Mount(Filesystem::Btrfs, Vec::new()));
        assert!(read("ntfs").unwrap_err().message().contains("ntfs"));
    }

    #[test]
    fn several_writers_need_a_device() {
        for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
            assert_eq!(Use::read(Some(&mount("", mode))).unwrap_err().code(), tonic::Code::InvalidArgument);
            let block = VolumeCapability {
                access_type: Some(AccessType::Block(BlockVolume {})),
                access_mode: Some(AccessMode { mode: mode.into() }),
            };
            assert!(Use::read(Some(&block)).unwrap().is_shared());
        }
        let readers = Use::read(Some(&mount("", Mode::MultiNodeReaderOnly))).unwrap();
        assert!(readers.is_shared() && readers.is_read_only());
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |capability: Option<&VolumeCapability>| Use::read(capability).unwrap_err().message().to_owned();
        assert!(message(None).contains("volume_capability"));
        assert!(message(Some(&VolumeCapability::default())).contains("access_type"));
        assert!(message(Some(&mount("", Mode::Unknown))).contains("access_mode"));
        assert!(Use::read_all(&[]).unwrap_err().message().contains("volume_capabilities"));
    }
}
