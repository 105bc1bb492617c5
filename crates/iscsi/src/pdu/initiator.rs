//! What an initiator sends (RFC 7143 sections 11.3 to 11.19), by opcode and field.

/// NOP-Out (section 11.18).
pub const NOP_OUT: u8 = 0x00;
/// SCSI Command (section 11.3).
pub const SCSI_COMMAND: u8 = 0x01;
/// Task Management Function Request (section 11.5).
pub const TASK_MANAGEMENT: u8 = 0x02;
/// Login Request (section 11.12).
pub const LOGIN: u8 = 0x03;
/// Text Request (section 11.10).
pub const TEXT: u8 = 0x04;
/// SCSI Data-Out (section 11.7).
pub const DATA_OUT: u8 = 0x05;
/// Logout Request (section 11.14).
pub const LOGOUT: u8 = 0x06;
/// SNACK Request (section 11.16).
pub const SNACK: u8 = 0x10;

use super::Bhs;
use crate::scsi::lun_number;

/// A SCSI command (section 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// Unsolicited Data-Out PDUs do not follow.
    pub is_final: bool,
    /// Bytes that the initiator wants to receive.
    pub read_bytes: u32,
    /// Bytes that it has to send.
    pub write_bytes: u32,
    /// Whom it asks.
    pub lun: [u8; 8],
    /// Names the task.
    pub itt: u32,
    /// What to do.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// The command of a header. Of both directions (section 11.3.5), which takes an additional header segment, only
    /// one is looked at.
    #[must_use]
    pub fn of(bhs: &Bhs) -> ScsiCommand {
        let (expected, flags) = (bhs.u32(20), bhs.0[1]);
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&bhs.0[32..48]);
        ScsiCommand {
            is_final: bhs.is_final(),
            read_bytes: if flags & 0x40 != 0 { expected } else { 0 },
            write_bytes: if flags & 0x60 == 0x20 { expected } else { 0 },
            lun: bhs.lun(),
            itt: bhs.itt(),
            cdb,
        }
    }

    /// The number of the logical unit that it asks.
    #[must_use]
    pub fn unit(&self) -> Option<u16> {
        lun_number(self.lun)
    }

    /// The header of the command.
    #[must_use]
    pub fn bhs(&self, cmd_sn: u32, exp_stat_sn: u32) -> Bhs {
        let mut bhs = Bhs::new(SCSI_COMMAND);
        let direction = if self.read_bytes > 0 { 0x40 } else { u8::from(self.write_bytes > 0) << 5 };
        // Task attribute: simple.
        bhs.0[1] = u8::from(self.is_final) << 7 | direction | 1;
        bhs.put(8, &self.lun);
        bhs.put_u32(16, self.itt);
        bhs.put_u32(20, self.read_bytes.max(self.write_bytes));
        bhs.put_u32(24, cmd_sn);
        bhs.put_u32(28, exp_stat_sn);
        bhs.put(32, &self.cdb);
        bhs
    }
}

/// Where a login is, and what its request asks for (section 11.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// T: on to the next stage.
    pub transit: bool,
    /// C: the text goes on in the next request.
    pub goes_on: bool,
    /// Current stage.
    pub csg: u8,
    /// Next stage.
    pub nsg: u8,
    /// The oldest version that the initiator speaks.
    pub version_min: u8,
    /// The initiator's part of the session's name.
    pub isid: [u8; 6],
    /// The target's part; zero for a new session.
    pub tsih: u16,
    /// Task tag, the same in the whole login.
    pub itt: u32,
    /// The number of the first command to come.
    pub cmd_sn: u32,
    /// The number of the next status that is expected.
    pub exp_stat_sn: u32,
}

impl LoginRequest {
    /// The request of a header.
    #[must_use]
    pub fn of(bhs: &Bhs) -> LoginRequest {
        let mut isid = [0; 6];
        isid.copy_from_slice(&bhs.0[8..14]);
        let flags = bhs.0[1];
        LoginRequest {
            transit: flags & 0x80 != 0,
            goes_on: flags & 0x40 != 0,
            csg: flags >> 2 & 3,
            nsg: flags & 3,
            version_min: bhs.0[3],
            isid,
            tsih: bhs.u16(14),
            itt: bhs.itt(),
            cmd_sn: bhs.cmd_sn(),
            exp_stat_sn: bhs.u32(28),
        }
    }

    /// The header of the request.
    #[must_use]
    pub fn bhs(&self) -> Bhs {
        let mut bhs = Bhs::new(LOGIN | 0x40);
        bhs.0[1] = u8::from(self.transit) << 7 | u8::from(self.goes_on) << 6 | self.csg << 2 | self.nsg;
        bhs.0[3] = self.version_min;
        bhs.put(8, &self.isid);
        bhs.put(14, &self.tsih.to_be_bytes());
        bhs.put_u32(16, self.itt);
        bhs.put_u32(24, self.cmd_sn);
        bhs.put_u32(28, self.exp_stat_sn);
        bhs
    }
}
