//! What a client can do that ends its connection.

use std::fmt;

/// A breach of the protocol that can't be answered with an error reply: the connection must be closed, after what is
/// in the outbox has been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The client set handshake flags that were not offered (*Client flags*).
    ClientFlags(u32),
    /// An option did not begin with its magic number.
    OptionMagic(u64),
    /// An option came with more data than is skipped.
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// Bytes of data that were announced.
        length: u32,
    },
    /// Without fixed newstyle the only option is `NBD_OPT_EXPORT_NAME` (*Option types*).
    OptionWithoutFixedNewstyle(u32),
    /// `NBD_OPT_EXPORT_NAME` named no export that can be opened, and has no other way to fail.
    NoSuchExport(String),
    /// `NBD_OPT_EXPORT_NAME` named an export that can't be opened now, and has no other way to fail.
    Refused {
        /// The export.
        name: String,
        /// Why.
        why: String,
    },
    /// `NBD_OPT_EXPORT_NAME` came with a name that is no string.
    MalformedName,
    /// `NBD_OPT_EXPORT_NAME` where TLS is demanded and has not begun; it has no other way to fail.
    NoTls,
    /// So many bytes came behind `NBD_OPT_STARTTLS`, before it was answered.
    BehindStartTls(usize),
    /// `NBD_OPT_EXPORT_NAME` of somebody who may not even ask, for this reason; it has no other way to fail.
    Stranger(String),
    /// A request did not begin with its magic number.
    RequestMagic(u32),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::ClientFlags(flags) => write!(f, "the client set unknown handshake flags ({flags:#x})"),
            Violation::OptionMagic(magic) => {
                write!(f, "an option began with {magic:#018x} instead of its magic number")
            }
            Violation::OptionTooLong { option, length } => {
                write!(f, "option {option} came with {length} bytes of data, which is too much even to skip")
            }
            Violation::OptionWithoutFixedNewstyle(option) => {
                write!(f, "option {option} was sent without having negotiated fixed newstyle")
            }
            Violation::NoSuchExport(name) => write!(f, "the client asked for the export {name:?}, which is unknown"),
            Violation::Refused { name, why } => write!(f, "the client can't open {name:?}: {why}"),
            Violation::MalformedName => write!(f, "the client asked for an export by a name that is not valid text"),
            Violation::NoTls => f.write_str("the client asked for an export without TLS, which this address demands"),
            Violation::BehindStartTls(count) => {
                write!(f, "{count} bytes came behind the client's wish for TLS: they may be somebody else's")
            }
            Violation::Stranger(why) => write!(f, "the client is refused: {why}"),
            Violation::RequestMagic(magic) => {
                write!(f, "a request began with {magic:#010x} instead of its magic number")
            }
        }
    }
}

impl std::error::Error for Violation {}
