//! What can go wrong with the cluster's configuration, told so that a person knows what to do.

use azekura_base::PgId;

use crate::client::EtcdError;
use crate::model::FailureDomain;
use crate::size::Size;

/// A sum of sizes as people read it.
fn human(bytes: u128) -> Size {
    Size::new(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// The first of some groups, for people.
fn named_groups(groups: &[PgId]) -> String {
    let named: Vec<String> = groups.iter().take(GROUPS_NAMED_MAX).map(ToString::to_string).collect();
    let more = groups.len().saturating_sub(GROUPS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let kind = if groups.len() == 1 { "placement group" } else { "placement groups" };
    format!("{kind} {}{more}", named.join(", "))
}

/// Groups that a message names.
const GROUPS_NAMED_MAX: usize = 8;

/// Kind of a named thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A volume.
    Volume,
    /// A storage class.
    Class,
    /// A node.
    Node,
    /// A device.
    Device,
    /// A placement group.
    Group,
    /// A layer.
    Layer,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Volume => "volume",
            Kind::Class => "storage class",
            Kind::Node => "node",
            Kind::Device => "device",
            Kind::Group => "placement group",
            Kind::Layer => "layer",
        })
    }
}

impl std::fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FailureDomain::Device => "device",
            FailureDomain::Host => "host",
            FailureDomain::Rack => "rack",
            FailureDomain::Site => "site",
        })
    }
}

/// Why an operation on the configuration failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// The configuration server.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Something of this name is there already.
    #[error("{kind} '{name}' exists already")]
    Exists {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Nothing of this name is there.
    #[error("there is no {kind} '{name}'")]
    NotFound {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// A name with characters that names can't have.
    #[error("'{name}' can't be the name of a {kind}: {reason}")]
    InvalidName {
        /// What.
        kind: Kind,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A size that a volume can't have.
    #[error("a volume can't have {}: {reason}", Size::new(*size_bytes).exact())]
    InvalidSize {
        /// The size.
        size_bytes: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A storage class that makes no sense.
    #[error("storage class '{name}' is refused: {reason}")]
    InvalidClass {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that makes no sense.
    #[error("the setting '{name}' is refused: {reason}")]
    InvalidSetting {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Devices that nothing can be moved away from.
    #[error("{what} can't be drained: {reason}")]
    DrainRefused {
        /// The device or node.
        what: String,
        /// Why.
        reason: String,
    },
    /// The copies can't be kept apart.
    #[error(
        "storage class '{class}' keeps {copies} copies on different {failure_domain}s, \
         but the cluster has usable devices on {found} {failure_domain}(s)"
    )]
    NotEnoughDevices {
        /// The class.
        class: String,
        /// Copies that it wants.
        copies: u32,
        /// What two copies must not share.
        failure_domain: FailureDomain,
        /// How many of those have usable devices.
        found: usize,
    },
    /// The volumes would promise more than the class allows.
    #[error(
        "the volume would need {} of the devices when full; volumes already promise {} of the {} allowed \
         ({ratio} × the devices' {})",
        human(*requested_bytes), human(*promised_bytes), human(*limit_bytes), human(*capacity_bytes)
    )]
    Overcommit {
        /// Size times copies of what was asked for (growth, for a resize).
        requested_bytes: u128,
        /// The same sum over all volumes.
        promised_bytes: u128,
        /// Limit of that sum.
        limit_bytes: u128,
        /// Sum of the devices' sizes.
        capacity_bytes: u128,
        /// The class's ratio.
        ratio: f64,
    },
    /// Making a volume smaller.
    #[error(
        "volume '{name}' has {}; making it smaller ({}) would cut off data and is refused",
        Size::new(*from_bytes).exact(), Size::new(*to_bytes).exact()
    )]
    ShrinkRefused {
        /// The volume.
        name: String,
        /// Its size.
        from_bytes: u64,
        /// The size asked for.
        to_bytes: u64,
    },
    /// The class's groups are not made yet.
    #[error("storage class '{class}' has no placement groups yet")]
    NoGroups {
        /// The class.
        class: String,
    },
    /// The configuration server serves another cluster.
    #[error("this data folder belongs to cluster {expected}, but the configuration server serves cluster {found}")]
    WrongCluster {
        /// Id in the data folder.
        expected: String,
        /// Id on the server.
        found: String,
    },
    /// The configuration server is empty.
    #[error("this data folder belongs to cluster {expected}, but the configuration server holds no cluster")]
    ClusterMissing {
        /// Id in the data folder.
        expected: String,
    },
    /// Two nodes, or devices of a node, with one name.
    #[error("{kind} '{name}' is another one already (it has another identity)")]
    NameTaken {
        /// What.
        kind: Kind,
        /// The name.
        name: String,
    },
    /// A record that can't be read.
    #[error("the record {key} is broken: {reason}")]
    Broken {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody has the volume.
    #[error("volume '{volume}' is attached to node {node} ({how})")]
    Attached {
        /// The volume.
        volume: String,
        /// The node that has it.
        node: String,
        /// Since when, and on whose behalf.
        how: String,
        /// Where it should have been attached.
        wanted: String,
    },
    /// A volume has as many attachments as it may.
    #[error("volume '{volume}' is attached to {count} nodes, which is as many as may be")]
    TooManyAttachments {
        /// The volume.
        volume: String,
        /// Their number.
        count: usize,
    },
    /// There is nothing to detach.
    #[error("volume '{volume}' is not attached to {}", node.as_deref().map_or("any node".to_owned(), |node| format!("node {node}")))]
    NotAttached {
        /// The volume.
        volume: String,
        /// The node that was named.
        node: Option<String>,
    },
    /// A node that is not there can't be given a volume.
    #[error("node {node} gives no sign of life")]
    NodeAbsent {
        /// The node.
        node: String,
    },
    /// Former users of a volume could not be kept out everywhere.
    #[error(
        "former users of volume '{volume}' are not kept out everywhere yet: {} did not confirm it in time",
        named_groups(groups)
    )]
    NotFenced {
        /// The volume.
        volume: String,
        /// Groups that did not confirm.
        groups: Vec<PgId>,
    },
    /// Others kept changing the same records.
    #[error("{what} did not succeed within {seconds} s: others changed the same records all the time")]
    Contended {
        /// The operation.
        what: String,
        /// How long it was tried.
        seconds: u64,
    },
}

