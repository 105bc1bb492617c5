//! Replies to options: how they are encoded.

use crate::STRING_MAX;
use crate::fields::Malformed;
use crate::numbers::{OPTION_REPLY_MAGIC, REP_ACK, REP_ERR_INVALID, REP_ERR_TOO_BIG};
use crate::text::cut;
use azekura_base::Outbox;
use std::borrow::Cow;

/// How an option fails without ending the session: reply type and a sentence for people.
pub(crate) type OptionError = (u32, Cow<'static, str>);

impl From<Malformed> for OptionError {
    fn from(malformed: Malformed) -> OptionError {
        match malformed {
            Malformed::Invalid => (REP_ERR_INVALID, "the option's data is malformed".into()),
            Malformed::TooBig => (REP_ERR_TOO_BIG, "a string is longer than 4096 bytes".into()),
        }
    }
}

/// One option reply with the concatenation of `parts` as its data.
pub(crate) fn put_reply(out: &mut Outbox, option: u32, kind: u32, parts: &[&[u8]]) {
    option_reply(option, kind, parts, |part| out.put(part));
}

/// The bytes of an option reply, one piece after the other.
pub(crate) fn option_reply(option: u32, kind: u32, parts: &[&[u8]], mut put: impl FnMut(&[u8])) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    put(&OPTION_REPLY_MAGIC.to_be_bytes());
    put(&option.to_be_bytes());
    put(&kind.to_be_bytes());
    put(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| put(part));
}

/// The final reply to an option.
pub(crate) fn put_end(out: &mut Outbox, option: u32, answer: Result<(), OptionError>) {
    match answer {
        Ok(()) => put_reply(out, option, REP_ACK, &[]),
        Err((kind, message)) => put_reply(out, option, kind, &[cut(&message, STRING_MAX).as_bytes()]),
    }
}
