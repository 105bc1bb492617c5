//! Tokens: how a program or a person proves a grant (docs/formats/grants.md).

use crate::checksum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a token begins. Scanners of published files find lost ones by it.
const PREFIX: &str = "azka_";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Digits of 64, 256 and 32 bits.
pub(crate) const ID_DIGITS: usize = 11;
pub(crate) const SECRET_DIGITS: usize = 43;
pub(crate) const CHECKSUM_DIGITS: usize = 6;
const LENGTH: usize = PREFIX.len() + ID_DIGITS + SECRET_DIGITS + CHECKSUM_DIGITS;

/// A number, most significant byte first, as so many digits in base 62.
pub(crate) fn write_digits<const N: usize>(mut number: [u8; N], digits: usize) -> String {
    let mut text = vec![b'0'; digits];
    for place in text.iter_mut().rev() {
        let mut rest = 0;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            (*byte, rest) = ((value / 62) as u8, value % 62);
        }
        *place = DIGITS[rest as usize];
    }
    text.into_iter().map(char::from).collect()
}

/// Reads such a number; `None`: a character is no digit, or the number is larger than fits.
pub(crate) fn read_digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut number = [0; N];
    for digit in text.bytes() {
        let mut carry = DIGITS.iter().position(|known| *known == digit)? as u32;
        for byte in number.iter_mut().rev() {
            let value = u32::from(*byte) * 62 + carry;
            (*byte, carry) = (value as u8, value >> 8);
        }
        if carry != 0 {
            return None;
        }
    }
    Some(number)
}

/// The number of a grant: 64 random bits. It is no secret. Its text is 11 digits in base 62.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub u64);

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write_digits(self.0.to_be_bytes(), ID_DIGITS))
    }
}

impl FromStr for GrantId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<GrantId, TokenError> {
        let number = (text.len() == ID_DIGITS).then(|| read_digits(text)).flatten();
        number.map(|bytes| GrantId(u64::from_be_bytes(bytes))).ok_or(TokenError::Id)
    }
}

/// 256 random bits that only their owner has. Nothing prints them by mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Its text, 43 digits in base 62.
    #[must_use]
    pub fn reveal(&self) -> String {
        write_digits(self.0, SECRET_DIGITS)
    }

    /// Reads the text back; `None`: it is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Secret> {
        (text.len() == SECRET_DIGITS).then(|| read_digits(text)).flatten().map(Secret)
    }
}

/// SHA-256 of a [`Secret`]: what is kept of it. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHash(pub [u8; 32]);

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretHash({self})")
    }
}

impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex32::write(&self.0, f)
    }
}

impl TryFrom<String> for SecretHash {
    type Error = String;

    fn try_from(text: String) -> Result<SecretHash, String> {
        crate::hex32::read(&text).map(SecretHash).ok_or_else(|| "a hash is 64 hexadecimal digits".to_owned())
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> String {
        hash.to_string()
    }
}

/// A grant's number and secret, as they are given to somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which grant it is.
    pub id: GrantId,
    /// What proves that.
    pub secret: Secret,
}

