//! Volumes' names as those of subsystems (Base section 4.5), and what names a volume for ever.

use azekura_frontend::Nexus;

/// What the names of all subsystems with a volume begin with.
pub const PREFIX: &str = "nqn.2026-01.io.azekura:";
/// The name of every discovery subsystem (Base section 4.5).
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The subsystem of the volume `name`; `None` when its name would be too long.
#[must_use]
pub fn subsystem_name(name: &str) -> Option<String> {
    let subsystem = format!("{PREFIX}{name}");
    (subsystem.len() <= crate::command::fabrics::NAME_MAX && !name.is_empty()).then_some(subsystem)
}

/// The volume of a subsystem's name; `None` when it names none of this cluster's.
#[must_use]
pub fn volume_name(subsystem: &str) -> Option<&str> {
    subsystem.strip_prefix(PREFIX).filter(|name| !name.is_empty())
}

/// A host, as it names itself to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// HOSTNQN.
    pub name: String,
    /// HOSTID.
    pub id: [u8; 16],
}

impl Host {
    /// What is the same for all controllers that this host has of a subsystem.
    #[must_use]
    pub fn family(&self, subsystem: &str) -> Nexus {
        let id = u128::from_be_bytes(self.id);
        format!("nvme {} {id:032x} {subsystem}", self.name).into()
    }
}

/// The queues of a controller, by the number of the controller in its process.
#[must_use]
pub fn party(number: u64) -> Nexus {
    format!("nvme controller {number}").into()
}

/// What names a volume for ever, and no other one of any cluster: made of the cluster's number, which is random, and of
/// the volume's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The volume in it.
    pub volume: u64,
}

impl Identity {
    fn mixed(self) -> u128 {
        self.cluster ^ u128::from(self.volume)
    }

    /// The serial number of the volume's subsystem.
    #[must_use]
    pub fn serial(self) -> String {
        format!("{:016x}", self.mixed() as u64)
    }

    /// UUID, version 8 (RFC 9562 section 5.8).
    #[must_use]
    pub fn uuid(self) -> [u8; 16] {
        let mut bytes = self.mixed().to_be_bytes();
        bytes[6] = 0x80 | bytes[6] & 0xf;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        bytes
    }

    /// NGUID (Base section 4.5.1): the volume, a locally administered company identifier, and the cluster.
    #[must_use]
    pub fn nguid(self) -> [u8; 16] {
        let (mut bytes, mixed) = ([0; 16], self.mixed().to_be_bytes());
        bytes[..8].copy_from_slice(&mixed[8..]);
        bytes[8..11].copy_from_slice(&[0x02, b'A', b'Z']);
        bytes[11..].copy_from_slice(&mixed[3..8]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subsystem_names_its_volume() {
        let name = subsystem_name("vm-1.disk@monday").expect("it is short");
        assert_eq!(name, "nqn.2026-01.io.azekura:vm-1.disk@monday");
        assert_eq!(volume_name(&name), Some("vm-1.disk@monday"));
        assert_eq!(volume_name("nqn.2026-01.io.azekura:accounts/vm7"), Some("accounts/vm7"));
        assert_eq!((subsystem_name(&"a".repeat(201)), subsystem_name("")), (None, None));
        for none in ["", DISCOVERY, PREFIX, "nqn.2026-01.io.other:a"] {
            assert_eq!(volume_name(none), None, "{none}");
        }
    }

    #[test]
    fn names_of_volumes_are_those_of_no_other() {
        let of = |cluster, volume| Identity { cluster, volume };
        let cluster = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        let one = of(cluster, 1);
        assert_eq!(one.uuid(), 0x0123_4567_89ab_8def_8123_4567_89ab_cdee_u128.to_be_bytes());
        assert_eq!(one.nguid()[8..], [0x02, b'A', b'Z', 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(one.serial(), "0123456789abcdee");
        for other in [of(cluster, 2), of(cluster ^ 1 << 90, 1)] {
            assert!(one.uuid() != other.uuid() && one.nguid() != other.nguid());
        }
    }
}
