//! The one request that is made, `Get` of a symmetric key (KMIP 1.2, section 4.11), and what is answered.

use super::ttlv::{Item, Malformed, Tag, kind, write, write_number, write_structure};
use crate::keks::KEY_BYTES;
use crate::told::printable;
use zeroize::Zeroizing;

/// Tags (section 9.1.3.1).
mod tag {
    use super::Tag;

    pub(super) const BATCH_COUNT: Tag = Tag(0x42_000d);
    pub(super) const BATCH_ITEM: Tag = Tag(0x42_000f);
    pub(super) const ALGORITHM: Tag = Tag(0x42_0028);
    pub(super) const KEY_BLOCK: Tag = Tag(0x42_0040);
    pub(super) const KEY_FORMAT: Tag = Tag(0x42_0042);
    pub(super) const KEY_MATERIAL: Tag = Tag(0x42_0043);
    pub(super) const KEY_VALUE: Tag = Tag(0x42_0045);
    pub(super) const MAXIMUM_RESPONSE_SIZE: Tag = Tag(0x42_0050);
    pub(super) const OBJECT_TYPE: Tag = Tag(0x42_0057);
    pub(super) const OPERATION: Tag = Tag(0x42_005c);
    pub(super) const PROTOCOL_VERSION: Tag = Tag(0x42_0069);
    pub(super) const VERSION_MAJOR: Tag = Tag(0x42_006a);
    pub(super) const VERSION_MINOR: Tag = Tag(0x42_006b);
    pub(super) const REQUEST_HEADER: Tag = Tag(0x42_0077);
    pub(super) const REQUEST: Tag = Tag(0x42_0078);
    pub(super) const REQUEST_PAYLOAD: Tag = Tag(0x42_0079);
    pub(super) const RESPONSE: Tag = Tag(0x42_007b);
    pub(super) const RESPONSE_PAYLOAD: Tag = Tag(0x42_007c);
    pub(super) const RESULT_MESSAGE: Tag = Tag(0x42_007d);
    pub(super) const RESULT_REASON: Tag = Tag(0x42_007e);
    pub(super) const RESULT_STATUS: Tag = Tag(0x42_007f);
    pub(super) const SYMMETRIC_KEY: Tag = Tag(0x42_008f);
    pub(super) const UNIQUE_IDENTIFIER: Tag = Tag(0x42_0094);
}

/// `Get` (section 9.1.3.2.27).
const GET: u32 = 0x0a;
/// A key as it is (section 9.1.3.2.3).
const RAW: u32 = 1;
/// A symmetric key (section 9.1.3.2.12).
const IS_SYMMETRIC: u32 = 2;
/// Section 9.1.3.2.13.
const AES: u32 = 3;
/// Section 9.1.3.2.28.
const SUCCESS: u32 = 0;
/// The protocol's version that is spoken: what servers of the last ten years know.
const VERSION: (u32, u32) = (1, 2);

/// Why an answer has no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum No {
    /// It is no answer.
    Foreign(Malformed),
    /// The server says no.
    Refused(String),
    /// It is no key of the kind that wraps.
    Kind(&'static str),
}

impl From<Malformed> for No {
    fn from(reason: Malformed) -> No {
        No::Foreign(reason)
    }
}

/// The request for the key with this unique identifier (sections 7.1, 7.2 and 4.11).
pub(super) fn get(identifier: &str) -> Vec<u8> {
    let mut request = Vec::new();
    write_structure(&mut request, tag::REQUEST, |into| {
        write_structure(into, tag::REQUEST_HEADER, |into| {
            write_structure(into, tag::PROTOCOL_VERSION, |into| {
                write_number(into, tag::VERSION_MAJOR, kind::INTEGER, VERSION.0);
                write_number(into, tag::VERSION_MINOR, kind::INTEGER, VERSION.1);
            });
            write_number(into, tag::MAXIMUM_RESPONSE_SIZE, kind::INTEGER, super::ANSWER_BYTES_MAX);
            write_number(into, tag::BATCH_COUNT, kind::INTEGER, 1);
        });
        write_structure(into, tag::BATCH_ITEM, |into| {
            write_number(into, tag::OPERATION, kind::ENUMERATION, GET);
            write_structure(into, tag::REQUEST_PAYLOAD, |into| {
                write(into, tag::UNIQUE_IDENTIFIER, kind::TEXT, identifier.as_bytes());
                write_number(into, tag::KEY_FORMAT, kind::ENUMERATION, RAW);
            });
        });
    });
    request
}

/// How many bytes an answer has behind its first eight.
///
/// # Errors
/// When it is none.
pub(super) fn length(head: &[u8]) -> Result<u32, Malformed> {
    let [t1, t2, t3, kind::STRUCTURE, length @ ..] = head else { return Err("it is no answer of KMIP") };
    let length: [u8; 4] = length.try_into().map_err(|_| "it is cut off")?;
    match Tag(u32::from_be_bytes([0, *t1, *t2, *t3])) {
        tag::RESPONSE => Ok(u32::from_be_bytes(length)),
        _ => Err("it is no answer of KMIP"),
    }
}

/// The key in an answer, without the answer's first eight bytes (sections 7.1, 4.11, 2.2.2 and 2.1.3).
///
/// # Errors
/// When there is none, or one of another kind.
pub(super) fn key_in(answer: &[u8], identifier: &str) -> Result<Zeroizing<Vec<u8>>, No> {
    let answer = Item { tag: tag::RESPONSE, kind: kind::STRUCTURE, bytes: answer };
    let item = answer.part(tag::BATCH_ITEM)?;
    if item.part(tag::RESULT_STATUS)?.number()? != SUCCESS {
        let reason = item.find(tag::RESULT_REASON)?.and_then(|reason| reason.number().ok()).unwrap_or(0);
        let said = item.find(tag::RESULT_MESSAGE)?.map(|said| String::from_utf8_lossy(said.bytes).into_owned());
        return Err(No::Refused(format!("{} ({})", printable(&said.unwrap_or_default()), reason_of(reason))));
    }
    let payload = item.part(tag::RESPONSE_PAYLOAD)?;
    if payload.part(tag::UNIQUE_IDENTIFIER)?.bytes != identifier.as_bytes() {
        return Err(No::Foreign("it is about another key"));
    }
    if payload.part(tag::OBJECT_TYPE)?.number()? != IS_SYMMETRIC {
        return Err(No::Kind("is no symmetric key"));
    }
    let block = payload.part(tag::SYMMETRIC_KEY)?.part(tag::KEY_BLOCK)?;
    if block.part(tag::KEY_FORMAT)?.number()? != RAW {
        return Err(No::Kind("is not given as it is"));
    }
    if block.part(tag::ALGORITHM)?.number()? != AES {
        return Err(No::Kind("is not for AES"));
    }
    // A structure: the server has not wrapped it with another key.
    let material = block.part(tag::KEY_VALUE)?.part(tag::KEY_MATERIAL)?;
    if material.kind != kind::BYTES || material.bytes.len() != KEY_BYTES {
        return Err(No::Kind("has another length"));
    }
    Ok(Zeroizing::new(material.bytes.to_vec()))
}

/// What a reason's number says (section 9.1.3.2.29).
fn reason_of(reason: u32) -> String {
    let text = match reason {
        0x01 => "there is no such key, or this client may not know of it",
        0x02 => "the answer is too long",
        0x03 => "this client has not proved who it is",
        0x05 => "it can't do that",
        0x0c => "this client may not have it",
        0x0d => "the key is archived",
        _ => return format!("reason {reason:#x}"),
    };
    text.to_owned()
}
