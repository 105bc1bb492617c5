//! CHAP (RFC 7143 section 12.1.3, RFC 1994): the initiator proves that it knows a secret, and the target, if it is
//! asked to, that it knows another one.
//!
//! ```text
//!   AuthMethod ──► CHAP_A ──► CHAP_N, CHAP_R ──► proved
//! ```

use super::binary::{self, BINARY_MAX};
use super::text::{number, put};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA3_256, SHA256, digest};
use azekura_base::{ChapSecret, ChapSecrets};
use md5::{Digest, Md5};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 32;

/// What is asked of one connection: random, and never asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// CHAP_I.
    pub identifier: u8,
    /// CHAP_C.
    pub bytes: [u8; CHALLENGE_BYTES],
}

/// How a response is made, by its number (IANA, "PPP Authentication Algorithms").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// The one that every implementation knows.
    Md5 = 5,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256.
    Sha3 = 8,
}

impl Algorithm {
    /// The best of those that are offered.
    fn choose(offered: &str) -> Option<Algorithm> {
        let offered: Vec<u32> = offered.split(',').filter_map(number).collect();
        [Algorithm::Sha3, Algorithm::Sha256, Algorithm::Md5]
            .into_iter()
            .find(|known| offered.contains(&u32::from(*known as u8)))
    }

    /// The response to a challenge (RFC 1994 section 4.1): the digest of the identifier, the secret and the challenge.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        // It does not grow: no part of the secret is left behind in memory.
        let mut all = Zeroizing::new(Vec::with_capacity(1 + secret.len() + challenge.len()));
        all.push(identifier);
        all.extend_from_slice(secret);
        all.extend_from_slice(challenge);
        match self {
            Algorithm::Md5 => Md5::digest(&*all).to_vec(),
            Algorithm::Sha256 => digest(&SHA256, &all).as_ref().to_vec(),
            Algorithm::Sha3 => digest(&SHA3_256, &all).as_ref().to_vec(),
        }
    }
}

/// What the initiator has said of this in one text.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// AuthMethod.
    pub method: Option<String>,
    algorithms: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
    name: Option<String>,
    response: Option<String>,
}

impl Said {
    /// Keeps a key. False: it is none of these.
    pub fn keep(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "AuthMethod" => &mut self.method,
            "CHAP_A" => &mut self.algorithms,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }

    /// There is nothing in it but the method.
    pub fn is_empty(&self) -> bool {
        matches!(self, Said { algorithms: None, identifier: None, challenge: None, name: None, response: None, .. })
    }
}

/// Why an initiator has proved nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// What it said is none of the protocol.
    Nonsense,
    /// It does not want to prove anything in a way that there is, or asks for what is not proved here.
    Unwilling,
    /// It has proved nothing: the name or the secret is a wrong one.
    Mistaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// AuthMethod is to come.
    Method,
    /// CHAP_A is.
    Algorithm,
    /// CHAP_N and CHAP_R are.
    Response(Algorithm),
    Proved,
}

/// The target's side.
pub(super) struct Chap {
    secrets: Arc<ChapSecrets>,
    challenge: Challenge,
    stage: Stage,
}

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chap({:?})", self.stage)
    }
}

impl Chap {
    pub fn new(secrets: Arc<ChapSecrets>, challenge: Challenge) -> Chap {
        Chap { secrets, challenge, stage: Stage::Method }
    }

    pub fn is_proved(&self) -> bool {
        self.stage == Stage::Proved
    }

