//! `azekura volume unlock` and `azekura volume change-secret`: volumes that are encrypted with a secret of their own.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use azekura_api::endpoint::{VolumeChangeSecret, VolumeUnlock};
use azekura_api::{ChangeVolumeSecret, UnlockVolume};
use azekura_base::SecretText;
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// So much is read of a file with a secret, bytes: more than a secret may have.
const FILE_BYTES_MAX: u64 = 4096;

#[derive(Debug, Args)]
pub struct UnlockArgs {
    /// Name of the volume.
    name: String,
    /// The file with the secret that its key is wrapped with; an end of line behind it does not count.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// The node that is to serve it [default: those that it is attached to, or else the one that is asked].
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
pub struct ChangeSecretArgs {
    /// Name of the volume.
    name: String,
    /// The file with the secret that its key is wrapped with.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// The file with the one that is to take its place.
    #[arg(long, value_name = "FILE")]
    new_secret_file: PathBuf,
    #[command(flatten)]
    api: ApiArgs,
}

/// The secret in a file, as it stands there.
pub fn read_secret(path: &Path) -> Result<SecretText, CliError> {
    let unreadable = |why: String| CliError::new(format!("can't use the secret in {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    // It does not grow: nothing is left behind in memory.
    let mut text = String::with_capacity(FILE_BYTES_MAX as usize + 1);
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let text = SecretText::new(text);
    match read.map_err(|error| unreadable(error.to_string()))? as u64 > FILE_BYTES_MAX {
        true => Err(unreadable(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

/// Runs `azekura volume unlock`.
pub fn unlock(arguments: UnlockArgs) -> Result<ExitCode, CliError> {
    let UnlockArgs { name, secret_file, node, api } = arguments;
    let body = UnlockVolume { secret: read_secret(&secret_file)?, node };
    let volume = api.client()?.in_private()?.send::<VolumeUnlock>([name], &body)?;
    if api.json { print_json(&volume) } else { print(&format!("Volume {} is unlocked.\n", volume.name)) }
}

/// Runs `azekura volume change-secret`.
pub fn change_secret(arguments: ChangeSecretArgs) -> Result<ExitCode, CliError> {
    let ChangeSecretArgs { name, secret_file, new_secret_file, api } = arguments;
    let (secret, new_secret) = (read_secret(&secret_file)?, read_secret(&new_secret_file)?);
    let body = ChangeVolumeSecret { secret, new_secret };
    let volume = api.client()?.in_private()?.send::<VolumeChangeSecret>([name], &body)?;
    if api.json { print_json(&volume) } else { print(&format!("Volume {} has its new secret.\n", volume.name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_what_a_file_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "correct horse\n").unwrap();
        assert_eq!(read_secret(&path).unwrap().reveal(), "correct horse\n");
        std::fs::write(&path, vec![b'x'; 4097]).unwrap();
        assert!(read_secret(&path).is_err());
        std::fs::write(&path, [0xff; 16]).unwrap();
        assert!(read_secret(&path).is_err());
        assert!(read_secret(&folder.path().join("missing")).is_err());
    }
}
