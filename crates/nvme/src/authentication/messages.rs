//! The messages of DH-HMAC-CHAP (Base sections 8.13.5.2 to 8.13.5.7), read and written in both directions.

use crate::fields::{put_at, u16_at, u32_at};

/// AUTH_TYPE of messages that all protocols have.
const COMMON: u8 = 0x00;
/// AUTH_TYPE of those of DH-HMAC-CHAP.
const DHCHAP: u8 = 0x01;
/// AuthID of DH-HMAC-CHAP among the protocols of AUTH_Negotiate.
const PROTOCOL: u8 = 0x01;
/// Bytes of a protocol's description in AUTH_Negotiate.
const DESCRIPTION: usize = 64;
/// The most algorithms, or groups, of a description.
const LIST_MAX: usize = 30;
/// Bytes before the values of Challenge, Reply and Success1; and all of Success2.
const HEADER: usize = 16;
/// Bytes of AUTH_Failure1 and AUTH_Failure2.
const FAILURE: usize = 8;
/// Reason Code of each failure: the authentication failed.
const REASON: u8 = 0x01;

/// What went wrong (Base section 8.13.5.7, Reason Code Explanation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Explanation {
    /// Somebody does not know the secret, or has none.
    Failed = 0x01,
    /// Nothing that is here was offered.
    NotUsable = 0x02,
    /// A channel was wanted that is secured by this, which there is not.
    Concatenation = 0x03,
    /// None of the hash functions is known.
    Hash = 0x04,
    /// None of the Diffie-Hellman groups is.
    Group = 0x05,
    /// A field has an impossible value.
    Payload = 0x06,
    /// Another message was to come.
    Message = 0x07,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// AUTH_Negotiate: the host says what it can.
    Negotiate {
        /// T_ID, which names the transaction.
        transaction: u16,
        /// SC_C: what sort of secure channel is to come of it; 0 for none.
        channel: u8,
        /// HashIDList of DH-HMAC-CHAP; without it the host does not offer that.
        hashes: Vec<u8>,
        /// DHgIDList.
        groups: Vec<u8>,
    },
    /// DH-HMAC-CHAP_Challenge: what the host is asked.
    Challenge {
        /// T_ID.
        transaction: u16,
        /// HashID.
        hash: u8,
        /// DHgID.
        group: u8,
        /// SEQNUM: S1.
        sequence: u32,
        /// CVAL: C1, as long as a hash.
        challenge: Vec<u8>,
    },
    /// DH-HMAC-CHAP_Reply: what it knows, and what it asks itself.
    Reply {
        /// T_ID.
        transaction: u16,
        /// RVAL: R1, as long as a hash.
        response: Vec<u8>,
        /// CVAL: C2; `None`: the controller has to prove nothing (CVALID).
        challenge: Option<Vec<u8>>,
        /// SEQNUM: S2.
        sequence: u32,
        /// DHVLEN: bytes of the host's Diffie-Hellman value.
        exponential_len: u16,
    },
    /// DH-HMAC-CHAP_Success1: the host has proved it, and what the controller knows.
    Success1 {
        /// T_ID.
        transaction: u16,
        /// HL: bytes of a hash.
        hash_len: u8,
        /// RVAL: R2, if it was asked for.
        response: Option<Vec<u8>>,
    },
    /// DH-HMAC-CHAP_Success2: the controller has proved it, too.
    Success2 {
        /// T_ID.
        transaction: u16,
    },
    /// AUTH_Failure1 of the controller, or AUTH_Failure2 of the host.
    Failure {
        /// T_ID.
        transaction: u16,
        /// It is the host's.
        is_hosts: bool,
        /// Reason Code Explanation.
        explanation: u8,
    },
}

/// So many bytes at a place, or none.
fn part(bytes: &[u8], at: usize, len: usize) -> Option<Vec<u8>> {
    bytes.get(at..at + len).map(<[u8]>::to_vec)
}

