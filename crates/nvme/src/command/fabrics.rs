//! Fabrics commands (Base section 6): what makes a connection a queue of a controller.

use super::{Entry, FABRICS, Sgl};
use crate::completion::Status;
use crate::fields::{put_at, u16_at, u32_at, u64_at};

/// Bytes of the data of Connect (Base section 6.3).
pub const CONNECT_DATA_SIZE: usize = 1024;
/// Bytes of a name's field, with at least one zero behind the name (Base section 4.5).
pub const NAME_SIZE: usize = 256;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 223;

/// What a command for an authentication is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// SECP: the protocol.
    pub protocol: u8,
    /// SPSP0, and SPSP1 above: which of its messages.
    pub specific: u16,
    /// TL or AL: bytes that are sent, or for which there is room.
    pub len: u32,
}

/// A Fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabrics {
    /// Property Set (Base section 6.6).
    PropertySet {
        /// Which property, as an offset (Base section 3.1.3).
        offset: u32,
        /// It has 8 bytes, not 4.
        is_long: bool,
        /// What it becomes.
        value: u64,
    },
    /// Connect (Base section 6.3).
    Connect {
        /// The queue that this connection becomes: 0 for the admin queue.
        queue: u16,
        /// SQSIZE: its entries, 0's based.
        size: u16,
        /// CATTR: bit 2 turns flow control of submission queues off.
        attributes: u8,
        /// KATO: the keep-alive timeout in milliseconds; 0 for none.
        keep_alive_ms: u32,
    },
    /// Property Get (Base section 6.5).
    PropertyGet {
        /// Which property.
        offset: u32,
        /// It has 8 bytes, not 4.
        is_long: bool,
    },
    /// Authentication Send (Base section 6.2).
    AuthenticationSend(Security),
    /// Authentication Receive (Base section 6.1).
    AuthenticationReceive(Security),
    /// Disconnect (Base section 6.4).
    Disconnect,
}

impl Security {
    fn of(bytes: &[u8; 64]) -> Security {
        Security { protocol: bytes[43], specific: u16_at(bytes, 41), len: u32_at(bytes, 44) }
    }

    fn put(&self, kind: u8, bytes: &mut [u8; 64]) {
        (bytes[4], bytes[43]) = (kind, self.protocol);
        put_at(bytes, 41, &self.specific.to_le_bytes());
        put_at(bytes, 44, &self.len.to_le_bytes());
    }
}

impl Fabrics {
    pub(super) fn of(entry: &Entry) -> Result<Fabrics, Status> {
        let bytes = &entry.0;
        let is_long = || match bytes[40] & 7 {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Status::INVALID_FIELD),
        };
        // Bytes 40 and 41: the format of the record, of which there is one.
        let format = |status| if u16_at(bytes, 40) == 0 { Ok(()) } else { Err(status) };
        match bytes[4] {
            0x00 => Ok(Fabrics::PropertySet {
                offset: u32_at(bytes, 44),
                is_long: is_long()?,
                value: if is_long()? { u64_at(bytes, 48) } else { u64::from(u32_at(bytes, 48)) },
            }),
            0x01 => {
                format(Status::CONNECT_FORMAT)?;
                let (queue, size, keep_alive_ms) = (u16_at(bytes, 42), u16_at(bytes, 44), u32_at(bytes, 48));
                Ok(Fabrics::Connect { queue, size, attributes: bytes[46], keep_alive_ms })
            }
            0x05 => Ok(Fabrics::AuthenticationSend(Security::of(bytes))),
            0x06 => Ok(Fabrics::AuthenticationReceive(Security::of(bytes))),
            0x04 => Ok(Fabrics::PropertyGet { offset: u32_at(bytes, 44), is_long: is_long()? }),
            0x08 => format(Status::CONNECT_FORMAT).map(|()| Fabrics::Disconnect),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    pub(super) fn entry(&self, id: u16, sgl: &Sgl) -> Entry {
        let mut entry = Entry::new(FABRICS, id, sgl);
        let bytes = &mut entry.0;
        match self {
            Fabrics::PropertySet { offset, is_long, value } => {
                (bytes[4], bytes[40]) = (0x00, u8::from(*is_long));
                put_at(bytes, 44, &offset.to_le_bytes());
                put_at(bytes, 48, &value.to_le_bytes()[..if *is_long { 8 } else { 4 }]);
            }
            Fabrics::Connect { queue, size, attributes, keep_alive_ms } => {
                (bytes[4], bytes[46]) = (0x01, *attributes);
                put_at(bytes, 42, &queue.to_le_bytes());
                put_at(bytes, 44, &size.to_le_bytes());
                put_at(bytes, 48, &keep_alive_ms.to_le_bytes());
            }
            Fabrics::PropertyGet { offset, is_long } => {
                (bytes[4], bytes[40]) = (0x04, u8::from(*is_long));
                put_at(bytes, 44, &offset.to_le_bytes());
            }
            Fabrics::AuthenticationSend(security) => security.put(0x05, bytes),
            Fabrics::AuthenticationReceive(security) => security.put(0x06, bytes),
            Fabrics::Disconnect => bytes[4] = 0x08,
        }
        entry
    }
}

/// The data of Connect: who wants to connect to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: the controller that an I/O queue belongs to; 0xffff lets the subsystem choose one.
    pub controller: u16,
    /// SUBNQN.
    pub subsystem: String,
    /// HOSTNQN.
    pub host: String,
}

impl ConnectData {
    /// What the data says.
    ///
    /// # Errors
    /// The offset of the field that is wrong, for the answer's Invalid Parameter Offset. Of data that is too short that
    /// is where it ends.
    pub fn of(bytes: &[u8]) -> Result<ConnectData, u16> {
        if bytes.len() < CONNECT_DATA_SIZE {
            return Err(bytes.len() as u16);
        }
        let mut host_id = [0; 16];
        host_id.copy_from_slice(&bytes[..16]);
        let (subsystem, host) = (name(&bytes[256..512]).ok_or(256_u16)?, name(&bytes[512..768]).ok_or(512_u16)?);
        Ok(ConnectData { host_id, controller: u16_at(bytes, 16), subsystem, host })
    }

    /// The data.
    ///
    /// # Panics
    /// When a name is longer than a name may be.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONNECT_DATA_SIZE];
        put_at(&mut bytes, 0, &self.host_id);
        put_at(&mut bytes, 16, &self.controller.to_le_bytes());
        for (at, name) in [(256, &self.subsystem), (512, &self.host)] {
            assert!(name.len() <= NAME_MAX, "a name of {} bytes", name.len());
            put_at(&mut bytes, at, name.as_bytes());
        }
        bytes
    }
}

/// A name up to its first zero.
fn name(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|byte| *byte == 0).filter(|end| (1..=NAME_MAX).contains(end))?;
    String::from_utf8(field[..end].to_vec()).ok()
}