impl MetaError {
    /// What to do about it, when there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        use MetaError as E;
        Some(match self {
            E::Etcd(EtcdError::Endpoint { .. }) => "give it as host:port, for example 127.0.0.1:2379".into(),
            E::Etcd(EtcdError::Unreachable { .. }) => {
                "check that etcd, or the node with the embedded server, runs and that the address is right".into()
            }
            E::Etcd(EtcdError::Uncertain { .. }) => "look whether the change was made, and try again if not".into(),
            E::Etcd(_) => return None,
            E::Exists { kind, .. } => format!("choose another name, or delete the existing {kind} first"),
            E::NotFound { kind: Kind::Volume, .. } => "'azekura volume list' shows all volumes".into(),
            E::NotFound { kind: Kind::Class, .. } => {
                "'azekura class list' shows all classes, 'azekura class create' makes one".into()
            }
            E::NotFound { kind: Kind::Node, .. } => "'azekura node list' shows all nodes".into(),
            E::NotFound { kind: Kind::Device, .. } => {
                "'azekura device list' shows all devices; name one by its number, or as NODE/NAME".into()
            }
            E::NotFound { .. } => return None,
            E::InvalidName { .. } => {
                "use 1 to 127 letters, digits, '.', '_' or '-', beginning with a letter or digit".into()
            }
            E::InvalidSize { .. } => "give a multiple of 4096 bytes up to 64 TiB, for example 10GiB".into(),
            E::InvalidClass { .. } | E::InvalidSetting { .. } => return None,
            E::DrainRefused { .. } => "add nodes or devices first, or delete volumes".into(),
            E::NotEnoughDevices { failure_domain, copies, .. } => match failure_domain {
                FailureDomain::Device => format!("add devices, or use a class with fewer than {copies} copies"),
                domain => format!(
                    "add {domain}s, or use a class with fewer than {copies} copies or a smaller failure domain than {domain}"
                ),
            },
            E::Overcommit { .. } => "add devices, delete volumes, or use a class with a larger overcommit ratio".into(),
            E::ShrinkRefused { .. } => "copy what you need to a new, smaller volume".into(),
            E::NoGroups { .. } | E::Contended { .. } => "try again".into(),
            E::WrongCluster { .. } => {
                "start the node with its own cluster's servers (--etcd), or with a new data folder".into()
            }
            E::ClusterMissing { .. } => {
                "check --etcd; if the configuration was lost, restore it from a backup before starting nodes".into()
            }
            E::Attached { volume, wanted, .. } => format!(
                "'azekura volume attach {volume} --node {wanted} --force' cuts that node off; where clients agree on \
                 who writes what, attach with --shared on every node"
            ),
            E::TooManyAttachments { volume, .. } => format!("'azekura volume detach {volume} --node NODE' ends one"),
            E::NotAttached { volume, .. } => format!("'azekura volume show {volume}' tells where it is attached"),
            E::NodeAbsent { .. } => "'azekura node list' shows which nodes are alive".into(),
            E::NotFenced { .. } => {
                "their attachments have ended; wait until 'azekura status' is well, then attach again".into()
            }
            E::NameTaken { kind, .. } => format!("give this {kind} another name"),
            E::Broken { .. } => "repair or remove the record with etcdctl".into(),
        })
    }
}