impl Message {
    /// T_ID.
    #[must_use]
    pub fn transaction(&self) -> u16 {
        match self {
            Message::Negotiate { transaction, .. }
            | Message::Challenge { transaction, .. }
            | Message::Reply { transaction, .. }
            | Message::Success1 { transaction, .. }
            | Message::Success2 { transaction }
            | Message::Failure { transaction, .. } => *transaction,
        }
    }

    /// The message in these bytes; there may be more behind it. `None`: it is none, or is cut short.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Message> {
        if bytes.len() < FAILURE {
            return None;
        }
        let (transaction, hash_len) = (u16_at(bytes, 4), usize::from(bytes[6]));
        let kind = (bytes[0], bytes[1]);
        match kind {
            (COMMON, 0x00) => negotiate(bytes, transaction),
            (COMMON, 0xf0 | 0xf1) => {
                Some(Message::Failure { transaction, is_hosts: kind.1 == 0xf0, explanation: bytes[7] })
            }
            _ if bytes.len() < HEADER => None,
            (DHCHAP, 0x01) => Some(Message::Challenge {
                transaction,
                hash: bytes[8],
                group: bytes[9],
                sequence: u32_at(bytes, 12),
                challenge: part(bytes, HEADER, hash_len)?,
            }),
            (DHCHAP, 0x02) => {
                let challenge = part(bytes, HEADER + hash_len, hash_len)?;
                Some(Message::Reply {
                    transaction,
                    response: part(bytes, HEADER, hash_len)?,
                    challenge: (bytes[8] & 1 != 0).then_some(challenge),
                    sequence: u32_at(bytes, 12),
                    exponential_len: u16_at(bytes, 10),
                })
            }
            (DHCHAP, 0x03) => {
                let response = if bytes[8] & 1 != 0 { Some(part(bytes, HEADER, hash_len)?) } else { None };
                Some(Message::Success1 { transaction, hash_len: bytes[6], response })
            }
            (DHCHAP, 0x04) => Some(Message::Success2 { transaction }),
            _ => None,
        }
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When a list has more than 30 entries, or a hash more than 255 bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let begun = |kind: u8, id: u8, len: usize| {
            let mut bytes = vec![0; len];
            (bytes[0], bytes[1]) = (kind, id);
            put_at(&mut bytes, 4, &self.transaction().to_le_bytes());
            bytes
        };
        let byte = |len: usize| u8::try_from(len).expect("a hash has at most 255 bytes");
        match self {
            Message::Negotiate { channel, hashes, groups, .. } => {
                assert!(hashes.len() <= LIST_MAX && groups.len() <= LIST_MAX, "a list of more than {LIST_MAX}");
                let mut bytes = begun(COMMON, 0x00, FAILURE + DESCRIPTION);
                (bytes[6], bytes[7], bytes[8]) = (*channel, 1, PROTOCOL);
                (bytes[10], bytes[11]) = (hashes.len() as u8, groups.len() as u8);
                put_at(&mut bytes, 12, hashes);
                put_at(&mut bytes, 12 + LIST_MAX, groups);
                bytes
            }
            Message::Challenge { hash, group, sequence, challenge, .. } => {
                let mut bytes = begun(DHCHAP, 0x01, HEADER);
                (bytes[6], bytes[8], bytes[9]) = (byte(challenge.len()), *hash, *group);
                put_at(&mut bytes, 12, &sequence.to_le_bytes());
                bytes.extend_from_slice(challenge);
                bytes
            }
            Message::Reply { response, challenge, sequence, exponential_len, .. } => {
                let mut bytes = begun(DHCHAP, 0x02, HEADER);
                (bytes[6], bytes[8]) = (byte(response.len()), u8::from(challenge.is_some()));
                put_at(&mut bytes, 10, &exponential_len.to_le_bytes());
                put_at(&mut bytes, 12, &sequence.to_le_bytes());
                bytes.extend_from_slice(response);
                bytes.extend_from_slice(challenge.as_deref().unwrap_or(&vec![0; response.len()]));
                bytes
            }
            Message::Success1 { hash_len, response, .. } => {
                let mut bytes = begun(DHCHAP, 0x03, HEADER + usize::from(*hash_len));
                (bytes[6], bytes[8]) = (*hash_len, u8::from(response.is_some()));
                if let Some(response) = response {
                    put_at(&mut bytes, HEADER, response);
                }
                bytes
            }
            Message::Success2 { .. } => begun(DHCHAP, 0x04, HEADER),
            Message::Failure { is_hosts, explanation, .. } => {
                let mut bytes = begun(COMMON, if *is_hosts { 0xf0 } else { 0xf1 }, FAILURE);
                (bytes[6], bytes[7]) = (REASON, *explanation);
                bytes
            }
        }
    }
}

