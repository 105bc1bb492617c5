//! The numbers of the protocol, under the names that the protocol document gives them (*Values*).

/// What a server says first: `NBDMAGIC` (*Newstyle negotiation*).
pub const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// Second magic of the greeting, and first of every option: `IHAVEOPT`.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// First in every option reply (*Fixed newstyle negotiation*).
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First in every request (*Request message*).
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First in every simple reply (*Simple reply message*).
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First in every structured reply chunk (*Structured reply chunk message*).
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// *Handshake flags*: the server speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// *Handshake flags*: the server can leave out the zeroes after `NBD_OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// *Client flags*: the client speaks fixed newstyle.
pub const FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
/// *Client flags*: the client wants no zeroes after `NBD_OPT_EXPORT_NAME`.
pub const FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// *Transmission flags*: always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// *Transmission flags*: the export takes no writes.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// *Transmission flags*: FLUSH is served.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// *Transmission flags*: the FUA command flag is served.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// *Transmission flags*: TRIM is served.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// *Transmission flags*: `WRITE_ZEROES` and its `NO_HOLE` flag are served.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// *Transmission flags*: the DF command flag is served.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// *Transmission flags*: a flush on one connection covers the others.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// *Transmission flags*: CACHE is served.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// *Transmission flags*: the `FAST_ZERO` command flag is served.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

/// *Option types*: choose an export and end the handshake; can't fail but by closing.
pub const OPT_EXPORT_NAME: u32 = 1;
/// *Option types*: end the session.
pub const OPT_ABORT: u32 = 2;
/// *Option types*: list the exports.
pub const OPT_LIST: u32 = 3;
/// *Option types*: go on over TLS.
pub const OPT_STARTTLS: u32 = 5;
/// *Option types*: describe an export.
pub const OPT_INFO: u32 = 6;
/// *Option types*: describe an export and end the handshake.
pub const OPT_GO: u32 = 7;
/// *Option types*: use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// *Option types*: list the metadata contexts of an export.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// *Option types*: select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// *Option reply types*: done.
pub const REP_ACK: u32 = 1;
/// *Option reply types*: one export of a list.
pub const REP_SERVER: u32 = 2;
/// *Option reply types*: one piece of information on an export.
pub const REP_INFO: u32 = 3;
/// *Option reply types*: one metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// *Option reply types*: the option is not known.
pub const REP_ERR_UNSUP: u32 = (1 << 31) | 1;
/// *Option reply types*: the option's data is wrong.
pub const REP_ERR_INVALID: u32 = (1 << 31) | 3;
/// *Option reply types*: the server does not want to.
pub const REP_ERR_POLICY: u32 = (1 << 31) | 2;
/// *Option reply types*: nothing is served before TLS.
pub const REP_ERR_TLS_REQD: u32 = (1 << 31) | 5;
/// *Option reply types*: there is no such export.
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) | 6;
/// *Option reply types*: the client must ask for the block sizes first.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = (1 << 31) | 8;
/// *Option reply types*: the option or its answer is too long.
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) | 9;

/// Information type: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information type: the export's own name.
pub const INFO_NAME: u16 = 1;
/// Information type: the export's description.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information type: block size constraints.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// *Command flags*: durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// *Command flags*: zeroes must keep their space.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// *Command flags*: answer a READ in one content chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// *Command flags*: one extent is enough.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// *Command flags*: fail rather than be as slow as a write.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// *Request types*.
pub const CMD_READ: u16 = 0;
/// *Request types*.
pub const CMD_WRITE: u16 = 1;
/// *Request types*: the client leaves.
pub const CMD_DISC: u16 = 2;
/// *Request types*.
pub const CMD_FLUSH: u16 = 3;
/// *Request types*.
pub const CMD_TRIM: u16 = 4;
/// *Request types*.
pub const CMD_CACHE: u16 = 5;
/// *Request types*.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// *Request types*.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// *Structured reply flags*: the reply's last chunk.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// *Structured reply types*: nothing but the end.
pub const REPLY_TYPE_NONE: u16 = 0;
/// *Structured reply types*: data at an offset.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// *Structured reply types*: zeroes at an offset.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// *Structured reply types*: extents of a metadata context.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// *Structured reply types*: an error.
pub const REPLY_TYPE_ERROR: u16 = (1 << 15) | 1;

/// *`base:allocation` metadata context*: not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// *`base:allocation` metadata context*: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
/// The one metadata context that is served.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number of that context in a session that has selected it.
pub const BASE_ALLOCATION_ID: u32 = 1;
