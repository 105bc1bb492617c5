//! What controllers and namespaces say of themselves: data structures of Identify (Base section 5.17.2, NVM section
//! 4.1.5). What is not named here is zero, which everywhere means that there is none of it.

use crate::fields::put_at;

/// Bytes of each structure.
pub const IDENTIFY_SIZE: usize = 4096;

/// CNS (Base section 5.17.1): an I/O command set's view of a namespace.
pub const NAMESPACE: u8 = 0x00;
/// CNS: the controller.
pub const CONTROLLER: u8 = 0x01;
/// CNS: active namespaces by number.
pub const NAMESPACE_LIST: u8 = 0x02;
/// CNS: names of a namespace.
pub const DESCRIPTORS: u8 = 0x03;
/// CNS: what a namespace has of one command set alone.
pub const SET_NAMESPACE: u8 = 0x05;
/// CNS: what the controller has of one command set alone.
pub const SET_CONTROLLER: u8 = 0x06;
/// CNS: active namespaces of one command set.
pub const SET_NAMESPACE_LIST: u8 = 0x07;
/// CNS: what a namespace has whatever its command set.
pub const INDEPENDENT_NAMESPACE: u8 = 0x08;

/// The version of the Base specification (VER and VS): 2.0.
pub const VERSION: u32 = 0x0002_0000;

/// What a controller is (CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ControllerType {
    /// It has namespaces.
    Io = 1,
    /// It knows where others are.
    Discovery = 2,
}

/// Identify Controller (Base section 5.17.2.1): what is the same for all of ours is filled in by
/// [`Controller::bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// What it is.
    pub controller_type: ControllerType,
    /// SN: up to 20 characters of ASCII.
    pub serial: String,
    /// MN: up to 40 characters of ASCII.
    pub model: String,
    /// FR: up to 8 characters of ASCII.
    pub firmware: String,
    /// SUBNQN.
    pub subsystem: String,
    /// CNTLID.
    pub id: u16,
    /// CMIC: bits 0 to 3, several ports, several controllers, virtual function, ANA.
    pub multipath: u8,
    /// MDTS: the most data of a command, as a power of two of 4096 bytes; 0 for no limit.
    pub transfer_power: u8,
    /// RTD3E: seconds that a shutdown takes at the most.
    pub shutdown_seconds: u8,
    /// OAES: events that it sends of itself.
    pub events: u32,
    /// CTRATT: attributes.
    pub attributes: u32,
    /// AERL: event requests at a time, 0's based.
    pub event_requests: u8,
    /// KAS: steps of the keep-alive timeout, in units of 100 ms; 0 for no keep-alive.
    pub keep_alive_steps: u16,
    /// ANATT: seconds that a change of access takes at the most.
    pub access_seconds: u8,
    /// ANACAP: states of access that are reported.
    pub access_states: u8,
    /// ANAGRPMAX and NANAGRPID: groups of access.
    pub access_groups: u32,
    /// MAXCMD: commands of a queue at a time.
    pub commands_max: u16,
    /// NN: the highest number of a namespace.
    pub namespaces: u32,
    /// ONCS: optional commands.
    pub optional_commands: u16,
    /// FUSES: fused operations; bit 0 for compare and write.
    pub fused: u16,
    /// VWC: bit 0 when there is a volatile write cache.
    pub write_cache: u8,
    /// In-capsule data of commands on I/O queues, in bytes: IOCCSZ is made of it.
    pub capsule_data: u32,
}

