//! Small files that are replaced as a whole: a power cut at any moment leaves the old one or the new one, and once the
//! call has ended the new one. All of the program's small files are written here (`clippy.toml` forbids other ways).

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a replacement asks of a file system.
trait FileSystem {
    /// Makes a file with `bytes`, or replaces what it holds; it may be gone or empty after a power cut.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// What the file holds survives a power cut, or what the folder lists.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    /// Gives a file another name, in place of the one that has it; that may be undone by a power cut.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The real one; what it makes has this mode, less what the process's umask takes away.
struct Kernel {
    mode: u32,
}

/// What the umask leaves.
const ANY: Kernel = Kernel { mode: 0o666 };

#[allow(clippy::disallowed_methods)]
impl FileSystem for Kernel {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(self.mode).open(path)?.write_all(bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
}

fn replace_on(files: &mut impl FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    files.write(&temporary, bytes)?;
    put_on(files, &temporary, path)
}

fn put_on(files: &mut impl FileSystem, temporary: &Path, path: &Path) -> io::Result<()> {
    files.sync(temporary)?;
    files.rename(temporary, path)?;
    match path.parent() {
        Some(folder) => files.sync(folder),
        None => Ok(()),
    }
}

/// Puts a file that was written beside another one into its place, durably.
///
/// # Errors
/// When the folder can't be written; the former file stays, or the new one is there.
pub fn put(temporary: &Path, path: &Path) -> io::Result<()> {
    put_on(&mut { ANY }, temporary, path)
}

/// Replaces a file by one with `bytes`, durably.
///
/// # Errors
/// When the folder can't be written; the former file stays, or the new one is there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_on(&mut { ANY }, path, bytes)
}

/// The same for a file that nobody else on the machine may read, whatever the umask is.
///
/// # Errors
/// When the folder can't be written; the former file stays, or the new one is there.
pub fn replace_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_on(&mut Kernel { mode: 0o600 }, path, bytes)
}

/// Replaces a file by one with `value` as JSON, durably.
///
/// # Errors
/// When the folder can't be written; the message names the file.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    replace(path, text.as_bytes()).with_context(|| format!("can't write {}", path.display()))
}

/// What a folder lists survives a power cut.
///
/// # Errors
/// When the folder can't be opened or flushed.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    { ANY }.sync(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    /// A file system in memory whose power fails after some calls.
    #[derive(Clone, Default)]
    struct Cut {
        /// What each file holds, and whether that is on the disk.
        files: Vec<(Vec<u8>, bool)>,
        /// As a program sees it, and as it is on the disk.
        names: BTreeMap<PathBuf, usize>,
        durable: BTreeMap<PathBuf, usize>,
        calls_left: usize,
    }

    impl Cut {
        fn call(&mut self) -> io::Result<()> {
            self.calls_left = self.calls_left.checked_sub(1).ok_or_else(|| io::Error::other("no power"))?;
            Ok(())
        }

        /// What may be in the file afterwards: names may be on the disk before they have to be.
        fn after(&self, path: &Path) -> Vec<Option<Vec<u8>>> {
            let read = |names: &BTreeMap<PathBuf, usize>| {
                let (contents, durable) = &self.files[*names.get(path)?];
                Some(if *durable { contents.clone() } else { Vec::new() })
            };
            vec![read(&self.names), read(&self.durable)]
        }
    }

    impl FileSystem for Cut {
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            self.call()?;
            match self.names.get(path) {
                Some(file) => self.files[*file] = (bytes.to_vec(), false),
                None => {
                    self.names.insert(path.to_owned(), self.files.len());
                    self.files.push((bytes.to_vec(), false));
                }
            }
            Ok(())
        }

        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.call()?;
            match self.names.get(path) {
                Some(file) => self.files[*file].1 = true,
                None => self.durable = self.names.clone(),
            }
            Ok(())
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.call()?;
            let file = self.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            self.names.insert(to.to_owned(), file);
            Ok(())
        }
    }

    #[test]
    fn a_power_cut_leaves_the_old_file_or_the_new_one() {
        let path = Path::new("/data/layers.json");
        let mut before = Cut { calls_left: usize::MAX, ..Cut::default() };
        replace_on(&mut before, path, b"old").unwrap();
        assert_eq!(before.after(path), [Some(b"old".to_vec()), Some(b"old".to_vec())]);
        for calls in 0.. {
            let mut files = Cut { calls_left: calls, ..before.clone() };
            let ended = replace_on(&mut files, path, b"new").is_ok();
            for found in files.after(path) {
                let found = found.unwrap();
                assert!(found == b"new" || !ended && found == b"old", "{:?} after {calls} calls", found);
            }
            if ended {
                assert!(calls > 3);
                return;
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("azekura-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("some.json");
        for value in [1, 2] {
            write_json(&path, &value).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{value}\n"));
        }
        assert!(replace(&folder.join("no/such/folder"), b"").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
