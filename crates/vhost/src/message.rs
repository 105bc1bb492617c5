//! Messages of the control connection (Protocol, *Message Specification*): a header of twelve bytes (request, flags,
//! length of what follows), and a payload whose shape the request says. Numbers are in the machine's own order, as both
//! sides are on it.

pub use crate::violation::Violation;
use crate::{PAYLOAD_MAX, REGIONS_MAX};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// The version, in the lowest bits of a header's flags.
pub const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// A header's flag: this is the answer to a message.
pub const REPLY: u32 = 1 << 2;
/// A header's flag: the sender waits until the message has taken effect.
pub const NEED_REPLY: u32 = 1 << 3;
/// Bytes of the longest configuration space (Protocol, *Virtio device config space*).
pub const CONFIG_MAX: usize = 256;
/// Bytes of the head of a configuration space's message: offset, size, flags.
const CONFIG_HEAD: usize = 12;
/// In the payload of a message with an eventfd: none comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// Bytes of a description of in-flight memory. Its compiler pads it to 24; both are taken.
const INFLIGHT_BYTES: usize = 20;
const INFLIGHT_BYTES_PADDED: usize = 24;
/// Bytes of one region's description.
const REGION_BYTES: usize = 32;

/// Feature bits that are the protocol's own (Protocol, *Feature negotiation*).
pub mod features {
    /// There are protocol features.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// Protocol feature: more than one queue.
    pub const MQ: u64 = 1 << 0;
    /// What is written to the guest's memory can be logged, for who copies it meanwhile (VHOST_F_LOG_ALL).
    pub const LOG_ALL: u64 = 1 << 26;
    /// Protocol feature: the log is memory that comes with a message.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// Protocol feature: messages can be acknowledged.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// Protocol feature: this side has a socket for messages of its own.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// Protocol feature: the configuration space is read here.
    pub const CONFIG: u64 = 1 << 9;
    /// Protocol feature: what is under way is recorded in memory that the client keeps.
    pub const INFLIGHT: u64 = 1 << 12;
    /// All protocol features that are offered.
    pub const OFFERED: u64 = MQ | LOG_SHMFD | REPLY_ACK | BACKEND_REQ | CONFIG | INFLIGHT;
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message.
    pub request: u32,
    /// The sender waits for an acknowledgement, where that was negotiated.
    pub needs_reply: bool,
    /// Bytes that follow.
    pub payload_bytes: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// When it has another version, is an answer, or announces more than [`PAYLOAD_MAX`] bytes.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Violation> {
        let [request, flags, size] = [0, 4, 8].map(|at| number(bytes, at));
        let name = name(request).ok_or(Violation::Unknown(request))?;
        if flags & VERSION_MASK != VERSION {
            return Err(Violation::Version(flags & VERSION_MASK));
        }
        if flags & REPLY != 0 {
            return Err(Violation::value(name, "an answer where a message is expected"));
        }
        let payload_bytes = size as usize;
        if payload_bytes > PAYLOAD_MAX {
            return Err(Violation::Length { name, bytes: payload_bytes });
        }
        Ok(Header { request, needs_reply: flags & NEED_REPLY != 0, payload_bytes })
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A region of the guest's memory (Protocol, *Memory regions description*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAt {
    /// Its first address as the guest has it.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// Its first address in the client's process, by which rings are named.
    pub user: u64,
    /// Where it begins in its file, in bytes.
    pub offset: u64,
}

/// Where a ring is, by addresses of the client's process (Protocol, *A vring address description*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAt {
    /// Its descriptors.
    pub descriptors: u64,
    /// What the driver makes available.
    pub available: u64,
    /// What this side has used.
    pub used: u64,
    /// What is written there is to be logged, as if it were at this address of the guest.
    pub log: Option<u64>,
}

/// The log of what was written to the guest's memory (Protocol, *Log description*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogAt {
    /// Its bytes.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// In-flight memory (Protocol, *Inflight description*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightAt {
    /// Its bytes.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Queues that it is for.
    pub queues: u16,
    /// Entries of each.
    pub entries: u16,
    /// It came with padding behind, and is answered so.
    pub padded: bool,
}