/// AUTH_Negotiate, with the lists of DH-HMAC-CHAP, wherever among the protocols it stands.
fn negotiate(bytes: &[u8], transaction: u16) -> Option<Message> {
    let (channel, count) = (bytes[6], usize::from(bytes[7]));
    let descriptions = bytes.get(FAILURE..FAILURE + count * DESCRIPTION)?;
    let (mut hashes, mut groups) = (Vec::new(), Vec::new());
    if let Some(found) = descriptions.chunks_exact(DESCRIPTION).find(|description| description[0] == PROTOCOL) {
        let (hash_count, group_count) = (usize::from(found[2]), usize::from(found[3]));
        if hash_count > LIST_MAX || group_count > LIST_MAX {
            return None;
        }
        hashes.extend_from_slice(&found[4..4 + hash_count]);
        groups.extend_from_slice(&found[4 + LIST_MAX..4 + LIST_MAX + group_count]);
    }
    Some(Message::Negotiate { transaction, channel, hashes, groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let list = || prop::collection::vec(any::<u8>(), 0..=LIST_MAX);
        let hash = || {
            prop_oneof![Just(32_usize), Just(48), Just(64)].prop_flat_map(|len| prop::collection::vec(any::<u8>(), len))
        };
        let own = any::<u16>();
        prop_oneof![
            (own, any::<u8>(), list(), list()).prop_map(|(transaction, channel, hashes, groups)| Message::Negotiate {
                transaction,
                channel,
                hashes,
                groups
            }),
            (own, any::<u8>(), any::<u8>(), any::<u32>(), hash()).prop_map(
                |(transaction, hash, group, sequence, challenge)| {
                    Message::Challenge { transaction, hash, group, sequence, challenge }
                }
            ),
            (own, hash(), any::<bool>(), any::<u32>(), any::<u16>()).prop_map(
                |(transaction, response, asks, sequence, len)| {
                    let challenge = asks.then(|| response.iter().rev().copied().collect());
                    Message::Reply { transaction, response, challenge, sequence, exponential_len: len }
                }
            ),
            (own, hash(), any::<bool>()).prop_map(|(transaction, hash, has)| {
                Message::Success1 { transaction, hash_len: hash.len() as u8, response: has.then_some(hash) }
            }),
            own.prop_map(|transaction| Message::Success2 { transaction }),
            (own, any::<bool>(), any::<u8>()).prop_map(|(transaction, is_hosts, explanation)| {
                Message::Failure { transaction, is_hosts, explanation }
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_message_comes_back_and_none_that_is_cut_does(message in messages(), cut in any::<prop::sample::Index>()) {
            let mut bytes = message.bytes();
            let short = &bytes[..cut.index(bytes.len())];
            // What may be left out at the end is a challenge that is none, and a response that is none.
            let is_other = Message::of(short).is_none_or(|other| other == message);
            prop_assert!(is_other);
            bytes.extend_from_slice(&[0; 9]);
            prop_assert_eq!(Message::of(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_not(kind in 0..3_u8, id in prop_oneof![0..6_u8, any::<u8>()], rest in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::of(&[&[kind, id][..], &rest].concat());
            let _ = Message::of(&rest);
        }
    }
}
