//! Files that nobody but their owner may read.

use crate::SecretsError;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Reads a file with a secret in it, of at most so many bytes; `what` names it in errors: "the key file".
///
/// # Errors
/// When it can't be read, is longer, is no text, or others can read it.
pub(crate) fn read(what: &'static str, path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, SecretsError> {
    let unreadable = |reason| SecretsError::Unreadable { what, path: path.to_owned(), reason };
    let failed = |error: std::io::Error| unreadable(error.to_string());
    let mut file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if meta.mode() & 0o077 != 0 {
        return Err(SecretsError::Open { what, path: path.to_owned(), mode: meta.mode() & 0o7777 });
    }
    if meta.len() > bytes_max || !meta.is_file() {
        return Err(unreadable(format!("it is no file of at most {bytes_max} bytes")));
    }
    // What grows leaves its former place behind in memory.
    let mut text = Zeroizing::new(String::with_capacity(bytes_max as usize));
    file.by_ref().take(bytes_max).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Reads a file that has no secret, of at most so many bytes.
///
/// # Errors
/// When it can't be read, or is longer.
pub(crate) fn read_public(what: &'static str, path: &Path, bytes_max: u64) -> Result<Vec<u8>, SecretsError> {
    let unreadable = |reason| SecretsError::Unreadable { what, path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > bytes_max {
        return Err(unreadable(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}