/// A part of the configuration space that the client asks for or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigAt {
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// As the client has sent them.
    pub flags: u32,
}

/// A message of a client. Queues are numbers below [`QUEUES_MAX`](crate::QUEUES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemory(Vec<RegionAt>),
    SetRingEntries { queue: usize, entries: u32 },
    SetLog(LogAt),
    SetLogBell,
    SetRingAddresses { queue: usize, at: RingAt },
    SetRingBase { queue: usize, base: u32 },
    GetRingBase { queue: usize },
    SetKick { queue: usize, has_descriptor: bool },
    SetCall { queue: usize, has_descriptor: bool },
    SetError { queue: usize, has_descriptor: bool },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueues,
    EnableRing { queue: usize, enabled: bool },
    SetBackend,
    GetConfig(ConfigAt),
    SetConfig(ConfigAt),
    GetInflight(InflightAt),
    SetInflight(InflightAt),
}

/// The number of the message whose answer may come late.
pub(crate) const GET_VRING_BASE: u32 = requests::GET_VRING_BASE;
/// In a ring's address: what is written to the ring is to be logged (VHOST_VRING_F_LOG).
const RING_LOGS: u32 = 1;
/// A message of this side, that the configuration space has changed (Protocol, *Back-end message types*).
const CONFIG_CHANGE_MSG: u32 = 2;

/// Numbers of messages (Protocol, *Front-end message types*).
mod requests {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// What the protocol calls a message; `None` for one that is not known here.
#[must_use]
pub fn name(request: u32) -> Option<&'static str> {
    Some(match request {
        requests::GET_FEATURES => "GET_FEATURES",
        requests::SET_FEATURES => "SET_FEATURES",
        requests::SET_OWNER => "SET_OWNER",
        requests::RESET_OWNER => "RESET_OWNER",
        requests::SET_MEM_TABLE => "SET_MEM_TABLE",
        requests::SET_LOG_BASE => "SET_LOG_BASE",
        requests::SET_LOG_FD => "SET_LOG_FD",
        requests::SET_VRING_NUM => "SET_VRING_NUM",
        requests::SET_VRING_ADDR => "SET_VRING_ADDR",
        requests::SET_VRING_BASE => "SET_VRING_BASE",
        requests::GET_VRING_BASE => "GET_VRING_BASE",
        requests::SET_VRING_KICK => "SET_VRING_KICK",
        requests::SET_VRING_CALL => "SET_VRING_CALL",
        requests::SET_VRING_ERR => "SET_VRING_ERR",
        requests::GET_PROTOCOL_FEATURES => "GET_PROTOCOL_FEATURES",
        requests::SET_PROTOCOL_FEATURES => "SET_PROTOCOL_FEATURES",
        requests::GET_QUEUE_NUM => "GET_QUEUE_NUM",
        requests::SET_VRING_ENABLE => "SET_VRING_ENABLE",
        requests::SET_BACKEND_REQ_FD => "SET_BACKEND_REQ_FD",
        requests::GET_CONFIG => "GET_CONFIG",
        requests::SET_CONFIG => "SET_CONFIG",
        requests::GET_INFLIGHT_FD => "GET_INFLIGHT_FD",
        requests::SET_INFLIGHT_FD => "SET_INFLIGHT_FD",
        _ => return None,
    })
}

/// Reads one payload.
struct Payload<'a> {
    name: &'static str,
    bytes: &'a [u8],
}

