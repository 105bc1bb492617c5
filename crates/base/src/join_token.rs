//! Join tokens: how a machine proves that it may become a node, and knows the cluster before it says so
//! (docs/formats/grants.md).

use std::fmt;

use crate::token::{CHECKSUM_DIGITS, ID_DIGITS, SECRET_DIGITS, read_digits, write_digits};
use crate::{PeerKey, Secret, Token, checksum};

/// How a join token begins.
const PREFIX: &str = "azkj_";
/// Digits of the authority's fingerprint: 256 bits.
const AUTHORITY_DIGITS: usize = 43;
const LENGTH: usize = PREFIX.len() + ID_DIGITS + SECRET_DIGITS + AUTHORITY_DIGITS + CHECKSUM_DIGITS;

/// A grant's token, with the certificate authority of the cluster that has made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The grant's token.
    pub token: Token,
    /// The fingerprint of the authority: who has not a certificate by it is not told the token.
    pub authority: PeerKey,
}

impl JoinToken {
    /// The text that is given to a machine.
    #[must_use]
    pub fn reveal(&self) -> String {
        let Token { id, secret } = &self.token;
        let text = format!("{PREFIX}{id}{}{}", secret.reveal(), write_digits(self.authority.0, AUTHORITY_DIGITS));
        let checksum = checksum(text.as_bytes()).0;
        text + &write_digits(checksum.to_be_bytes(), CHECKSUM_DIGITS)
    }

    /// Reads a join token.
    ///
    /// # Errors
    /// When the text is none; the error does not repeat it.
    pub fn read(text: &str) -> Result<JoinToken, JoinTokenError> {
        if !text.starts_with(PREFIX) {
            return Err(JoinTokenError::Prefix);
        }
        if text.len() != LENGTH {
            return Err(JoinTokenError::Length(text.chars().count()));
        }
        if !text[PREFIX.len()..].bytes().all(|digit| digit.is_ascii_alphanumeric()) {
            return Err(JoinTokenError::Checksum);
        }
        let (checked, digits) = text.split_at(LENGTH - CHECKSUM_DIGITS);
        if read_digits(digits) != Some(checksum(checked.as_bytes()).0.to_be_bytes()) {
            return Err(JoinTokenError::Checksum);
        }
        let (id, rest) = checked[PREFIX.len()..].split_at(ID_DIGITS);
        let (secret, authority) = rest.split_at(SECRET_DIGITS);
        let secret = Secret::read(secret).ok_or(JoinTokenError::Checksum)?;
        let authority = read_digits(authority).map(PeerKey).ok_or(JoinTokenError::Checksum)?;
        let id = id.parse().map_err(|_| JoinTokenError::Checksum)?;
        Ok(JoinToken { token: Token { id, secret }, authority })
    }
}

/// Why a text is no join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinTokenError {
    /// It begins with something else.
    Prefix,
    /// It has so many characters.
    Length(usize),
    /// A character is no digit, or its checksum or a number in it does not fit.
    Checksum,
}

impl fmt::Display for JoinTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinTokenError::Prefix => write!(f, "this is no join token: one begins with {PREFIX}"),
            JoinTokenError::Length(length) => {
                write!(f, "this is no join token: one has {LENGTH} characters, and this has {length}; was it cut?")
            }
            JoinTokenError::Checksum => {
                f.write_str("this join token has a slip of the pen: its checksum is wrong; copy it once more")
            }
        }
    }
}

impl std::error::Error for JoinTokenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GrantId;
    use proptest::prelude::*;

    /// docs/formats/grants.md has this, too: change both together.
    #[test]
    fn a_join_token_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/join-token.txt").trim();
        let secret = Secret(std::array::from_fn(|at| at as u8));
        let token = Token { id: GrantId(0x0123_4567_89ab_cdef), secret };
        let join = JoinToken { token, authority: PeerKey(std::array::from_fn(|at| 0xff - at as u8)) };
        assert_eq!(join.reveal(), golden);
        assert_eq!(JoinToken::read(golden), Ok(join));
        let document = include_str!("../../../docs/formats/grants.md");
        assert!(document.contains(golden), "docs/formats/grants.md shows another join token");
    }

    #[test]
    fn what_is_no_join_token_is_told_without_repeating_it() {
        let token = Token { id: GrantId(7), secret: Secret([9; 32]) };
        let good = JoinToken { token: token.clone(), authority: PeerKey([3; 32]) }.reveal();
        for (text, told) in [
            ("", "azkj_"),
            (token.reveal().as_str(), "azkj_"),
            (&good[..40], "has 40"),
            (&format!("{}-", &good[..good.len() - 1]), "checksum"),
            (&format!("{}ä", &good[..good.len() - 2]), "checksum"),
        ] {
            let error = JoinToken::read(text).unwrap_err().to_string();
            assert!(error.contains(told) && (text.is_empty() || !error.contains(&text[5..])), "{text}: {error}");
        }
        assert!(Token::read(&good).is_err(), "and none of another kind");
    }

    proptest! {
        #[test]
        fn join_tokens_read_back(id: u64, secret: [u8; 32], authority: [u8; 32], at in 5..LENGTH, other in "[0-9A-Za-z]") {
            let token = Token { id: GrantId(id), secret: Secret(secret) };
            let join = JoinToken { token, authority: PeerKey(authority) };
            let mut text = join.reveal();
            prop_assert_eq!(JoinToken::read(&text), Ok(join));
            let same = text[at..=at] == other;
            text.replace_range(at..=at, &other);
            prop_assert_eq!(JoinToken::read(&text).is_ok(), same, "a wrong character is noticed");
        }
    }
}
