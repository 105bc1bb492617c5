//! What is mounted where: the kernel's own list, since it outlives this process.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::programs::run;
use crate::{AttachError, Outcome};

/// A line of /proc/self/mountinfo (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device's number, as major:minor; of btrfs, one of its own.
    number: String,
    /// What of the file system is seen there.
    root: String,
    /// Where it is seen.
    pub point: PathBuf,
    read_only: bool,
    /// The kind of the file system.
    pub filesystem: String,
    source: String,
}

/// What is mounted.
#[derive(Clone, Debug)]
pub struct Mounts(Vec<Mount>);

/// Spaces and the like stand there as three octal digits.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Mount {
    fn read(line: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (number, root, point, options) = (before.next()?, before.next()?, before.next()?, before.next()?);
        let mut after = after.split(' ');
        Some(Mount {
            number: number.to_owned(),
            root: plain(root),
            point: plain(point).into(),
            read_only: options.split(',').any(|option| option == "ro"),
            filesystem: after.next()?.to_owned(),
            source: plain(after.next()?),
        })
    }

    /// Whether it shows this device: its file system, or the device's own node.
    #[must_use]
    pub fn is_of(&self, device: &Path) -> bool {
        let node = device.file_name().and_then(|name| name.to_str());
        let is_node = self.shows_device() && node.is_some() && self.root.strip_prefix('/') == node;
        // Whoever has mounted it may have named it by a link.
        let is_source =
            || Path::new(&self.source) == device || fs::canonicalize(&self.source).is_ok_and(|to| to == device);
        is_node || self.is_number_of(device) || is_source()
    }

    /// Whether its file system is on the device of this number.
    fn is_number_of(&self, device: &Path) -> bool {
        let number =
            fs::metadata(device).ok().filter(|found| found.file_type().is_block_device()).map(|found| found.rdev());
        number
            .is_some_and(|number| self.number == format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
    }

    /// Whether its file system can be the one of this number; an empty one says nothing.
    pub(crate) fn may_be_numbered(&self, number: &str) -> bool {
        number.is_empty() || number == self.number
    }

    /// Whether it shows a device itself, and no file system on one.
    #[must_use]
    pub fn shows_device(&self) -> bool {
        ["devtmpfs", "tmpfs"].contains(&self.filesystem.as_str())
    }

    /// Whether nothing can be written through it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

impl Mounts {
    /// What is mounted now.
    ///
    /// # Errors
    /// When the kernel's list can't be read.
    pub fn now() -> Outcome<Mounts> {
        let text = fs::read_to_string("/proc/self/mountinfo");
        let text = text.map_err(|error| AttachError::internal(format!("can't read /proc/self/mountinfo: {error}")))?;
        Ok(Mounts::read(&text))
    }

    fn read(text: &str) -> Mounts {
        Mounts(text.lines().filter_map(Mount::read).collect())
    }

    /// What is on top at a path.
    #[must_use]
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.point == path)
    }

    /// All that shows a device.
    pub fn of<'a>(&'a self, device: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.is_of(device))
    }
}

/// A path as the kernel's list has it: the folder that it is in without symbolic links. What is mounted at its end is
/// not asked: it may not answer.
///
/// # Errors
/// When the path does not begin with `/`, or its folder can't be looked into.
pub fn real(path: &str) -> Outcome<PathBuf> {
    let path = Path::new(path);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(AttachError::invalid(format!("'{}' is no path of a mount", path.display())));
    };
    if !path.is_absolute() {
        return Err(AttachError::invalid(format!("'{}' is no whole path: it must begin with /", path.display())));
    }
    match fs::canonicalize(folder) {
        Ok(folder) => Ok(folder.join(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(AttachError::internal(format!("can't look into {}: {error}", folder.display()))),
    }
}

/// Takes away all that is mounted at a path.
///
/// # Errors
/// When somebody uses it.
pub fn unmount_all(path: &Path) -> Outcome<()> {
    while Mounts::now()?.at(path).is_some() {
        run(&format!("unmounting {}", path.display()), "umount", [path])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 7:0 / /staging/a\\040b rw,noatime shared:2 - ext4 /dev/loop0 rw
91 22 7:0 / /pods/1 ro,relatime - ext4 /dev/loop0 rw
92 22 0:5 /loop1 /pods/device rw - devtmpfs udev rw
93 22 0:44 / /state/disk rw - fuse.nbdfuse nbdfuse rw
94 22 7:2 / /pods/1 rw - xfs /dev/loop2 rw
";

    #[test]
    fn the_list_of_the_kernel() {
        let mounts = Mounts::read(LIST);
        let staged = mounts.at(Path::new("/staging/a b")).unwrap();
        assert!(staged.is_of(Path::new("/dev/loop0")) && !staged.is_read_only());
        assert_eq!(staged.filesystem, "ext4");
        let points = |device| mounts.of(Path::new(device)).map(|mount| mount.point.clone()).collect::<Vec<_>>();
        assert_eq!(points("/dev/loop0"), [Path::new("/staging/a b"), Path::new("/pods/1")]);
        assert_eq!(points("/dev/loop1"), [Path::new("/pods/device")]);
        // The later one lies on top.
        assert_eq!(mounts.at(Path::new("/pods/1")).unwrap().filesystem, "xfs");
        assert!(mounts.at(Path::new("/pods")).is_none());
        let served = mounts.at(Path::new("/state/disk")).unwrap();
        assert_eq!(
            ["0:44", "0:4", "10:44", ""].map(|number| served.may_be_numbered(number)),
            [true, false, false, true]
        );
    }

    #[test]
    fn paths_are_whole_and_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().canonicalize().unwrap();
        fs::create_dir(inner.join("a")).unwrap();
        std::os::unix::fs::symlink(inner.join("a"), inner.join("b")).unwrap();
        assert_eq!(real(inner.join("b/x").to_str().unwrap()).unwrap(), inner.join("a/x"));
        assert_eq!(real("/not/there").unwrap(), Path::new("/not/there"));
        assert_eq!(real("some/path").unwrap_err().kind, crate::Kind::Invalid);
    }
}
