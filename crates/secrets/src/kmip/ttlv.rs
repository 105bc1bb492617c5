//! Tag, type, length, value: how KMIP writes everything (KMIP 1.2, section 9.1).
//!
//! Reading looks for what is wanted at one depth at a time, and takes no memory: what comes can be as deep or as many
//! as it likes.

/// Bytes before a value: three of tag, one of type, four of length, big-endian (section 9.1.1).
pub(super) const HEAD_BYTES: usize = 8;

/// What a value is for (section 9.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u32);

/// Types of values (section 9.1.1.2), of which these are needed.
pub(super) mod kind {
    pub(in super::super) const STRUCTURE: u8 = 0x01;
    pub(in super::super) const INTEGER: u8 = 0x02;
    pub(in super::super) const ENUMERATION: u8 = 0x05;
    pub(in super::super) const TEXT: u8 = 0x07;
    pub(in super::super) const BYTES: u8 = 0x08;
}

/// One value as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) tag: Tag,
    pub(super) kind: u8,
    pub(super) bytes: &'a [u8],
}

/// What is wrong with an answer.
pub(super) type Malformed = &'static str;

impl<'a> Item<'a> {
    /// The one at the beginning, and what is behind it.
    ///
    /// # Errors
    /// When it is cut off.
    pub(super) fn read(bytes: &'a [u8]) -> Result<(Item<'a>, &'a [u8]), Malformed> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("it is cut off")?;
        let [t1, t2, t3, kind, l1, l2, l3, l4] = *head;
        let tag = Tag(u32::from_be_bytes([0, t1, t2, t3]));
        let length = u32::from_be_bytes([l1, l2, l3, l4]) as usize;
        let (bytes, rest) = rest.split_at_checked(length).ok_or("it is cut off")?;
        // Values are filled up to 8 bytes (section 9.1.1.4).
        let padding = length.next_multiple_of(8) - length;
        let (_, rest) = rest.split_at_checked(padding).ok_or("it is cut off")?;
        Ok((Item { tag, kind, bytes }, rest))
    }

    /// The first value with this tag in a structure; `None`: there is none.
    ///
    /// # Errors
    /// When this is no structure, or a broken one.
    pub(super) fn find(&self, tag: Tag) -> Result<Option<Item<'a>>, Malformed> {
        if self.kind != kind::STRUCTURE {
            return Err("something that is no structure has parts");
        }
        let mut rest = self.bytes;
        while !rest.is_empty() {
            let (item, behind) = Item::read(rest)?;
            if item.tag == tag {
                return Ok(Some(item));
            }
            rest = behind;
        }
        Ok(None)
    }

    /// The same, where it has to be there.
    ///
    /// # Errors
    /// When it is not, too.
    pub(super) fn part(&self, tag: Tag) -> Result<Item<'a>, Malformed> {
        self.find(tag)?.ok_or("something is missing in it")
    }

    /// The number of an integer or an enumeration.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn number(&self) -> Result<u32, Malformed> {
        let bytes: [u8; 4] = self.bytes.try_into().map_err(|_| "a number has not four bytes")?;
        match self.kind {
            kind::INTEGER | kind::ENUMERATION => Ok(u32::from_be_bytes(bytes)),
            _ => Err("something is no number"),
        }
    }
}

/// Writes a value behind others.
pub(super) fn write(into: &mut Vec<u8>, tag: Tag, kind: u8, bytes: &[u8]) {
    into.extend_from_slice(&tag.0.to_be_bytes()[1..]);
    into.push(kind);
    into.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    into.extend_from_slice(bytes);
    into.resize(into.len().next_multiple_of(8), 0);
}

/// Writes a structure behind others.
pub(super) fn write_structure(into: &mut Vec<u8>, tag: Tag, parts: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    parts(&mut inner);
    write(into, tag, kind::STRUCTURE, &inner);
}

/// Writes an integer or an enumeration behind others.
pub(super) fn write_number(into: &mut Vec<u8>, tag: Tag, kind: u8, number: u32) {
    write(into, tag, kind, &number.to_be_bytes());
}