impl Payload<'_> {
    fn exactly(&self, bytes: usize) -> Result<(), Violation> {
        if self.bytes.len() == bytes {
            return Ok(());
        }
        Err(Violation::Length { name: self.name, bytes: self.bytes.len() })
    }

    fn wrong(&self, why: impl Into<String>) -> Violation {
        Violation::value(self.name, why)
    }

    fn long(&self) -> Result<u64, Violation> {
        self.exactly(8)?;
        Ok(long(self.bytes, 0))
    }

    fn queue(&self, number: u64) -> Result<usize, Violation> {
        let queue = usize::try_from(number).ok().filter(|queue| *queue < crate::QUEUES_MAX);
        queue.ok_or_else(|| self.wrong(format!("there is no queue {number}")))
    }

    /// A queue and a number.
    fn state(&self) -> Result<(usize, u32), Violation> {
        self.exactly(8)?;
        Ok((self.queue(number(self.bytes, 0).into())?, number(self.bytes, 4)))
    }

    /// A queue, and whether an eventfd comes along.
    fn eventfd(&self) -> Result<(usize, bool), Violation> {
        let payload = self.long()?;
        if payload & !(NO_DESCRIPTOR | 0xff) != 0 {
            return Err(self.wrong(format!("unknown bits in {payload:#x}")));
        }
        Ok((self.queue(payload & 0xff)?, payload & NO_DESCRIPTOR == 0))
    }

    fn addresses(&self) -> Result<Message, Violation> {
        self.exactly(40)?;
        let queue = self.queue(number(self.bytes, 0).into())?;
        let [descriptors, used, available] = [8, 16, 24].map(|at| long(self.bytes, at));
        let log = match number(self.bytes, 4) {
            0 => None,
            RING_LOGS => Some(long(self.bytes, 32)),
            flags => return Err(self.wrong(format!("unknown flags {flags:#x}"))),
        };
        Ok(Message::SetRingAddresses { queue, at: RingAt { descriptors, available, used, log } })
    }

    fn regions(&self) -> Result<Message, Violation> {
        if self.bytes.len() < 8 {
            return Err(Violation::Length { name: self.name, bytes: self.bytes.len() });
        }
        let count = number(self.bytes, 0) as usize;
        if count > REGIONS_MAX {
            return Err(self.wrong(format!("{count} regions, and {REGIONS_MAX} is the most")));
        }
        self.exactly(8 + count * REGION_BYTES)?;
        let regions = self.bytes[8..].chunks_exact(REGION_BYTES).map(|region| {
            let [guest, size, user, offset] = [0, 8, 16, 24].map(|at| long(region, at));
            RegionAt { guest, size, user, offset }
        });
        Ok(Message::SetMemory(regions.collect()))
    }

    fn config(&self) -> Result<ConfigAt, Violation> {
        if self.bytes.len() < CONFIG_HEAD {
            return Err(Violation::Length { name: self.name, bytes: self.bytes.len() });
        }
        let [offset, size, flags] = [0, 4, 8].map(|at| number(self.bytes, at));
        if (offset as usize).saturating_add(size as usize) > CONFIG_MAX {
            return Err(self.wrong(format!("{size} bytes at {offset}, and there are {CONFIG_MAX}")));
        }
        self.exactly(CONFIG_HEAD + size as usize)?;
        Ok(ConfigAt { offset, size, flags })
    }

    /// Words of the log are written whole.
    fn log(&self) -> Result<LogAt, Violation> {
        self.exactly(16)?;
        let [size, offset] = [0, 8].map(|at| long(self.bytes, at));
        if size == 0 || !size.is_multiple_of(4) || usize::try_from(size).is_err() {
            return Err(self.wrong(format!("a log of {size} bytes")));
        }
        Ok(LogAt { size, offset })
    }

    fn inflight(&self) -> Result<InflightAt, Violation> {
        let padded = self.bytes.len() == INFLIGHT_BYTES_PADDED;
        if !padded {
            self.exactly(INFLIGHT_BYTES)?;
        }
        let short = |at| u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]);
        let (queues, entries) = (short(16), short(18));
        if !(1..=crate::QUEUES_MAX).contains(&usize::from(queues)) || !(1..=crate::RING_ENTRIES_MAX).contains(&entries)
        {
            return Err(self.wrong(format!("{queues} queues of {entries} entries")));
        }
        let (size, offset) = (long(self.bytes, 0), long(self.bytes, 8));
        Ok(InflightAt { size, offset, queues, entries, padded })
    }
}

