//! Commands of reservations (Base sections 7.2 to 7.5): their dwords, and the keys that come as their data.

use super::{Entry, Sgl};
use crate::completion::Status;
use crate::fields::{put_at, u64_at};
use azekura_model::{ReservationCommand, ReservationKind};

/// Opcode of Reservation Register.
pub const REGISTER: u8 = 0x0d;
/// Opcode of Reservation Report.
pub const REPORT: u8 = 0x0e;
/// Opcode of Reservation Acquire.
pub const ACQUIRE: u8 = 0x11;
/// Opcode of Reservation Release.
pub const RELEASE: u8 = 0x15;
/// All of them.
pub const OPCODES: [u8; 4] = [REGISTER, REPORT, ACQUIRE, RELEASE];

/// IEKEY, in Command Dword 10 of all but the report.
const IGNORES_KEY: u32 = 1 << 3;

/// A command of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Reservation Register (section 7.3).
    Register {
        /// RREGA.
        action: Register,
        /// IEKEY: the host need not say which key it has. Without meaning when it registers.
        ignores_key: bool,
        /// CPTPL: whether reservations are to outlast a loss of power from now on; `None`: as before.
        persists: Option<bool>,
    },
    /// Reservation Acquire (section 7.2).
    Acquire {
        /// RACQA.
        action: Acquire,
        /// RTYPE.
        kind: ReservationKind,
    },
    /// Reservation Release (section 7.4).
    Release(Release),
    /// Reservation Report (section 7.5).
    Report {
        /// How many bytes: of NUMD, which counts dwords from 0.
        len: u64,
        /// EDS: with host identifiers of 128 bits.
        is_extended: bool,
    },
}

/// RREGA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    /// Register Reservation Key.
    Register = 0,
    /// Unregister Reservation Key.
    Unregister = 1,
    /// Replace Reservation Key.
    Replace = 2,
}

/// RACQA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Acquire {
    /// Acquire.
    Acquire = 0,
    /// Preempt.
    Preempt = 1,
    /// Preempt and Abort.
    PreemptAndAbort = 2,
}

/// RRELA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Release, of a reservation of this kind (RTYPE).
    Release(ReservationKind),
    /// Clear.
    Clear,
}

impl Reservation {
    /// The command of an entry; `None`: it is none of reservations.
    ///
    /// # Errors
    /// When a field has a value that is reserved, or that this revision does not let hosts use.
    pub(super) fn of(entry: &Entry) -> Result<Option<Reservation>, Status> {
        let (ten, opcode) = (entry.dword(10), entry.opcode());
        let (action, ignores_key) = (ten & 7, ten & IGNORES_KEY != 0);
        let kind = || ReservationKind::from_nvme((ten >> 8) as u8).ok_or(Status::INVALID_FIELD);
        // Since revision 1.3, which the namespace says that it follows (RESCAP), no host takes or gives up what it has
        // not named by its key.
        if ignores_key && matches!(opcode, ACQUIRE | RELEASE) {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Some(match (opcode, action) {
            (REGISTER, _) => Reservation::Register {
                action: match action {
                    0 => Register::Register,
                    1 => Register::Unregister,
                    2 => Register::Replace,
                    _ => return Err(Status::INVALID_FIELD),
                },
                ignores_key,
                persists: match ten >> 30 {
                    0 => None,
                    2 => Some(false),
                    3 => Some(true),
                    _ => return Err(Status::INVALID_FIELD),
                },
            },
            (ACQUIRE, 0) => Reservation::Acquire { action: Acquire::Acquire, kind: kind()? },
            (ACQUIRE, 1) => Reservation::Acquire { action: Acquire::Preempt, kind: kind()? },
            (ACQUIRE, 2) => Reservation::Acquire { action: Acquire::PreemptAndAbort, kind: kind()? },
            (RELEASE, 0) => Reservation::Release(Release::Release(kind()?)),
            (RELEASE, 1) => Reservation::Release(Release::Clear),
            (ACQUIRE | RELEASE, _) => return Err(Status::INVALID_FIELD),
            (REPORT, _) => Reservation::Report { len: (u64::from(ten) + 1) * 4, is_extended: entry.dword(11) & 1 != 0 },
            _ => return Ok(None),
        }))
    }

    pub(super) fn entry(&self, namespace: u32, id: u16, sgl: &Sgl) -> Entry {
        let kind = |kind: ReservationKind| u32::from(kind.nvme()) << 8;
        let (opcode, ten, eleven) = match *self {
            Reservation::Register { action, ignores_key, persists } => {
                let persists = persists.map_or(0, |persists| 2 | u32::from(persists)) << 30;
                let ignores_key = if ignores_key { IGNORES_KEY } else { 0 };
                (REGISTER, action as u32 | ignores_key | persists, 0)
            }
            Reservation::Acquire { action, kind: of } => (ACQUIRE, action as u32 | kind(of), 0),
            Reservation::Release(Release::Release(of)) => (RELEASE, kind(of), 0),
            Reservation::Release(Release::Clear) => (RELEASE, 1, 0),
            Reservation::Report { len, is_extended } => {
                (REPORT, len.div_ceil(4).saturating_sub(1) as u32, u32::from(is_extended))
            }
        };
        let mut entry = Entry::new(opcode, id, sgl);
        entry.put_namespace(namespace);
        entry.put_dword(10, ten);
        entry.put_dword(11, eleven);
        entry
    }

    /// Bytes of keys that come with the command: one key, or two.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        match self {
            Reservation::Register { .. } | Reservation::Acquire { .. } => 16,
            Reservation::Release(_) => 8,
            Reservation::Report { .. } => 0,
        }
    }

    /// What the record is asked for; `None` for the report, which changes nothing. What stands behind the keys is not
    /// looked at: Linux sends 16 bytes with each command.
    ///
    /// # Errors
    /// When there are fewer bytes than keys.
    pub fn with_keys(&self, data: &[u8]) -> Result<Option<ReservationCommand>, Status> {
        let data = data.get(..self.key_bytes()).ok_or(Status::SGL_LENGTH_INVALID)?;
        Ok(Some(match *self {
            Reservation::Report { .. } => return Ok(None),
            Reservation::Register { action, ignores_key, .. } => {
                let (key, new) = (Some(u64_at(data, 0)).filter(|_| !ignores_key), u64_at(data, 8));
                match action {
                    Register::Register => ReservationCommand::RegisterNew { new },
                    Register::Unregister => ReservationCommand::Unregister { key },
                    Register::Replace => ReservationCommand::ReplaceKey { key, new },
                }
            }
            Reservation::Acquire { action, kind } => {
                let (key, victim) = (u64_at(data, 0), u64_at(data, 8));
                match action {
                    Acquire::Acquire => ReservationCommand::Reserve { key, kind },
                    Acquire::Preempt => ReservationCommand::Preempt { key, victim, kind, abort: false },
                    Acquire::PreemptAndAbort => ReservationCommand::Preempt { key, victim, kind, abort: true },
                }
            }
            Reservation::Release(Release::Release(kind)) => ReservationCommand::Release { key: u64_at(data, 0), kind },
            Reservation::Release(Release::Clear) => ReservationCommand::Clear { key: u64_at(data, 0) },
        }))
    }
}

/// The data of a command with these keys: CRKEY, and NRKEY or PRKEY.
#[must_use]
pub fn keys(current: u64, other: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    put_at(&mut bytes, 0, &current.to_le_bytes());
    put_at(&mut bytes, 8, &other.to_le_bytes());
    bytes
}
