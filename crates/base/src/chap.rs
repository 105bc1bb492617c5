//! Secrets that hosts prove by CHAP (RFC 1994; RFC 7143 section 12.1.3), or over NVMe by DH-HMAC-CHAP, for which each
//! is the text of a [`crate::DhchapKey`].

use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The shortest secret, in bytes: 96 bits (RFC 7143 section 9.2.1).
pub const CHAP_SECRET_MIN: usize = 12;
/// The longest secret, and the longest name, in bytes.
pub const CHAP_MAX: usize = 255;

/// A name and the secret that proves it. The secret is overwritten when it is dropped, and nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapSecret {
    /// The name: CHAP_N. NVMe has none but the names of host and subsystem.
    pub user: String,
    /// The secret.
    pub secret: Arc<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChapSecret({}, …)", self.user)
    }
}

/// What an initiator has to prove to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapSecrets {
    /// What it proves.
    pub initiator: ChapSecret,
    /// What the target proves to it, if it asks for that.
    pub target: Option<ChapSecret>,
}

/// Why this can't be a name for CHAP, or a secret of that name.
///
/// # Errors
/// What is wrong, which does not tell the secret.
pub fn check_chap(user: &str, secret: &[u8]) -> Result<(), String> {
    if user.is_empty() || user.len() > CHAP_MAX || user.chars().any(char::is_control) {
        return Err(format!("a name for CHAP has 1 to {CHAP_MAX} bytes, and no control characters"));
    }
    if !(CHAP_SECRET_MIN..=CHAP_MAX).contains(&secret.len()) || secret.contains(&0) {
        return Err(format!(
            "a secret for CHAP has {CHAP_SECRET_MIN} to {CHAP_MAX} bytes (RFC 7143 section 9.2.1), and no zero byte; this \
             one has {}",
            secret.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_96_bits_and_is_not_printed() {
        for (user, secret, is_good) in [
            ("me", &b"twelve bytes"[..], true),
            ("me", b"eleven byte", false),
            ("me", b"with a \0 byte", false),
            ("", b"twelve bytes", false),
            ("a\nb", b"twelve bytes", false),
            ("me", &[b'x'; CHAP_MAX], true),
            ("me", &[b'x'; CHAP_MAX + 1], false),
        ] {
            assert_eq!(check_chap(user, secret).is_ok(), is_good, "{user:?}");
        }
        let secret = ChapSecret { user: "me".to_owned(), secret: Arc::new(Zeroizing::new(b"twelve bytes".to_vec())) };
        assert!(!format!("{:?}", ChapSecrets { initiator: secret, target: None }).contains("twelve"));
    }
}
