//! Secrets that NVMe hosts prove by DH-HMAC-CHAP, as people have them (NVMe Base 2.0 section 8.13.5.8).

use crate::ChapSecret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum};
use std::fmt;
use zeroize::Zeroizing;

/// What such a secret begins with.
const PREFIX: &str = "DHHC-1:";
/// How many bytes a key may have.
const KEY_BYTES: [usize; 3] = [32, 48, 64];
/// Bytes of the checksum behind the key.
const SUM_BYTES: usize = 4;
/// Characters of the longest secret's text.
const TEXT_MAX: usize = 128;

/// What a key becomes before it is used: with a transformation, it is of use to one name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DhchapTransform {
    /// It stays as it is.
    None,
    /// HMAC of SHA-256 under it.
    Sha256,
    /// The same of SHA-384.
    Sha384,
    /// The same of SHA-512.
    Sha512,
}

/// A key. It is overwritten when it is dropped, and nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct DhchapKey {
    /// What it becomes before it is used.
    pub transform: DhchapTransform,
    /// Its 32, 48 or 64 bytes.
    pub bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for DhchapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DhchapKey({:?}, …)", self.transform)
    }
}

/// Why a text is no secret, which does not tell the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DhchapKeyError(&'static str);

impl fmt::Display for DhchapKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a secret of an NVMe host is 'DHHC-1:', 00 to 03, ':', the key in base64, ':', as nvme gen-dhchap-key makes \
             it; here {}",
            self.0
        )
    }
}

impl std::error::Error for DhchapKeyError {}

impl DhchapKey {
    /// The key of a secret's text.
    ///
    /// # Errors
    /// When it is none: another beginning, another length, or a wrong checksum.
    pub fn of(text: &[u8]) -> Result<DhchapKey, DhchapKeyError> {
        let wrong = |what| Err(DhchapKeyError(what));
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_MAX);
        let Some((transform, coded)) =
            text.and_then(|text| text.strip_prefix(PREFIX)?.strip_suffix(':')?.split_once(':'))
        else {
            return wrong("the beginning or the end is another one");
        };
        let transform = match transform {
            "00" => DhchapTransform::None,
            "01" => DhchapTransform::Sha256,
            "02" => DhchapTransform::Sha384,
            "03" => DhchapTransform::Sha512,
            _ => return wrong("the transformation is none of 00 to 03"),
        };
        let Ok(mut bytes) = STANDARD.decode(coded).map(Zeroizing::new) else {
            return wrong("the key is not in base64");
        };
        let len = bytes.len().saturating_sub(SUM_BYTES);
        if !KEY_BYTES.contains(&len) {
            return wrong("the key has another length than 32, 48 or 64 bytes");
        }
        if sum(&bytes[..len])[..] != bytes[len..] {
            return wrong("the checksum is wrong: a character was lost or changed");
        }
        bytes.truncate(len);
        Ok(DhchapKey { transform, bytes })
    }

    /// The key of a secret that the configuration has.
    ///
    /// # Errors
    /// As [`DhchapKey::of`].
    pub fn of_secret(secret: &ChapSecret) -> Result<DhchapKey, DhchapKeyError> {
        DhchapKey::of(&secret.secret)
    }

    /// The text of the secret.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let mut all = Zeroizing::new(Vec::with_capacity(self.bytes.len() + SUM_BYTES));
        all.extend_from_slice(&self.bytes);
        all.extend_from_slice(&sum(&self.bytes));
        Zeroizing::new(format!("{PREFIX}{:02}:{}:", self.transform as u8, &*Zeroizing::new(STANDARD.encode(&*all))))
    }
}

/// The checksum of a key: CRC-32 of ISO/HDLC, little-endian.
fn sum(key: &[u8]) -> [u8; SUM_BYTES] {
    (checksum(CrcAlgorithm::Crc32IsoHdlc, key) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made with `nvme gen-dhchap-key --secret=000102…` of nvme-cli 2.3.
    const KNOWN: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_key_is_as_others_write_it() {
        let key = DhchapKey::of(KNOWN.as_bytes()).unwrap();
        assert_eq!((key.transform, &key.bytes[..]), (DhchapTransform::None, &(0..32).collect::<Vec<u8>>()[..]));
        assert_eq!(*key.text(), KNOWN);
        assert_eq!(format!("{key:?}"), "DhchapKey(None, …)");
    }

    #[test]
    fn what_is_no_secret_is_told_without_it() {
        for (text, why) in [
            ("twelve bytes", "the beginning or the end"),
            (&KNOWN[..KNOWN.len() - 1], "the beginning or the end"),
            (&KNOWN.replace(":00:", ":04:"), "none of 00 to 03"),
            (&KNOWN.replace("AAEC", "A*EC"), "not in base64"),
            (&KNOWN.replace("AAEC", "AAED"), "the checksum"),
            (&KNOWN.replace("AAEC", ""), "another length"),
            ("DHHC-1:00::", "another length"),
            ("DHHC-1:00:", "the beginning or the end"),
            (&format!("DHHC-1:00:{}:", "A".repeat(300)), "the beginning or the end"),
        ] {
            let error = DhchapKey::of(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("AwQF"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_key_comes_back(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 32), prop::collection::vec(any::<u8>(), 48),
            prop::collection::vec(any::<u8>(), 64),
        ], transform in 0..4_usize) {
            use DhchapTransform::{None, Sha256, Sha384, Sha512};
            let key = DhchapKey { transform: [None, Sha256, Sha384, Sha512][transform], bytes: bytes.into() };
            prop_assert_eq!(DhchapKey::of(key.text().as_bytes()).unwrap(), key);
        }

        #[test]
        fn any_bytes_are_a_secret_or_not(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
            let _ = DhchapKey::of(&bytes);
            let mut text = b"DHHC-1:01:".to_vec();
            text.extend(bytes.iter().map(|byte| b"ABCDEFGHabcdefgh01234567+/=:=:AA"[usize::from(byte % 32)]));
            let _ = DhchapKey::of(&text);
        }
    }
}