impl Controller {
    /// The structure.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; IDENTIFY_SIZE];
        put_text(&mut bytes[4..24], &self.serial);
        put_text(&mut bytes[24..64], &self.model);
        put_text(&mut bytes[64..72], &self.firmware);
        (bytes[76], bytes[77]) = (self.multipath, self.transfer_power);
        put_at(&mut bytes, 78, &self.id.to_le_bytes());
        put_at(&mut bytes, 80, &VERSION.to_le_bytes());
        // In microseconds.
        put_at(&mut bytes, 88, &(u32::from(self.shutdown_seconds) * 1_000_000).to_le_bytes());
        put_at(&mut bytes, 92, &self.events.to_le_bytes());
        put_at(&mut bytes, 96, &self.attributes.to_le_bytes());
        bytes[111] = self.controller_type as u8;
        // ACL: four aborts at a time (0's based), as the specification recommends.
        (bytes[258], bytes[259]) = (3, self.event_requests);
        // FRMW: one firmware slot, which can't be written.
        bytes[260] = 0x03;
        // LPA: the effects of commands are logged, and log pages may be longer than 4 KiB and read from any offset.
        bytes[261] = 0x06;
        put_at(&mut bytes, 320, &self.keep_alive_steps.to_le_bytes());
        (bytes[342], bytes[343]) = (self.access_seconds, self.access_states);
        put_at(&mut bytes, 344, &self.access_groups.to_le_bytes());
        put_at(&mut bytes, 348, &self.access_groups.to_le_bytes());
        // SQES and CQES: entries of 64 and 16 bytes, and no others.
        (bytes[512], bytes[513]) = (0x66, 0x44);
        put_at(&mut bytes, 514, &self.commands_max.to_le_bytes());
        put_at(&mut bytes, 516, &self.namespaces.to_le_bytes());
        put_at(&mut bytes, 520, &self.optional_commands.to_le_bytes());
        put_at(&mut bytes, 522, &self.fused.to_le_bytes());
        bytes[525] = self.write_cache;
        // SGLS: SGLs without alignment, offsets into capsules, and the transport's descriptor (bits 0, 20 and 21).
        put_at(&mut bytes, 536, &(1_u32 | 1 << 20 | 1 << 21).to_le_bytes());
        // MNAN: those that have ANA say it, and Linux takes none without it.
        put_at(&mut bytes, 540, &self.namespaces.to_le_bytes());
        let name = &self.subsystem.as_bytes()[..self.subsystem.len().min(255)];
        put_at(&mut bytes, 768, name);
        if self.controller_type == ControllerType::Io {
            // IOCCSZ and IORCSZ count 16 bytes: an entry and its data, and an entry.
            put_at(&mut bytes, 1792, &((64 + self.capsule_data) / 16).to_le_bytes());
            put_at(&mut bytes, 1796, &1_u32.to_le_bytes());
        }
        // MSDBD: one descriptor of a command.
        bytes[1803] = 1;
        // DCTYPE: a direct discovery controller, which knows of its own cluster.
        bytes[1806] = u8::from(self.controller_type == ControllerType::Discovery);
        bytes
    }
}

/// Identify Namespace (NVM section 4.1.5.1): one LBA format without metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// NSZE and NCAP: logical blocks that it has.
    pub blocks: u64,
    /// NUSE: of which take space.
    pub used_blocks: u64,
    /// LBADS: the size of a logical block, as a power of two.
    pub block_power: u8,
    /// NSFEAT: bit 0 thin, bit 4 the optimal sizes below are there.
    pub features: u8,
    /// NMIC: bit 0 when several controllers have it.
    pub is_shared: bool,
    /// RESCAP: kinds of reservations.
    pub reservations: u8,
    /// DLFEAT: bits 2:0 what deallocated blocks read as (1: zeros), bit 3 Write Zeroes deallocates.
    pub deallocated: u8,
    /// NACWU: blocks of an atomic compare and write, 0's based.
    pub compare_and_write: u16,
    /// NPWG, NPWA, NPDG and NPDA: blocks that writes and deallocations should be and begin at a multiple of; 1 for any.
    pub preferred_blocks: u16,
    /// ANAGRPID.
    pub access_group: u32,
    /// NSATTR bit 0: it takes no writes.
    pub is_read_only: bool,
    /// NGUID.
    pub nguid: [u8; 16],
}

