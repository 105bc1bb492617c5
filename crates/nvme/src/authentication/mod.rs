//! DH-HMAC-CHAP (Base section 8.13.5): a host proves that it knows a secret, and the controller, if it is asked to,
//! that it knows another one.
//!
//! ```text
//!   Negotiate ──► Challenge ──► Reply ──► Success1 ──► (Success2) ──► proved
//!                                  └──► Failure1 ──► over
//! ```
//!
//! The host sends and fetches messages with commands of its own, Authentication Send and Receive. There is no
//! Diffie-Hellman exchange (its group is the null one): a secret has 256 bits, so nobody finds it by trying, and no key
//! of a channel is made of it (docs/decisions/0053-hosts.md).

pub mod messages;
pub mod response;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use azekura_base::DhchapKey;
use messages::{Explanation, Message};
use response::{Hash, Prover, Question};
use std::fmt;

/// SECP of Authentication Send and Receive (Base sections 6.1 and 6.2): messages of these protocols.
pub const SECURITY_PROTOCOL: u8 = 0xe9;
/// SPSP0 and SPSP1 of both.
pub const PROTOCOL_SPECIFIC: u16 = 0x0101;
/// Bytes of a challenge: as many as the longest hash has.
pub const CHALLENGE_BYTES: usize = 64;
/// DHgID of no exchange.
const NULL_GROUP: u8 = 0x00;

/// What is asked of one connection: random, and never asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// CVAL, as much of it as a hash has.
    pub bytes: [u8; CHALLENGE_BYTES],
    /// SEQNUM, which is not 0.
    pub sequence: u32,
}

/// What both sides know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The host proves it.
    pub host: DhchapKey,
    /// The controller does, if it is asked to.
    pub controller: Option<DhchapKey>,
}

#[derive(Debug)]
enum Stage {
    /// AUTH_Negotiate is to come.
    Fresh,
    /// The challenge is to be fetched.
    Asks(Hash),
    /// The reply is to come.
    Asked(Hash),
    /// Success1 is to be fetched, with the controller's response if the host has asked.
    Succeeds(Hash, Option<Vec<u8>>),
    /// Success2 is to come.
    Shown,
    Proved,
    /// Failure1 is to be fetched.
    Fails(Explanation),
    Over,
}

/// What became of a message of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It goes on.
    On,
    /// The host does not know the secret: it is to wait before it is answered.
    Mistaken,
    /// The host says that the controller does not know the secret.
    Distrusted,
}

/// The controller's side of one authentication.
pub struct Authentication {
    keys: Keys,
    challenge: Challenge,
    host: String,
    subsystem: String,
    transaction: u16,
    stage: Stage,
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Fresh => "Fresh",
            Stage::Asks(_) | Stage::Asked(_) => "Asked",
            Stage::Succeeds(..) | Stage::Shown | Stage::Proved => "Proved",
            Stage::Fails(_) | Stage::Over => "Failed",
        };
        write!(f, "Authentication({stage})")
    }
}

impl Authentication {
    /// Of the host of this name, which wants to use this subsystem.
    #[must_use]
    pub fn new(keys: Keys, challenge: Challenge, host: &str, subsystem: &str) -> Authentication {
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        Authentication { keys, challenge, host, subsystem, transaction: 0, stage: Stage::Fresh }
    }

    /// True when the host has proved what it knows, and the controller what it was asked for.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        matches!(self.stage, Stage::Proved)
    }

    /// True when it has failed, and the host has been told.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    fn question<'a>(&'a self, challenge: &'a [u8], sequence: u32) -> Question<'a> {
        let (host, subsystem) = (&self.host, &self.subsystem);
        Question { challenge, sequence, transaction: self.transaction, host, subsystem }
    }

    /// Takes what Authentication Send has brought.
    pub fn take(&mut self, bytes: &[u8]) -> Taken {
        let message = Message::of(bytes);
        if let Some(Message::Failure { is_hosts: true, .. }) = message {
            self.stage = Stage::Over;
            return Taken::Distrusted;
        }
        match self.deal(message) {
            Ok(stage) => self.stage = stage,
            Err(explanation) => {
                let is_mistaken = explanation == Explanation::Failed;
                self.stage = Stage::Fails(explanation);
                return if is_mistaken { Taken::Mistaken } else { Taken::On };
            }
        }
        Taken::On
    }

    fn deal(&mut self, message: Option<Message>) -> Result<Stage, Explanation> {
        let message = message.ok_or(Explanation::Payload)?;
        let is_own = message.transaction() == self.transaction;
        match (&self.stage, message) {
            (Stage::Fresh, Message::Negotiate { transaction, channel, hashes, groups }) => {
                self.transaction = transaction;
                if channel != 0 {
                    return Err(Explanation::Concatenation);
                }
                if hashes.is_empty() && groups.is_empty() {
                    return Err(Explanation::NotUsable);
                }
                let hash = Hash::choose(&hashes).ok_or(Explanation::Hash)?;
                if !groups.contains(&NULL_GROUP) {
                    return Err(Explanation::Group);
                }
                Ok(Stage::Asks(hash))
            }
            (Stage::Asked(_) | Stage::Shown, Message::Reply { .. } | Message::Success2 { .. }) if !is_own => {
                Err(Explanation::Payload)
            }
            (Stage::Asked(hash), Message::Reply { response, challenge, sequence, exponential_len, .. }) => {
                if response.len() != hash.bytes() || exponential_len != 0 {
                    return Err(Explanation::Payload);
                }
                self.reply(*hash, &response, challenge, sequence)
            }
            (Stage::Shown, Message::Success2 { .. }) => Ok(Stage::Proved),
            _ => Err(Explanation::Message),
        }
    }

    fn reply(&self, hash: Hash, response: &[u8], asked: Option<Vec<u8>>, sequence: u32) -> Result<Stage, Explanation> {
        let own = &self.challenge.bytes[..hash.bytes()];
        let wanted = hash.response(&self.keys.host, Prover::Host, &self.question(own, self.challenge.sequence));
        if verify_slices_are_equal(response, &wanted).is_err() {
            return Err(Explanation::Failed);
        }
        let Some(asked) = asked else { return Ok(Stage::Succeeds(hash, None)) };
        // Nobody has his own question answered by who has asked it.
        let Some(key) = self.keys.controller.as_ref().filter(|_| asked != own) else {
            return Err(Explanation::NotUsable);
        };
        let response = hash.response(key, Prover::Controller, &self.question(&asked, sequence));
        Ok(Stage::Succeeds(hash, Some(response)))
    }

    /// The message that Authentication Receive fetches; `None`: there is none, the host's turn is it.
    pub fn fetch(&mut self) -> Option<Vec<u8>> {
        let transaction = self.transaction;
        let (message, next) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asks(hash) => {
                let (challenge, sequence) = (self.challenge.bytes[..hash.bytes()].to_vec(), self.challenge.sequence);
                let (hash_id, group) = (hash as u8, NULL_GROUP);
                (Message::Challenge { transaction, hash: hash_id, group, sequence, challenge }, Stage::Asked(hash))
            }
            Stage::Succeeds(hash, response) => {
                let next = if response.is_some() { Stage::Shown } else { Stage::Proved };
                (Message::Success1 { transaction, hash_len: hash.bytes() as u8, response }, next)
            }
            Stage::Fails(explanation) => {
                (Message::Failure { transaction, is_hosts: false, explanation: explanation as u8 }, Stage::Over)
            }
            other => {
                self.stage = other;
                return None;
            }
        };
        self.stage = next;
        Some(message.bytes())
    }
}

#[cfg(test)]
mod tests;
