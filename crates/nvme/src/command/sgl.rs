//! Where the data of a command is: the SGL descriptors that NVMe/TCP has (Base section 4.1.2, TCP section 3.3.2).

use crate::completion::Status;
use crate::fields::{put_at, u32_at, u64_at};
use bytes::Bytes;

/// SGL Data Block with an offset into the capsule.
const IN_CAPSULE: u8 = 0x01;
/// Transport SGL Data Block, for the transport to move.
const TRANSPORT: u8 = 0x5a;

/// The descriptor of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// The data comes with the command.
    InCapsule {
        /// Where it begins, counted from the beginning of the capsule's data (ICDOFF is 0).
        offset: u64,
        /// How many bytes it has.
        len: u32,
    },
    /// The data goes in PDUs of its own; a command without data has one of no bytes.
    Transport {
        /// How many bytes it has.
        len: u32,
    },
}

impl Sgl {
    /// What a descriptor says.
    ///
    /// # Errors
    /// When it is one that NVMe/TCP does not have.
    pub fn of(bytes: &[u8; 16]) -> Result<Sgl, Status> {
        match bytes[15] {
            IN_CAPSULE => Ok(Sgl::InCapsule { offset: u64_at(bytes, 0), len: u32_at(bytes, 8) }),
            TRANSPORT => Ok(Sgl::Transport { len: u32_at(bytes, 8) }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// The descriptor.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        match self {
            Sgl::InCapsule { offset, len } => {
                put_at(&mut bytes, 0, &offset.to_le_bytes());
                put_at(&mut bytes, 8, &len.to_le_bytes());
                bytes[15] = IN_CAPSULE;
            }
            Sgl::Transport { len } => {
                put_at(&mut bytes, 8, &len.to_le_bytes());
                bytes[15] = TRANSPORT;
            }
        }
        bytes
    }

    /// How many bytes the data has.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Sgl::InCapsule { len, .. } | Sgl::Transport { len } => *len,
        }
    }

    /// True when there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data that came in the capsule; `None` when it comes otherwise.
    ///
    /// # Errors
    /// When the capsule does not have it.
    pub fn in_capsule(&self, capsule: &Bytes) -> Result<Option<Bytes>, Status> {
        let Sgl::InCapsule { offset, len } = self else { return Ok(None) };
        let begin = usize::try_from(*offset).ok().filter(|begin| *begin <= capsule.len());
        let begin = begin.ok_or(Status::SGL_OFFSET_INVALID)?;
        let end = begin.checked_add(*len as usize).filter(|end| *end <= capsule.len());
        Ok(Some(capsule.slice(begin..end.ok_or(Status::SGL_LENGTH_INVALID)?)))
    }
}
