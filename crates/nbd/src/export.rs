//! Exports as the protocol tells of them.

use crate::numbers::{
    FLAG_CAN_MULTI_CONN, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_SEND_CACHE, FLAG_SEND_DF, FLAG_SEND_FAST_ZERO,
    FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM, FLAG_SEND_WRITE_ZEROES,
};
use crate::numbers::{OPT_LIST, REP_SERVER};
use crate::option_reply::option_reply;
use crate::text::cut;
use crate::{LIST_REPLY_MAX, REQUEST_MAX, STRING_MAX};
use azekura_frontend::{Export, Listing, Verb};
use bytes::BytesMut;

/// The name of this protocol's listings.
pub(crate) const PROTOCOL: &str = "nbd";

/// The answer to `NBD_OPT_LIST` with these exports' names and descriptions, in this order. Names that are longer than
/// [`STRING_MAX`] bytes are left out. When all of it is longer than [`LIST_REPLY_MAX`], clients are told to ask for
/// exports by name.
pub(crate) fn listing(exports: &mut dyn Iterator<Item = (&str, &str)>) -> Listing {
    let mut bytes = BytesMut::new();
    for (name, description) in exports.filter(|(name, _)| name.len() <= STRING_MAX) {
        let length = (name.len() as u32).to_be_bytes();
        let parts = [&length[..], name.as_bytes(), cut(description, STRING_MAX).as_bytes()];
        option_reply(OPT_LIST, REP_SERVER, &parts, |part| bytes.extend_from_slice(part));
        if bytes.len() > LIST_REPLY_MAX {
            return None;
        }
    }
    Some(bytes.freeze())
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

/// The export's block sizes, each moved to the nearest value that the protocol and this crate's limits allow.
#[must_use]
pub fn block_sizes(export: &Export) -> BlockSizes {
    let min = export.block_size_min.clamp(1, 1 << 16).next_power_of_two();
    let preferred = export.block_size_preferred.clamp(min.max(512), REQUEST_MAX).next_power_of_two();
    let max = export.block_size_max.clamp(preferred, REQUEST_MAX);
    BlockSizes { min, preferred, max: max - max % min }
}

/// The description, cut to the longest string that may be sent.
pub(crate) fn description(export: &Export) -> &str {
    cut(&export.description, STRING_MAX)
}

/// *Transmission flags*, in a session that has negotiated structured replies or not.
pub(crate) fn flags(export: &Export, structured: bool) -> u16 {
    let offers = [
        (true, FLAG_HAS_FLAGS | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN),
        (structured, FLAG_SEND_DF),
        (export.is_read_only(), FLAG_READ_ONLY),
        (export.verbs.has(Verb::Flush), FLAG_SEND_FLUSH),
        (export.verbs.has(Verb::Cache), FLAG_SEND_CACHE),
        (export.verbs.has(Verb::Trim), FLAG_SEND_TRIM),
        (export.verbs.has(Verb::Zero), FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO),
    ];
    offers.iter().filter(|(offered, _)| *offered).fold(0, |flags, (_, flag)| flags | flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::VolumeId;
    use azekura_frontend::Verbs;

    #[test]
    fn flags_follow_from_what_may_be_asked() {
        let of = |verbs| flags(&Export { verbs, ..Export::new("v", VolumeId(1), 1 << 20) }, true);
        assert_eq!(of(Verbs::ALL) & FLAG_READ_ONLY, 0);
        assert_eq!(of(Verbs::ALL) ^ of(Verbs::ALL.without(Verb::Trim)), FLAG_SEND_TRIM);
        assert_eq!(of(Verbs::ALL) ^ of(Verbs::ALL.without(Verb::Zero)), FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO);
        assert_eq!(of(Verbs::ALL) ^ of(Verbs::ALL.without(Verb::Cache)), FLAG_SEND_CACHE);
        let frozen = FLAG_HAS_FLAGS | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN | FLAG_SEND_DF | FLAG_SEND_FLUSH;
        assert_eq!(of(Verbs::READ_ONLY), frozen | FLAG_READ_ONLY | FLAG_SEND_CACHE);
    }

    #[test]
    fn block_sizes_obey_the_rules() {
        let sizes = |min, preferred, max| {
            let export = Export {
                block_size_min: min,
                block_size_preferred: preferred,
                block_size_max: max,
                ..Export::new("v", VolumeId(1), 1 << 20)
            };
            let sizes = block_sizes(&export);
            (sizes.min, sizes.preferred, sizes.max)
        };
        assert_eq!(sizes(1, 4096, 32 << 20), (1, 4096, 32 << 20));
        assert_eq!(sizes(0, 0, 0), (1, 512, 512));
        assert_eq!(sizes(3, 5000, 100_001), (4, 8192, 100_000));
        assert_eq!(sizes(u32::MAX, u32::MAX, u32::MAX), (1 << 16, 32 << 20, 32 << 20));
    }
}
