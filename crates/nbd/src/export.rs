//! What can be opened: the volumes that a server offers to its clients.

use crate::handshake::option_reply;
use crate::numbers::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_SEND_CACHE, FLAG_SEND_DF, FLAG_SEND_FAST_ZERO,
    FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM, FLAG_SEND_WRITE_ZEROES,
};
use crate::numbers::{OPT_LIST, REP_SERVER};
use crate::{LIST_REPLY_MAX, REQUEST_MAX, STRING_MAX};
use bytes::{Bytes, BytesMut};

/// The exports of a server, as they are now.
pub trait Exports {
    /// All exports that a client may see. It may be asked for again and again, so whoever has many keeps the listing.
    fn list(&self) -> Listing;

    /// The export called `name`, which was sent by a client. The empty name is the default export: the only one, where
    /// there is just one, and unknown otherwise.
    fn find(&self, name: &str) -> Option<Export>;

    /// No export is called `name`: true if one may be, as far as is known yet. Then the session stands still, gives
    /// [`crate::Event::Missing`] at each [`crate::Session::poll`], and asks again at the next.
    fn may_come(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// A client wants to send requests to the export called `name`.
    fn open(&self, name: &str) -> Opening {
        self.find(name).map_or(Opening::Unknown, Opening::Ready)
    }
}

/// The answer to `NBD_OPT_LIST`, made once and sent by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing(pub(crate) Option<Bytes>);

impl Listing {
    /// The listing of these exports' names and descriptions, in this order. Names that are longer than [`STRING_MAX`]
    /// bytes are left out. When all of it is longer than [`LIST_REPLY_MAX`], clients are told to ask for exports by
    /// name.
    pub fn of<'a>(exports: impl IntoIterator<Item = (&'a str, &'a str)>) -> Listing {
        let mut bytes = BytesMut::new();
        for (name, description) in exports.into_iter().filter(|(name, _)| name.len() <= STRING_MAX) {
            let length = (name.len() as u32).to_be_bytes();
            let parts = [&length[..], name.as_bytes(), cut(description, STRING_MAX).as_bytes()];
            option_reply(OPT_LIST, REP_SERVER, &parts, |part| bytes.extend_from_slice(part));
            if bytes.len() > LIST_REPLY_MAX {
                return Listing(None);
            }
        }
        Listing(Some(bytes.freeze()))
    }
}

/// Whether an export can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Yes.
    Ready(Export),
    /// There is none of this name.
    Unknown,
    /// It is not known yet: the session stands still, gives [`crate::Event::Wanted`] with the export's own name at each
    /// [`crate::Session::poll`], and asks again at the next.
    Later(String),
    /// It is not, and this is what to tell people.
    Refused(String),
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, at most [`STRING_MAX`] bytes.
    pub name: String,
    /// What to tell people about it; empty for nothing. Cut after [`STRING_MAX`] bytes.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Refuse everything that writes.
    pub read_only: bool,
    /// Alignment that requests must have, in bytes. See [`Export::block_sizes`] for the values that count.
    pub block_size_min: u32,
    /// Alignment that requests should have, in bytes.
    pub block_size_preferred: u32,
    /// Longest READ or WRITE, in bytes.
    pub block_size_max: u32,
}

/// Block sizes in bytes, within the rules of *Block size constraints*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// A power of two from 1 to 64 KiB.
    pub min: u32,
    /// A power of two, at least `min` and 512.
    pub preferred: u32,
    /// A multiple of `min`, at least `preferred` and at most [`REQUEST_MAX`].
    pub max: u32,
}

impl Export {
    /// A writable export without description, that takes requests of any alignment up to [`REQUEST_MAX`] and prefers
    /// whole blocks of 4 KiB. `size` is in bytes.
    #[must_use]
    pub fn new(name: &str, size: u64) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size,
            read_only: false,
            block_size_min: 1,
            block_size_preferred: azekura_base::BLOCK_SIZE as u32,
            block_size_max: REQUEST_MAX,
        }
    }

    /// The export's block sizes, each moved to the nearest value that the protocol and this crate's limits allow.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        let min = self.block_size_min.clamp(1, 1 << 16).next_power_of_two();
        let preferred = self.block_size_preferred.clamp(min.max(512), REQUEST_MAX).next_power_of_two();
        let max = self.block_size_max.clamp(preferred, REQUEST_MAX);
        BlockSizes { min, preferred, max: max - max % min }
    }

    /// The description, cut to the longest string that may be sent.
    pub(crate) fn description(&self) -> &str {
        cut(&self.description, STRING_MAX)
    }

    /// *Transmission flags*, in a session that has negotiated structured replies or not.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let mut flags = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN | FLAG_SEND_CACHE;
        if structured {
            flags |= FLAG_SEND_DF;
        }
        flags
            | if self.read_only {
                FLAG_READ_ONLY
            } else {
                FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO
            }
    }
}

/// The longest beginning of `text` with at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_obey_the_rules() {
        let sizes = |min, preferred, max| {
            let export = Export {
                block_size_min: min,
                block_size_preferred: preferred,
                block_size_max: max,
                ..Export::new("v", 1 << 20)
            };
            let sizes = export.block_sizes();
            (sizes.min, sizes.preferred, sizes.max)
        };
        assert_eq!(sizes(1, 4096, 32 << 20), (1, 4096, 32 << 20));
        assert_eq!(sizes(0, 0, 0), (1, 512, 512));
        assert_eq!(sizes(3, 5000, 100_001), (4, 8192, 100_000));
        assert_eq!(sizes(u32::MAX, u32::MAX, u32::MAX), (1 << 16, 32 << 20, 32 << 20));
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("azekura", 3), "aze");
        assert_eq!(cut("校倉造", 5), "校");
        assert_eq!(cut("校", 5), "校");
    }
}
