//! Commands of the admin queue (Base section 5).

use super::{Entry, Sgl};
use crate::completion::Status;

/// A command of the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admin {
    /// Get Log Page (Base section 5.16).
    GetLogPage {
        /// NSID: whose.
        namespace: u32,
        /// LID.
        page: u8,
        /// LSP: what of it, as the page has it.
        specific: u8,
        /// RAE: an event that points to the page stays.
        retains_event: bool,
        /// How many bytes: of NUMD, which counts dwords from 0.
        len: u64,
        /// LPO: from which byte on.
        offset: u64,
    },
    /// Identify (Base section 5.17).
    Identify {
        /// NSID: what.
        namespace: u32,
        /// CNS: which structure.
        structure: u8,
        /// CNTID: of which controller.
        controller: u16,
        /// CSI: of which command set.
        command_set: u8,
    },
    /// Abort (Base section 5.1).
    Abort {
        /// The queue of the command.
        queue: u16,
        /// The command.
        command: u16,
    },
    /// Set Features (Base section 5.27).
    SetFeatures {
        /// NSID: whose.
        namespace: u32,
        /// FID.
        feature: u8,
        /// SV: also after a reset.
        saves: bool,
        /// What it becomes: Command Dword 11.
        value: u32,
    },
    /// Get Features (Base section 5.15).
    GetFeatures {
        /// NSID: whose.
        namespace: u32,
        /// FID.
        feature: u8,
        /// SEL: 0 for what it is now.
        select: u8,
        /// Command Dword 11.
        value: u32,
    },
    /// Asynchronous Event Request (Base section 5.2).
    AsynchronousEvent,
    /// Keep Alive (Base section 5.18).
    KeepAlive,
}

impl Admin {
    pub(super) fn of(entry: &Entry) -> Result<Admin, Status> {
        let (namespace, ten, eleven) = (entry.namespace(), entry.dword(10), entry.dword(11));
        Ok(match entry.opcode() {
            0x02 => {
                let dwords = u64::from(ten >> 16) | u64::from(eleven & 0xffff) << 16;
                // OT: an offset as an index, which log pages here do not have.
                if entry.dword(14) & 1 << 23 != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                Admin::GetLogPage {
                    namespace,
                    page: ten as u8,
                    specific: (ten >> 8) as u8 & 0x7f,
                    retains_event: ten & 1 << 15 != 0,
                    len: (dwords + 1) * 4,
                    offset: u64::from(entry.dword(12)) | u64::from(entry.dword(13)) << 32,
                }
            }
            0x06 => Admin::Identify {
                namespace,
                structure: ten as u8,
                controller: (ten >> 16) as u16,
                command_set: (eleven >> 24) as u8,
            },
            0x08 => Admin::Abort { queue: ten as u16, command: (ten >> 16) as u16 },
            0x09 => Admin::SetFeatures { namespace, feature: ten as u8, saves: ten >> 31 != 0, value: eleven },
            0x0a => Admin::GetFeatures { namespace, feature: ten as u8, select: (ten >> 8) as u8 & 7, value: eleven },
            0x0c => Admin::AsynchronousEvent,
            0x18 => Admin::KeepAlive,
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    pub(super) fn entry(&self, id: u16, sgl: &Sgl) -> Entry {
        let new = |opcode, namespace, ten, eleven| {
            let mut entry = Entry::new(opcode, id, sgl);
            entry.put_namespace(namespace);
            entry.put_dword(10, ten);
            entry.put_dword(11, eleven);
            entry
        };
        match *self {
            Admin::GetLogPage { namespace, page, specific, retains_event, len, offset } => {
                let dwords = len.div_ceil(4).saturating_sub(1) as u32;
                let ten = u32::from(page)
                    | u32::from(specific & 0x7f) << 8
                    | u32::from(retains_event) << 15
                    | (dwords & 0xffff) << 16;
                let mut entry = new(0x02, namespace, ten, dwords >> 16);
                entry.put_dword(12, offset as u32);
                entry.put_dword(13, (offset >> 32) as u32);
                entry
            }
            Admin::Identify { namespace, structure, controller, command_set } => {
                let ten = u32::from(structure) | u32::from(controller) << 16;
                new(0x06, namespace, ten, u32::from(command_set) << 24)
            }
            Admin::Abort { queue, command } => new(0x08, 0, u32::from(queue) | u32::from(command) << 16, 0),
            Admin::SetFeatures { namespace, feature, saves, value } => {
                new(0x09, namespace, u32::from(feature) | u32::from(saves) << 31, value)
            }
            Admin::GetFeatures { namespace, feature, select, value } => {
                new(0x0a, namespace, u32::from(feature) | u32::from(select & 7) << 8, value)
            }
            Admin::AsynchronousEvent => new(0x0c, 0, 0, 0),
            Admin::KeepAlive => new(0x18, 0, 0, 0),
        }
    }
}
