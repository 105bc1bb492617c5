//! Secrets and what proves them: drawn, hashed, compared.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use azekura_base::{Secret, SecretHash};

/// A new secret: 256 random bits.
///
/// # Errors
/// When the system has no randomness to give.
pub fn draw_secret() -> std::io::Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(format!("no randomness: {error}")))?;
    Ok(Secret(bytes))
}

/// What is kept of a secret: its SHA-256. No slow hash: nobody has thought the secret up, so nobody can guess it.
#[must_use]
pub fn hash_of(secret: &Secret) -> SecretHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, &secret.0).as_ref());
    SecretHash(hash)
}

/// The SHA-256 of a text that is no secret.
pub(crate) fn hash_of_text(text: &str) -> SecretHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    SecretHash(hash)
}

/// Whether a secret is the one whose hash is kept. It takes as long whether it is or not, and where there is none.
pub(crate) fn is_proved(secret: &Secret, kept: Option<SecretHash>) -> bool {
    // Nobody has the secret of this one.
    let made_up = SecretHash([0xa5; 32]);
    let equal = verify_slices_are_equal(&hash_of(secret).0, &kept.unwrap_or(made_up).0).is_ok();
    equal & kept.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_proved_by_itself_alone() {
        let secret = Secret(std::array::from_fn(|at| at as u8));
        let hash = hash_of(&secret);
        // `python3 -c 'import hashlib; print(hashlib.sha256(bytes(range(32))).hexdigest())'`
        assert_eq!(hash.to_string(), "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd");
        assert!(is_proved(&secret, Some(hash)));
        assert!(!is_proved(&secret, None) && !is_proved(&Secret([0; 32]), Some(hash)));
        assert_ne!(draw_secret().unwrap(), draw_secret().unwrap());
    }
}