impl Message {
    /// Reads a payload, whose header has been read.
    ///
    /// # Errors
    /// When the message is not known, or the payload is none of it.
    pub fn read(request: u32, bytes: &[u8]) -> Result<Message, Violation> {
        let name = name(request).ok_or(Violation::Unknown(request))?;
        let payload = Payload { name, bytes };
        let none = |message| payload.exactly(0).map(|()| message);
        match request {
            requests::GET_FEATURES => none(Message::GetFeatures),
            requests::SET_OWNER => none(Message::SetOwner),
            requests::RESET_OWNER => none(Message::ResetOwner),
            requests::GET_PROTOCOL_FEATURES => none(Message::GetProtocolFeatures),
            requests::GET_QUEUE_NUM => none(Message::GetQueues),
            requests::SET_FEATURES => payload.long().map(Message::SetFeatures),
            requests::SET_PROTOCOL_FEATURES => payload.long().map(Message::SetProtocolFeatures),
            requests::SET_MEM_TABLE => payload.regions(),
            requests::SET_LOG_BASE => payload.log().map(Message::SetLog),
            requests::SET_LOG_FD => none(Message::SetLogBell),
            requests::SET_BACKEND_REQ_FD => none(Message::SetBackend),
            requests::SET_VRING_NUM => {
                payload.state().map(|(queue, entries)| Message::SetRingEntries { queue, entries })
            }
            requests::SET_VRING_ADDR => payload.addresses(),
            requests::SET_VRING_BASE => payload.state().map(|(queue, base)| Message::SetRingBase { queue, base }),
            requests::GET_VRING_BASE => payload.state().map(|(queue, _)| Message::GetRingBase { queue }),
            requests::SET_VRING_KICK => {
                payload.eventfd().map(|(queue, has_descriptor)| Message::SetKick { queue, has_descriptor })
            }
            requests::SET_VRING_CALL => {
                payload.eventfd().map(|(queue, has_descriptor)| Message::SetCall { queue, has_descriptor })
            }
            requests::SET_VRING_ERR => {
                payload.eventfd().map(|(queue, has_descriptor)| Message::SetError { queue, has_descriptor })
            }
            requests::SET_VRING_ENABLE => match payload.state()? {
                (queue, enabled @ (0 | 1)) => Ok(Message::EnableRing { queue, enabled: enabled == 1 }),
                (_, other) => Err(payload.wrong(format!("neither 0 nor 1, but {other}"))),
            },
            requests::GET_CONFIG => payload.config().map(Message::GetConfig),
            requests::SET_CONFIG => payload.config().map(Message::SetConfig),
            requests::GET_INFLIGHT_FD => payload.inflight().map(Message::GetInflight),
            requests::SET_INFLIGHT_FD => payload.inflight().map(Message::SetInflight),
            _ => Err(Violation::Unknown(request)),
        }
    }
}

/// The bytes of an answer to a message.
#[must_use]
pub fn answer(request: u32, payload: &[u8]) -> Vec<u8> {
    let head = [request, VERSION | REPLY, payload.len() as u32];
    let mut bytes: Vec<u8> = head.into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.extend_from_slice(payload);
    bytes
}

/// A message of this side: the configuration space has changed, and is to be read again. No answer is asked for.
#[must_use]
pub fn config_change() -> Vec<u8> {
    [CONFIG_CHANGE_MSG, VERSION, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// The payload of an answer to [`Message::GetRingBase`].
#[must_use]
pub fn ring_base(queue: usize, base: u16) -> Vec<u8> {
    [queue as u32, u32::from(base)].into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// The payload of an answer to [`Message::GetConfig`]: this part of `space`, which is zeros behind its end.
#[must_use]
pub fn config(at: &ConfigAt, space: &[u8]) -> Vec<u8> {
    let mut payload: Vec<u8> = [at.offset, at.size, at.flags].into_iter().flat_map(u32::to_ne_bytes).collect();
    let all = space.iter().copied().chain(std::iter::repeat(0));
    payload.extend(all.skip(at.offset as usize).take(at.size as usize));
    payload
}

/// The payload of an answer to [`Message::GetInflight`].
#[must_use]
pub fn inflight(at: &InflightAt) -> Vec<u8> {
    let mut payload: Vec<u8> = [at.size, at.offset].into_iter().flat_map(u64::to_ne_bytes).collect();
    payload.extend([at.queues, at.entries].into_iter().flat_map(u16::to_ne_bytes));
    payload.resize(if at.padded { INFLIGHT_BYTES_PADDED } else { INFLIGHT_BYTES }, 0);
    payload
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
