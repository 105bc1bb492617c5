//! Headers (TCP section 3.6.1 and 3.6.2): their bytes, and what they say.

use super::fatal::TerminateRequest;
use super::{Digests, HEADER_MAX, InitializeRequest, InitializeResponse, put_at, u16_at, u32_at};

/// FLAGS: a header digest follows.
pub const HAS_HEADER_DIGEST: u8 = 1;
/// FLAGS: a data digest follows.
pub const HAS_DATA_DIGEST: u8 = 2;
/// FLAGS of H2CData and C2HData: the last PDU of its transfer.
pub const LAST: u8 = 4;
/// FLAGS of C2HData: the command is completed without a CapsuleResp.
pub const SUCCESS: u8 = 8;

/// What a PDU is (PDU-Type, TCP section 3.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Initialize Connection Request.
    InitializeRequest = 0,
    /// Initialize Connection Response.
    InitializeResponse = 1,
    /// Host to Controller Terminate Connection Request.
    HostTerminates = 2,
    /// Controller to Host Terminate Connection Request.
    ControllerTerminates = 3,
    /// Command Capsule.
    Command = 4,
    /// Response Capsule.
    Response = 5,
    /// Host to Controller Data Transfer.
    HostData = 6,
    /// Controller to Host Data Transfer.
    ControllerData = 7,
    /// Ready to Transfer.
    ReadyToTransfer = 9,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::InitializeRequest,
        Kind::InitializeResponse,
        Kind::HostTerminates,
        Kind::ControllerTerminates,
        Kind::Command,
        Kind::Response,
        Kind::HostData,
        Kind::ControllerData,
        Kind::ReadyToTransfer,
    ];

    /// The kind with this PDU-Type.
    #[must_use]
    pub fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Controllers receive this, and hosts do not.
    #[must_use]
    pub fn is_from_host(self) -> bool {
        matches!(self, Kind::InitializeRequest | Kind::HostTerminates | Kind::Command | Kind::HostData)
    }

    /// Bytes of its header (HLEN).
    #[must_use]
    pub fn header_size(self) -> usize {
        match self {
            Kind::InitializeRequest | Kind::InitializeResponse => 128,
            Kind::Command => 72,
            _ => 24,
        }
    }

    /// It comes before digests are agreed on, or no matter whether they are.
    #[must_use]
    pub fn is_bare(self) -> bool {
        matches!(
            self,
            Kind::InitializeRequest | Kind::InitializeResponse | Kind::HostTerminates | Kind::ControllerTerminates
        )
    }
}

/// Which bytes of a command's data a PDU has (TCP sections 3.6.2.8 and 3.6.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// CCCID: the command.
    pub command: u16,
    /// TTAG: the transfer, which the controller names. Reserved in C2HData.
    pub transfer: u16,
    /// DATAO: where they begin, counted from the command's first.
    pub offset: u32,
    /// DATAL: how many they are.
    pub len: u32,
    /// Nothing of the transfer follows.
    pub is_last: bool,
    /// C2HData: the command is completed by this, and no response follows.
    pub is_success: bool,
}

/// Which bytes of a command's data the controller wants (TCP section 3.6.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// CCCID: the command.
    pub command: u16,
    /// TTAG: names the transfer in the data that is to come.
    pub transfer: u16,
    /// R2TO: where they begin.
    pub offset: u32,
    /// R2TL: how many they are.
    pub len: u32,
}

/// What the header of a PDU says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// ICReq.
    InitializeRequest(InitializeRequest),
    /// ICResp.
    InitializeResponse(InitializeResponse),
    /// H2CTermReq; its data is the header that had the error.
    HostTerminates(TerminateRequest),
    /// C2HTermReq; its data is the header that had the error.
    ControllerTerminates(TerminateRequest),
    /// CapsuleCmd: a submission queue entry; its data is that of the command.
    Command([u8; 64]),
    /// CapsuleResp: a completion queue entry.
    Response([u8; 16]),
    /// H2CData.
    HostData(DataHeader),
    /// C2HData.
    ControllerData(DataHeader),
    /// R2T.
    ReadyToTransfer(ReadyToTransfer),
}

