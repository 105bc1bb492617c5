//! What the machine that the command runs on says of itself and of its node: facts, the node's options, its log.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use azekura_base::Size;

use super::archive::{Keep, PART_BYTES_MAX, lines_of};

/// The service of the package.
const UNIT: &str = "azekura";
/// The journal's last lines, at most so many.
const JOURNAL_LINES_MAX: usize = 100_000;
/// The journal is waited for as long as this.
const JOURNAL_WITHIN: Duration = Duration::from_secs(60);
/// Files that are read for facts, options and secrets are not longer, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A short file as text.
///
/// # Errors
/// Names the file.
pub fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| format!("can't read {}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Kernel, processors, memory, and where the data folder lies.
pub fn facts(data: Option<&Path>) -> String {
    let line = |path: &str| read(Path::new(path)).map_or_else(|why| why, |text| text.trim().to_owned());
    let release = line("/etc/os-release");
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("not known");
    let processors = std::thread::available_parallelism().map_or_else(|why| why.to_string(), |n| n.to_string());
    let info = line("/proc/cpuinfo");
    let model = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let mut text = format!(
        "system      {}\nkernel      {} {}\nprocessors  {processors}, {}\nup          {} s\nload        {}\n",
        system.trim_matches('"'),
        line("/proc/sys/kernel/osrelease"),
        std::env::consts::ARCH,
        model.map_or("model not known", |(_, model)| model),
        line("/proc/uptime").split('.').next().unwrap_or_default(),
        line("/proc/loadavg"),
    );
    for pressure in ["cpu", "io", "memory"] {
        let told = line(&format!("/proc/pressure/{pressure}"));
        text += &format!("pressure    {pressure}: {}\n", told.lines().next().unwrap_or_default());
    }
    let memory = line("/proc/meminfo");
    let wanted = ["MemTotal", "MemFree", "MemAvailable", "Dirty", "SwapTotal", "SwapFree", "HugePages_Total"];
    for found in memory.lines().filter(|line| wanted.iter().any(|name| line.starts_with(&format!("{name}:")))) {
        text += &format!("memory      {}\n", found.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    match data {
        Some(data) => text + &folder(data),
        None => {
            text + "data        not known: --config-file names a file that says it, and so does --api unix:DIR/api.sock\n"
        }
    }
}

/// The file system of a folder, and its room.
fn folder(data: &Path) -> String {
    let mut text = format!("data        {}\n", data.display());
    let real = match data.canonicalize() {
        Ok(real) => real,
        Err(error) => return text + &format!("            can't be looked at: {error}\n"),
    };
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    if let Some(mount) = mount_of(&mounts, &real) {
        text += &format!("mount       {mount}\n");
    }
    match rustix::fs::statvfs(&real) {
        Ok(found) => {
            let size = |blocks: u64| Size::new(blocks.saturating_mul(found.f_frsize));
            let (all, free) = (size(found.f_blocks), size(found.f_bavail));
            text += &format!("room        {free} of {all} free, {} of {} inodes free\n", found.f_favail, found.f_files);
        }
        Err(error) => text += &format!("room        not known: {error}\n"),
    }
    text
}

/// The line of `mountinfo` (proc(5)) of the file system that a path is on: where, type, device, options.
fn mount_of(mounts: &str, path: &Path) -> Option<String> {
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let (before, after): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), after.split(' ').collect());
        let (point, options) = (*before.get(4)?, *before.get(5)?);
        let text = format!("{point} {} {} {options}", after.first()?, after.get(1)?);
        path.starts_with(point).then_some((point.len(), text))
    };
    // Of two at one place, the later one hides the former.
    mounts.lines().filter_map(parse).max_by_key(|(length, _)| *length).map(|(_, text)| text)
}

/// The journal of the node's service.
///
/// # Errors
/// Why there is nothing of it.
pub fn journal(hours: u32) -> Result<String, String> {
    let (since, lines) = (format!("--since=-{hours}h"), format!("--lines={JOURNAL_LINES_MAX}"));
    let words = ["--unit", UNIT, "--no-pager", "--quiet", "--output=short-iso-precise", &since, &lines];
    let text = output(OsStr::new("journalctl"), &words)?;
    if text.trim().is_empty() {
        return Err(format!(
            "the journal has nothing of {UNIT}.service of the last {hours} hours that this user may read; root may read \
             all, and so may the group systemd-journal. --log FILE takes a log that is elsewhere"
        ));
    }
    Ok(text)
}

