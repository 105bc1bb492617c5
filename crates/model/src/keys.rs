//! The names of the keys, and back.

use azekura_base::{DeviceId, GrantId, KeyId, LayerId, NodeId, PgId, VolumeId};

/// Every key of the cluster starts with this.
pub const PREFIX: &str = "/azekura/v1/";

/// A key of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The cluster's identity.
    Cluster,
    /// The cluster's settings.
    Settings,
    /// A counter of ids: its value is the next id.
    Counter(&'a str),
    /// The node that leads the control plane; ends with its lease.
    Leader,
    /// A node.
    Node(NodeId),
    /// A node that is alive; ends with its lease.
    Alive(NodeId),
    /// A device.
    Device(DeviceId),
    /// A storage class, by name.
    Class(&'a str),
    /// A placement group.
    Group(PgId),
    /// A volume, by name: `NAME`, or `PROJECT/NAME`.
    Volume(&'a str),
    /// A volume's attachments.
    Attachments(VolumeId),
    /// A volume's reservations.
    Reservations(VolumeId),
    /// A layer.
    Layer(LayerId),
    /// A volume's snapshot, by name.
    Snapshot(VolumeId, &'a str),
    /// A device's confirmation that it has nothing of a deleted or merging layer any more.
    LayerDropped(LayerId, DeviceId),
    /// What a node has against the configuration, by the identity of its data folder.
    Doubt(&'a str),
    /// What a device holds, said after the configuration was restored.
    Holdings(DeviceId),
    /// A grant.
    Grant(GrantId),
    /// A certificate authority.
    Authority(u32),
    /// A data key of encrypted volumes.
    DataKey(KeyId),
    /// A project, by name.
    Project(&'a str),
    /// A target of several logical units, by name.
    Target(&'a str),
}

impl Key<'_> {
    /// Reads a key back; `None`: not one that this version knows.
    #[must_use]
    pub fn parse(key: &[u8]) -> Option<Key<'_>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
        let Some((kind, name)) = rest.split_once('/') else {
            return match rest {
                "cluster" => Some(Key::Cluster),
                "settings" => Some(Key::Settings),
                "leader" => Some(Key::Leader),
                _ => None,
            };
        };
        Some(match kind {
            "counters" => Key::Counter(name),
            "nodes" => Key::Node(NodeId(number(name)?)),
            "alive" => Key::Alive(NodeId(number(name)?)),
            "devices" => Key::Device(DeviceId(number(name)?)),
            "classes" => Key::Class(name),
            "groups" => Key::Group(PgId(number(name)?)),
            "volumes" => Key::Volume(name),
            "doubts" => Key::Doubt(name),
            "holdings" => Key::Holdings(DeviceId(number(name)?)),
            "grants" => Key::Grant(name.parse().ok()?),
            "authorities" => Key::Authority(number(name)?),
            "keys" => Key::DataKey(KeyId(number(name)?)),
            "projects" => Key::Project(name),
            "targets" => Key::Target(name),
            "attachments" => Key::Attachments(VolumeId(number(name)?)),
            "reservations" => Key::Reservations(VolumeId(number(name)?)),
            "snapshots" => {
                let (volume, name) = name.split_once('/')?;
                Key::Snapshot(VolumeId(number(volume)?), name)
            }
            "layers" => match name.split_once('/') {
                None => Key::Layer(LayerId(number(name)?)),
                Some((layer, rest)) => {
                    let device = rest.strip_prefix("dropped/")?;
                    Key::LayerDropped(LayerId(number(layer)?), DeviceId(number(device)?))
                }
            },
            _ => return None,
        })
    }
}

/// A decimal number in its one spelling, so that two keys can't name one record.
fn number<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(PREFIX)?;
        match self {
            Key::Cluster => f.write_str("cluster"),
            Key::Settings => f.write_str("settings"),
            Key::Counter(name) => write!(f, "counters/{name}"),
            Key::Leader => f.write_str("leader"),
            Key::Node(id) => write!(f, "nodes/{id}"),
            Key::Alive(id) => write!(f, "alive/{id}"),
            Key::Device(id) => write!(f, "devices/{id}"),
            Key::Class(name) => write!(f, "classes/{name}"),
            Key::Group(id) => write!(f, "groups/{id}"),
            Key::Volume(name) => write!(f, "volumes/{name}"),
            Key::Attachments(id) => write!(f, "attachments/{id}"),
            Key::Reservations(id) => write!(f, "reservations/{id}"),
            Key::Doubt(node) => write!(f, "doubts/{node}"),
            Key::Holdings(id) => write!(f, "holdings/{id}"),
            Key::Grant(id) => write!(f, "grants/{id}"),
            Key::Authority(number) => write!(f, "authorities/{number}"),
            Key::DataKey(id) => write!(f, "keys/{id}"),
            Key::Project(name) => write!(f, "projects/{name}"),
            Key::Target(name) => write!(f, "targets/{name}"),
            Key::Snapshot(volume, name) => write!(f, "snapshots/{volume}/{name}"),
            Key::Layer(id) => write!(f, "layers/{id}"),
            Key::LayerDropped(layer, device) => write!(f, "layers/{layer}/dropped/{device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_read_back() {
        let keys = [
            Key::Cluster,
            Key::Settings,
            Key::Counter("volumes"),
            Key::Leader,
            Key::Node(NodeId(1)),
            Key::Alive(NodeId(2)),
            Key::Device(DeviceId(30)),
            Key::Class("default"),
            Key::Group(PgId(63)),
            Key::Volume("vol1"),
            Key::Volume("accounts/vol1"),
            Key::Project("accounts"),
            Key::Target("vmware"),
            Key::Target("accounts/vmware"),
            Key::Attachments(VolumeId(4)),
            Key::Reservations(VolumeId(4)),
            Key::Snapshot(VolumeId(4), "before-upgrade"),
            Key::Layer(LayerId(9)),
            Key::LayerDropped(LayerId(9), DeviceId(3)),
            Key::Doubt("0a1b"),
            Key::Holdings(DeviceId(3)),
            Key::Grant(GrantId(u64::MAX)),
            Key::DataKey(KeyId(u64::MAX)),
        ];
        for key in keys {
            assert_eq!(Key::parse(key.to_string().as_bytes()), Some(key));
        }
        for bad in [
            "/azekura/v1/",
            "/azekura/v1/nodes/01",
            "/azekura/v1/nodes/+1",
            "/azekura/v1/layers/1/x",
            "/azekura/v1/snapshots/x",
            "/azekura/v1/grants/1",
            "/a",
        ] {
            assert_eq!(Key::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..40), tail in "[a-z0-9/]{0,30}") {
            let _ = Key::parse(&bytes);
            let key = format!("{PREFIX}{tail}");
            if let Some(parsed) = Key::parse(key.as_bytes()) {
                prop_assert_eq!(parsed.to_string(), key.clone());
            }
        }
    }
}