    /// Deals with a text of the security stage, which is the last one of that where `ends`.
    pub fn text(&mut self, said: &Said, ends: bool, answer: &mut Vec<u8>) -> Result<(), Failure> {
        if said.method.is_some() && (self.stage != Stage::Method || !said.is_empty()) {
            return Err(Failure::Nonsense);
        }
        match self.stage {
            Stage::Method => {
                let Some(methods) = &said.method else {
                    return if ends || !said.is_empty() { Err(Failure::Unwilling) } else { Ok(()) };
                };
                // There is no other way than this one, so nobody is talked down to none.
                if !methods.split(',').any(|method| method == "CHAP") {
                    return Err(Failure::Unwilling);
                }
                put(answer, "AuthMethod", "CHAP");
                self.stage = Stage::Algorithm;
            }
            Stage::Algorithm => {
                let Said { algorithms: Some(offered), name: None, response: None, .. } = said else {
                    return Err(Failure::Nonsense);
                };
                let algorithm = Algorithm::choose(offered).ok_or(Failure::Unwilling)?;
                put(answer, "CHAP_A", &(algorithm as u8).to_string());
                put(answer, "CHAP_I", &self.challenge.identifier.to_string());
                put(answer, "CHAP_C", &binary::write(&self.challenge.bytes));
                self.stage = Stage::Response(algorithm);
            }
            Stage::Response(algorithm) => {
                self.response(algorithm, said, answer)?;
                self.stage = Stage::Proved;
            }
            Stage::Proved if said.is_empty() => {}
            Stage::Proved => return Err(Failure::Nonsense),
        }
        Ok(())
    }

    fn response(&self, algorithm: Algorithm, said: &Said, answer: &mut Vec<u8>) -> Result<(), Failure> {
        let Said { algorithms: None, name: Some(name), response: Some(response), identifier, challenge, .. } = said
        else {
            return Err(Failure::Nonsense);
        };
        let response = binary::read(response).ok_or(Failure::Nonsense)?;
        let asked = match (identifier, challenge) {
            (None, None) => None,
            (Some(identifier), Some(challenge)) => Some((
                number(identifier).and_then(|number| u8::try_from(number).ok()).ok_or(Failure::Nonsense)?,
                binary::read(challenge).ok_or(Failure::Nonsense)?,
            )),
            _ => return Err(Failure::Nonsense),
        };
        let ChapSecrets { initiator, target } = &*self.secrets;
        let Challenge { identifier, bytes } = &self.challenge;
        let wanted = algorithm.response(*identifier, &initiator.secret, bytes);
        // Both are compared, whatever comes of the first.
        let is_named = verify_slices_are_equal(name.as_bytes(), initiator.user.as_bytes()).is_ok();
        let is_proved = verify_slices_are_equal(&response, &wanted).is_ok();
        if !(is_named & is_proved) {
            return Err(Failure::Mistaken);
        }
        let Some((identifier, challenge)) = asked else { return Ok(()) };
        let Some(ChapSecret { user, secret }) = target else { return Err(Failure::Unwilling) };
        // Section 9.2.1: nobody has his own question answered by who has asked it.
        if challenge == *bytes {
            return Err(Failure::Mistaken);
        }
        put(answer, "CHAP_N", user);
        put(answer, "CHAP_R", &binary::write(&algorithm.response(identifier, secret, &challenge)));
        Ok(())
    }
}

const _: () = assert!(CHALLENGE_BYTES <= BINARY_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// `python3 -c 'import hashlib; print(hashlib.sha3_256(b"\x05twelve bytes" + bytes(range(16))).hexdigest())'`, and
    /// so on.
    #[test]
    fn responses_are_as_others_make_them() {
        let challenge: Vec<u8> = (0..16).collect();
        for (algorithm, wanted) in [
            (Algorithm::Md5, "60ea5e9b7b276d58a8c606e5c68fac08"),
            (Algorithm::Sha256, "dbbaba9477ec5f8b942cc8cde4f766318980268861e3d73d283c4a776388e1a2"),
            (Algorithm::Sha3, "962feb3ea43b61f5f33fab0427e1ea2afb208e549079bc5e6eaeabd99e1ff003"),
        ] {
            assert_eq!(binary::write(&algorithm.response(5, b"twelve bytes", &challenge)), format!("0x{wanted}"));
        }
    }

    #[test]
    fn the_best_algorithm_that_is_offered_is_taken() {
        for (offered, chosen) in [
            ("5", Some(Algorithm::Md5)),
            ("5,6,7,8", Some(Algorithm::Sha3)),
            ("0x7,5", Some(Algorithm::Sha256)),
            ("6", None),
            ("", None),
            ("-5,x", None),
        ] {
            assert_eq!(Algorithm::choose(offered), chosen, "{offered}");
        }
    }
}