/// What a program prints, the end of it if it is long.
fn output(program: &OsStr, words: &[&str]) -> Result<String, String> {
    let name = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("can't run {name}: {error}"))?;
    let mut pipe = child.stdout.take().ok_or_else(|| format!("{name} has no output"))?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        let outcome = loop {
            match pipe.read(&mut piece) {
                Ok(0) => break Ok(kept),
                Ok(read) => kept.extend_from_slice(&piece[..read]),
                Err(error) => break Err(error),
            }
            if kept.len() > 2 * PART_BYTES_MAX {
                // One more, so that whoever cuts it sees that it is cut.
                kept.drain(..kept.len() - PART_BYTES_MAX - 1);
            }
        };
        drop(send.send(outcome));
    });
    let outcome = receive.recv_timeout(JOURNAL_WITHIN);
    // It has ended, or takes too long.
    drop(child.kill());
    drop(child.wait());
    match outcome {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => Err(format!("can't read what {name} says: {error}")),
        Err(_) => Err(format!("{name} did not end within {} s", JOURNAL_WITHIN.as_secs())),
    }
}

/// The end of a log in a file, from this time on (RFC 3339, UTC) where its lines say when they were written.
///
/// # Errors
/// Names the file.
pub fn log_file(path: &Path, since: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("can't read {}: {error}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(2 * PART_BYTES_MAX as u64))).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(2 * PART_BYTES_MAX as u64).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = lines_of(&text, Keep::End, 2 * PART_BYTES_MAX);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if time_of(line).is_none_or(|time| time < since) {
            at += line.len();
        } else {
            return Ok(text[at..].to_owned());
        }
    }
    if text.lines().any(|line| time_of(line).is_some()) {
        return Err(format!("{} has nothing since {since}", path.display()));
    }
    Ok(text.to_owned())
}

/// When a line was written, to the second.
fn time_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("{\"timestamp\":\"").unwrap_or(line);
    let time = line.get(..19)?;
    let fits = time.bytes().zip(b"0000-00-00T00:00:00").all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == *form,
    });
    fits.then_some(time)
}

/// The folder of `unix:DIR/api.sock`.
pub fn data_of_socket(api: &str) -> Option<PathBuf> {
    let first = api.split(',').map(str::trim).find_map(|url| url.strip_prefix("unix:"))?;
    Path::new(first).parent().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_the_innermost() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      30 22 8:2 / /var/lib rw,noatime shared:2 - xfs /dev/sdb rw,attr2\n\
                      31 22 8:3 / /var/lib/other rw - ext4 /dev/sdc rw\nnonsense\n";
        let told = mount_of(mounts, Path::new("/var/lib/azekura"));
        assert_eq!(told.as_deref(), Some("/var/lib xfs /dev/sdb rw,noatime"));
        assert_eq!(mount_of(mounts, Path::new("/srv")).as_deref(), Some("/ ext4 /dev/sda1 rw,relatime"));
        assert_eq!(mount_of("", Path::new("/srv")), None);
    }

    #[test]
    fn facts_are_had_of_every_machine() {
        let folder = tempfile::tempdir().unwrap();
        let text = facts(Some(folder.path()));
        for told in ["kernel ", "processors ", "memory      MemTotal", "room ", "inodes"] {
            assert!(text.contains(told), "{told}\n{text}");
        }
        assert!(facts(Some(Path::new("/no/such"))).contains("can't be looked at"));
    }

    #[test]
    fn a_log_begins_when_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let text = "2026-11-26T10:00:00.1Z  INFO a: one\n  more\n2026-11-27T10:00:00.1Z  INFO a: two\nplain\n";
        std::fs::write(&path, text).unwrap();
        let since = |time| log_file(&path, time);
        assert_eq!(since("2026-11-27T00:00:00Z").unwrap(), "2026-11-27T10:00:00.1Z  INFO a: two\nplain\n");
        assert_eq!(since("2026-11-01T00:00:00Z").unwrap(), text);
        assert!(since("2027-01-01T00:00:00Z").unwrap_err().contains("nothing since 2027"));
        std::fs::write(&path, "no times\nhere\n").unwrap();
        assert_eq!(since("2027-01-01T00:00:00Z").unwrap(), "no times\nhere\n");
        assert_eq!(time_of("{\"timestamp\":\"2026-11-27T19:04:11.3Z\",\"level\""), Some("2026-11-27T19:04:11"));
        assert!(log_file(&folder.path().join("none"), "2027").unwrap_err().contains("none"));
    }

    #[test]
    fn what_a_program_prints_is_read() {
        assert_eq!(output(OsStr::new("echo"), &["one"]).unwrap(), "one\n");
        assert!(output(OsStr::new("no-such-program"), &[]).unwrap_err().contains("can't run no-such-program"));
    }
}
