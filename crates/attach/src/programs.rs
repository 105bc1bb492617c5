//! The machine's own programs: mount, mkfs, losetup and the like.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use crate::{AttachError, Outcome};

/// Whether this process is root's.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is there.
#[must_use]
pub fn is_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs a program to its end, whatever its exit code.
///
/// # Errors
/// When it can't be started.
pub fn output<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Outcome<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    command.output().map_err(|error| {
        AttachError::internal(format!("can't run {program}: {error} (is it installed, and in this process's PATH?)"))
    })
}

/// What a program has to say about how it ended.
#[must_use]
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (errors, out) = (text(&output.stderr), text(&output.stdout));
    let said = if errors.is_empty() { out } else { errors };
    format!("{}: {}", output.status, said.lines().collect::<Vec<_>>().join("; "))
}

/// Runs a program that has to succeed, and answers what it has printed.
///
/// # Errors
/// When it can't be started, or fails: with what it said.
pub fn run<S: AsRef<OsStr>>(doing: &str, program: &str, arguments: impl IntoIterator<Item = S>) -> Outcome<String> {
    let output = output(program, arguments)?;
    if !output.status.success() {
        return Err(AttachError::internal(format!("{doing}: {program} has ended with {}", said(&output))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