impl Pdu {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Pdu::InitializeRequest(_) => Kind::InitializeRequest,
            Pdu::InitializeResponse(_) => Kind::InitializeResponse,
            Pdu::HostTerminates(_) => Kind::HostTerminates,
            Pdu::ControllerTerminates(_) => Kind::ControllerTerminates,
            Pdu::Command(_) => Kind::Command,
            Pdu::Response(_) => Kind::Response,
            Pdu::HostData(_) => Kind::HostData,
            Pdu::ControllerData(_) => Kind::ControllerData,
            Pdu::ReadyToTransfer(_) => Kind::ReadyToTransfer,
        }
    }

    /// What a header says: `bytes` are all of it.
    pub(super) fn of(kind: Kind, bytes: &[u8]) -> Pdu {
        let digests = Digests { header: bytes[11] & 1 != 0, data: bytes[11] & 2 != 0 };
        let (version, alignment, number) = (u16_at(bytes, 8), bytes[10], u32_at(bytes, 12));
        let terminate = TerminateRequest { status: version, info: u32_at(bytes, 10) };
        match kind {
            Kind::InitializeRequest => {
                Pdu::InitializeRequest(InitializeRequest { version, alignment, digests, r2t_max: number })
            }
            Kind::InitializeResponse => {
                Pdu::InitializeResponse(InitializeResponse { version, alignment, digests, data_max: number })
            }
            Kind::HostTerminates => Pdu::HostTerminates(terminate),
            Kind::ControllerTerminates => Pdu::ControllerTerminates(terminate),
            Kind::Command => {
                let mut entry = [0; 64];
                entry.copy_from_slice(&bytes[8..72]);
                Pdu::Command(entry)
            }
            Kind::Response => {
                let mut entry = [0; 16];
                entry.copy_from_slice(&bytes[8..24]);
                Pdu::Response(entry)
            }
            Kind::HostData => Pdu::HostData(data_header(bytes)),
            Kind::ControllerData => Pdu::ControllerData(data_header(bytes)),
            Kind::ReadyToTransfer => {
                let (command, transfer) = (u16_at(bytes, 8), u16_at(bytes, 10));
                Pdu::ReadyToTransfer(ReadyToTransfer { command, transfer, offset: number, len: u32_at(bytes, 16) })
            }
        }
    }

    /// The header, with PDO and PLEN still zero, and the flags that do not depend on digests.
    pub(super) fn header(&self) -> [u8; HEADER_MAX] {
        let (mut bytes, kind) = ([0; HEADER_MAX], self.kind());
        bytes[0] = kind as u8;
        bytes[2] = kind.header_size() as u8;
        match self {
            Pdu::InitializeRequest(request) => {
                put_initialize(&mut bytes, request.version, request.alignment, request.digests, request.r2t_max);
            }
            Pdu::InitializeResponse(response) => {
                put_initialize(&mut bytes, response.version, response.alignment, response.digests, response.data_max);
            }
            Pdu::HostTerminates(request) | Pdu::ControllerTerminates(request) => {
                put_at(&mut bytes, 8, &request.status.to_le_bytes());
                put_at(&mut bytes, 10, &request.info.to_le_bytes());
            }
            Pdu::Command(entry) => put_at(&mut bytes, 8, entry),
            Pdu::Response(entry) => put_at(&mut bytes, 8, entry),
            Pdu::HostData(data) | Pdu::ControllerData(data) => {
                let success = data.is_success && kind == Kind::ControllerData;
                bytes[1] = if data.is_last { LAST } else { 0 } | if success { SUCCESS } else { 0 };
                put_transfer(&mut bytes, data.command, data.transfer, data.offset, data.len);
            }
            Pdu::ReadyToTransfer(r2t) => put_transfer(&mut bytes, r2t.command, r2t.transfer, r2t.offset, r2t.len),
        }
        bytes
    }
}

fn data_header(bytes: &[u8]) -> DataHeader {
    DataHeader {
        command: u16_at(bytes, 8),
        transfer: u16_at(bytes, 10),
        offset: u32_at(bytes, 12),
        len: u32_at(bytes, 16),
        is_last: bytes[1] & LAST != 0,
        is_success: bytes[1] & SUCCESS != 0 && bytes[0] == Kind::ControllerData as u8,
    }
}

fn put_initialize(bytes: &mut [u8], version: u16, alignment: u8, digests: Digests, number: u32) {
    put_at(bytes, 8, &version.to_le_bytes());
    bytes[10] = alignment;
    bytes[11] = u8::from(digests.header) | u8::from(digests.data) << 1;
    put_at(bytes, 12, &number.to_le_bytes());
}

fn put_transfer(bytes: &mut [u8], command: u16, transfer: u16, offset: u32, len: u32) {
    put_at(bytes, 8, &command.to_le_bytes());
    put_at(bytes, 10, &transfer.to_le_bytes());
    put_at(bytes, 12, &offset.to_le_bytes());
    put_at(bytes, 16, &len.to_le_bytes());
}
