//! This machine, with the errors that calls answer: what `azekura-attach` does, in the words of gRPC.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

use azekura_attach::{AttachError, Kind, Mounts, programs};
use tonic::{Code, Status};

use crate::Outcome;

/// The error of a step on this machine.
pub(super) fn status(error: AttachError) -> Status {
    let code = match error.kind {
        Kind::Invalid => Code::InvalidArgument,
        Kind::NotFound => Code::NotFound,
        Kind::Precondition => Code::FailedPrecondition,
        Kind::Exhausted => Code::ResourceExhausted,
        Kind::Unavailable => Code::Unavailable,
        Kind::Late => Code::DeadlineExceeded,
        Kind::Internal => Code::Internal,
    };
    Status::new(code, error.message)
}

/// Runs a program that has to succeed, and answers what it has printed.
pub(super) fn run<S: AsRef<OsStr>>(
    doing: &str,
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Outcome<String> {
    programs::run(doing, program, arguments).map_err(status)
}

/// Runs a program to its end, whatever its exit code.
pub(super) fn output<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Outcome<Output> {
    programs::output(program, arguments).map_err(status)
}

/// What is mounted now.
pub(super) fn mounts() -> Outcome<Mounts> {
    Mounts::now().map_err(status)
}

/// Takes away all that is mounted at a path.
pub(super) fn unmount_all(path: &Path) -> Outcome<()> {
    azekura_attach::unmount_all(path).map_err(status)
}

/// A device's size, bytes.
pub(super) fn size(device: &Path) -> Outcome<u64> {
    azekura_attach::size(device).map_err(status)
}

/// A path as the kernel's list of mounts has it.
pub(super) fn real(path: &str) -> Outcome<PathBuf> {
    azekura_attach::real(path).map_err(status)
}
