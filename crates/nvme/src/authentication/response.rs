//! What proves that somebody knows a secret (Base sections 8.13.5.3 to 8.13.5.5).

use aws_lc_rs::hmac::{Algorithm, Context, HMAC_SHA256, HMAC_SHA384, HMAC_SHA512, Key};
use azekura_base::{DhchapKey, DhchapTransform};
use zeroize::Zeroizing;

/// A hash function (Base section 8.13.5.3, HashID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 0x01,
    /// SHA-384.
    Sha384 = 0x02,
    /// SHA-512.
    Sha512 = 0x03,
}

/// Who proves that he knows a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The host.
    Host,
    /// The controller.
    Controller,
}

/// What a response is made of, beside the secret.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// C1 or C2.
    pub challenge: &'a [u8],
    /// S1 or S2.
    pub sequence: u32,
    /// T_ID.
    pub transaction: u16,
    /// HOSTNQN.
    pub host: &'a str,
    /// SUBNQN.
    pub subsystem: &'a str,
}

impl Hash {
    /// The strongest of those that are offered.
    #[must_use]
    pub fn choose(offered: &[u8]) -> Option<Hash> {
        [Hash::Sha512, Hash::Sha384, Hash::Sha256].into_iter().find(|known| offered.contains(&(*known as u8)))
    }

    /// Bytes of a hash, and of a challenge.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Hash::Sha256 => HMAC_SHA256,
            Hash::Sha384 => HMAC_SHA384,
            Hash::Sha512 => HMAC_SHA512,
        }
    }

    /// The response to a question.
    #[must_use]
    pub fn response(self, key: &DhchapKey, prover: Prover, question: &Question<'_>) -> Vec<u8> {
        let Question { challenge, sequence, transaction, host, subsystem } = *question;
        let (first, second, word) = match prover {
            Prover::Host => (host, subsystem, "HostHost"),
            Prover::Controller => (subsystem, host, "Controller"),
        };
        let mut context = Context::with_key(&Key::new(self.algorithm(), &transformed(key, first)));
        let no_channel = [0];
        for part in [
            challenge,
            &sequence.to_le_bytes(),
            &transaction.to_le_bytes(),
            &no_channel,
            word.as_bytes(),
            first.as_bytes(),
            &[0],
            second.as_bytes(),
        ] {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }
}

/// The key as it is used by who has this name.
fn transformed(key: &DhchapKey, name: &str) -> Zeroizing<Vec<u8>> {
    let algorithm = match key.transform {
        DhchapTransform::None => return key.bytes.clone(),
        DhchapTransform::Sha256 => HMAC_SHA256,
        DhchapTransform::Sha384 => HMAC_SHA384,
        DhchapTransform::Sha512 => HMAC_SHA512,
    };
    let mut context = Context::with_key(&Key::new(algorithm, &key.bytes));
    context.update(name.as_bytes());
    context.update(b"NVMe-over-Fabrics");
    Zeroizing::new(context.sign().as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as Python's `hmac` makes it of the same parts, written out by hand.
    #[test]
    fn responses_are_as_the_standard_makes_them() {
        let challenge: Vec<u8> = (0..64).collect();
        let question = |len: usize| Question {
            challenge: &challenge[..len],
            sequence: 0x0102_0304,
            transaction: 0x0506,
            host: "nqn.2000-01.example:me",
            subsystem: "nqn.2026-01.io.azekura:vol1",
        };
        let key = |transform| DhchapKey { transform, bytes: (100..132).collect::<Vec<u8>>().into() };
        for (hash, transform, prover, wanted) in [
            (Hash::Sha256, DhchapTransform::None, Prover::Host, "3ac613c54f7fc828f04f0be19bb3171ba15319c3"),
            (Hash::Sha256, DhchapTransform::Sha256, Prover::Host, "790f008706fdd1bba52c169b45808ac357ca8baa"),
            (Hash::Sha384, DhchapTransform::Sha512, Prover::Controller, "4ed79a592f76a70cf17f740dbd75eb6244d92583"),
            (Hash::Sha512, DhchapTransform::Sha384, Prover::Controller, "d1ab9ca659fbc3c5365303b9e52de584a76f2e84"),
        ] {
            let made = hash.response(&key(transform), prover, &question(hash.bytes()));
            let text: String = made.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(made.len() == hash.bytes() && text.starts_with(wanted), "{hash:?}: {text}");
        }
    }

    #[test]
    fn the_strongest_hash_that_is_offered_is_taken() {
        for (offered, chosen) in [
            (&[1, 2, 3][..], Some(Hash::Sha512)),
            (&[2, 1], Some(Hash::Sha384)),
            (&[9, 1], Some(Hash::Sha256)),
            (&[0, 4], None),
            (&[], None),
        ] {
            assert_eq!(Hash::choose(offered), chosen, "{offered:?}");
        }
    }
}
