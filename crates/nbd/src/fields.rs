//! Reading the fields of option data, which may lie about its own lengths.

use crate::STRING_MAX;

/// What has not been read yet.
pub(crate) struct Fields<'a>(pub &'a [u8]);

/// Why option data can't be used; becomes the option's error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It ends early, goes on too long, or isn't text where it should be.
    Invalid,
    /// A string is longer than [`STRING_MAX`].
    TooBig,
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::Invalid)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A 16-bit number.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A string behind its 32-bit length.
    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u32()? as usize;
        string(self.bytes(len)?)
    }

    /// Fails unless everything has been read.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Invalid) }
    }
}

/// `bytes` as a string by the rules of *Conventions*: UTF-8 without NUL, at most [`STRING_MAX`] bytes.
pub(crate) fn string(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > STRING_MAX {
        return Err(Malformed::TooBig);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Invalid)?;
    if text.contains('\0') { Err(Malformed::Invalid) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_never_reach_behind_the_end() {
        let mut fields = Fields(&[0, 0, 0, 3, b'a', b'b', b'c', 1, 2, 9]);
        assert_eq!(fields.string(), Ok("abc"));
        assert_eq!(fields.u16(), Ok(0x0102));
        assert_eq!(fields.u16(), Err(Malformed::Invalid));
        assert_eq!(fields.end(), Err(Malformed::Invalid));
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, b'a']).string(), Err(Malformed::Invalid));
        assert_eq!(Fields(&[0, 0, 0]).u32(), Err(Malformed::Invalid));
        assert_eq!(Fields(&[]).end(), Ok(()));
    }

    #[test]
    fn strings_are_short_text_without_nul() {
        assert_eq!(string("校倉".as_bytes()), Ok("校倉"));
        assert_eq!(string(&[0xff]), Err(Malformed::Invalid));
        assert_eq!(string(b"a\0b"), Err(Malformed::Invalid));
        assert_eq!(string(&[b'a'; STRING_MAX]).map(str::len), Ok(STRING_MAX));
        assert_eq!(string(&[b'a'; STRING_MAX + 1]), Err(Malformed::TooBig));
    }
}