impl Token {
    /// The text that its owner keeps.
    #[must_use]
    pub fn reveal(&self) -> String {
        let text = format!("{PREFIX}{}{}", self.id, self.secret.reveal());
        let checksum = checksum(text.as_bytes()).0;
        text + &write_digits(checksum.to_be_bytes(), CHECKSUM_DIGITS)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When the text is none; the error does not repeat it.
    pub fn read(text: &str) -> Result<Token, TokenError> {
        let rest = text.strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        if text.len() != LENGTH {
            return Err(TokenError::Length(text.chars().count()));
        }
        if !rest.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
            return Err(TokenError::Digit);
        }
        let (checked, digits) = text.split_at(LENGTH - CHECKSUM_DIGITS);
        if read_digits(digits) != Some(checksum(checked.as_bytes()).0.to_be_bytes()) {
            return Err(TokenError::Checksum);
        }
        let (id, secret) = checked[PREFIX.len()..].split_at(ID_DIGITS);
        let secret = Secret::read(secret).ok_or(TokenError::Checksum)?;
        Ok(Token { id: id.parse().map_err(|_| TokenError::Checksum)?, secret })
    }
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It begins with something else.
    Prefix,
    /// It has so many characters.
    Length(usize),
    /// A character is neither a letter nor a digit.
    Digit,
    /// Its checksum, or a number in it, does not fit.
    Checksum,
    /// It is no grant's number.
    Id,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::Prefix => write!(f, "this is no token: one begins with {PREFIX}"),
            TokenError::Length(length) => {
                write!(f, "this is no token: one has {LENGTH} characters, and this has {length}; was it cut?")
            }
            TokenError::Digit => f.write_str("this is no token: behind azka_ there are letters and digits only"),
            TokenError::Checksum => {
                f.write_str("this token has a slip of the pen: its checksum is wrong; copy it once more")
            }
            TokenError::Id => write!(f, "a grant's number is {ID_DIGITS} letters and digits"),
        }
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// docs/formats/grants.md has these, too: change both together.
    #[test]
    fn a_token_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/token.txt").trim();
        let token = Token { id: GrantId(0x0123_4567_89ab_cdef), secret: Secret(std::array::from_fn(|at| at as u8)) };
        assert_eq!(token.reveal(), golden);
        assert_eq!(Token::read(golden), Ok(token));
        let document = include_str!("../../../docs/formats/grants.md");
        assert!(document.contains(golden), "docs/formats/grants.md shows another token");
    }

    #[test]
    fn what_is_no_token_is_told_without_repeating_it() {
        let good = Token { id: GrantId(7), secret: Secret([9; 32]) }.reveal();
        let cut = &good[..20];
        for (text, told) in [
            ("", "azka_"),
            ("ghp_0123456789", "azka_"),
            (cut, "has 20"),
            (&good.replace("azka_", "azkj_"), "azka_"),
            (&format!("{}ä", &good[..good.len() - 2]), "letters and digits"),
            (&format!("{}-", &good[..good.len() - 1]), "letters and digits"),
        ] {
            let error = Token::read(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
            assert!(text.len() < 6 || !error.contains(&text[5..]), "{error}");
        }
        // 2^256 and 2^64 are one more than fits, whatever the checksum says.
        let large = format!("{PREFIX}{}{}", "0".repeat(ID_DIGITS), "z".repeat(SECRET_DIGITS));
        let sum = write_digits(checksum(large.as_bytes()).0.to_be_bytes(), CHECKSUM_DIGITS);
        assert_eq!(Token::read(&format!("{large}{sum}")), Err(TokenError::Checksum));
        assert_eq!("LygHa16AHYF".parse(), Ok(GrantId(u64::MAX)));
        assert_eq!("LygHa16AHYG".parse::<GrantId>(), Err(TokenError::Id));
        assert!(!format!("{:?}", Token { id: GrantId(7), secret: Secret([9; 32]) }).contains("9"), "logs show none");
    }

    proptest! {
        #[test]
        fn tokens_read_back(id: u64, secret: [u8; 32]) {
            let token = Token { id: GrantId(id), secret: Secret(secret) };
            let text = token.reveal();
            prop_assert_eq!(text.len(), LENGTH);
            prop_assert_eq!(Token::read(&text), Ok(token));
            prop_assert_eq!(GrantId(id).to_string().parse(), Ok(GrantId(id)));
        }

        #[test]
        fn a_wrong_character_is_noticed(id: u64, secret: [u8; 32], at in PREFIX.len()..LENGTH, digit in 0..62_usize) {
            let text = Token { id: GrantId(id), secret: Secret(secret) }.reveal();
            let mut wrong = text.clone().into_bytes();
            wrong[at] = DIGITS[digit];
            let wrong = String::from_utf8(wrong).unwrap();
            prop_assert_eq!(Token::read(&wrong).is_ok(), wrong == text);
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,80}", tail in "[0-9A-Za-zä]{0,64}") {
            let _ = Token::read(&text);
            let _ = Token::read(&format!("{PREFIX}{tail}"));
        }
    }
}