impl Namespace {
    /// The structure.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; IDENTIFY_SIZE];
        put_at(&mut bytes, 0, &self.blocks.to_le_bytes());
        put_at(&mut bytes, 8, &self.blocks.to_le_bytes());
        put_at(&mut bytes, 16, &self.used_blocks.to_le_bytes());
        bytes[24] = self.features;
        (bytes[30], bytes[31]) = (u8::from(self.is_shared), self.reservations);
        bytes[33] = self.deallocated;
        // NACWU is used when NSFEAT bit 1 says so.
        if self.compare_and_write > 0 {
            bytes[24] |= 2;
            put_at(&mut bytes, 38, &self.compare_and_write.to_le_bytes());
        }
        let capacity = u128::from(self.blocks) << u32::from(self.block_power.min(63));
        put_at(&mut bytes, 48, &capacity.to_le_bytes());
        if self.features & 0x10 != 0 {
            let preferred = self.preferred_blocks.saturating_sub(1).to_le_bytes();
            [64, 66, 68, 70].into_iter().for_each(|at| put_at(&mut bytes, at, &preferred));
        }
        put_at(&mut bytes, 92, &self.access_group.to_le_bytes());
        bytes[99] = u8::from(self.is_read_only);
        put_at(&mut bytes, 104, &self.nguid);
        // LBAF0: no metadata, the size, best performance.
        bytes[130] = self.block_power;
        bytes
    }
}

impl Namespace {
    /// What it has whatever its command set (CNS 08h, Base section 5.17.2.8).
    #[must_use]
    pub fn independent(&self) -> Vec<u8> {
        let mut bytes = vec![0; IDENTIFY_SIZE];
        // NSFEAT has other bits here, and none of ours.
        (bytes[1], bytes[2]) = (u8::from(self.is_shared), self.reservations);
        put_at(&mut bytes, 4, &self.access_group.to_le_bytes());
        // NSTAT: it is ready.
        (bytes[8], bytes[14]) = (u8::from(self.is_read_only), 1);
        bytes
    }
}

/// What the controller has of the NVM command set (NVM section 4.1.5.2): limits as powers of two of 4 KiB for Verify
/// and Write Zeroes, and ranges of Dataset Management.
#[must_use]
pub fn set_controller(verify_power: u8, zeroes_power: u8, ranges: u8) -> Vec<u8> {
    let mut bytes = vec![0; IDENTIFY_SIZE];
    (bytes[0], bytes[1], bytes[3]) = (verify_power, zeroes_power, ranges);
    bytes
}

/// Namespace Identification Descriptor list (Base section 5.17.2.3): NGUID, UUID, and that it has the NVM command set.
#[must_use]
pub fn descriptors(nguid: &[u8; 16], uuid: &[u8; 16]) -> Vec<u8> {
    let (mut bytes, mut at) = (vec![0; IDENTIFY_SIZE], 0);
    for (kind, name) in [(2, &nguid[..]), (3, &uuid[..]), (4, &[0][..])] {
        (bytes[at], bytes[at + 1]) = (kind, name.len() as u8);
        put_at(&mut bytes, at + 4, name);
        at += 4 + name.len();
    }
    bytes
}

/// Active Namespace ID list (Base section 5.17.2.2): of `namespaces`, in ascending order, the first 1024 above `after`.
#[must_use]
pub fn namespace_list(namespaces: impl IntoIterator<Item = u32>, after: u32) -> Vec<u8> {
    let mut bytes = vec![0; IDENTIFY_SIZE];
    let listed = namespaces.into_iter().filter(|namespace| *namespace > after).take(IDENTIFY_SIZE / 4);
    for (index, namespace) in listed.enumerate() {
        put_at(&mut bytes, index * 4, &namespace.to_le_bytes());
    }
    bytes
}

/// Text in ASCII, with spaces behind it (Base section 1.4.1); other characters become `?`.
fn put_text(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (byte, character) in field.iter_mut().zip(text.chars()) {
        *byte = if character.is_ascii_graphic() || character == ' ' { character as u8 } else { b'?' };
    }
}
