//! What can go wrong with the cluster's configuration, told so that a person knows what to do.

use std::net::SocketAddr;

use azekura_base::{KeyId, PeerKey, PgId, Size};

use crate::projects::QuotaKind;
use crate::{ClassHome, FailureDomain, named};

mod etcd;
mod hint;

pub use etcd::EtcdError;

/// A sum of sizes as people read it.
fn human(bytes: u128) -> Size {
    Size::new(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Where devices are, if not everywhere, for people.
fn at(home: Option<&ClassHome>) -> String {
    home.map_or_else(String::new, |home| format!(" in {home}"))
}

/// The first of some groups, for people.
fn named_groups(groups: &[PgId]) -> String {
    let named: Vec<String> = groups.iter().take(GROUPS_NAMED_MAX).map(ToString::to_string).collect();
    let more = groups.len().saturating_sub(GROUPS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let kind = if groups.len() == 1 { "placement group" } else { "placement groups" };
    format!("{kind} {}{more}", named.join(", "))
}

/// What a class is used by, for people.
fn class_users(volumes: &[String], layers: usize) -> String {
    match volumes {
        [] => format!("{layers} layers of deleted volumes and snapshots are still being given back"),
        [only] => format!("volume {only} uses it"),
        all => format!("{} volumes use it: {}", all.len(), named(all.iter().map(String::as_str))),
    }
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
    /// A snapshot.
    Snapshot,
    /// A grant.
    Grant,
    /// A project.
    Project,
    /// A target of several logical units.
    Target,
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
            Kind::Snapshot => "snapshot",
            Kind::Grant => "grant",
            Kind::Project => "project",
            Kind::Target => "target",
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
        "the volume would need {} of the devices{} when full; volumes already promise {} of the {} allowed \
         ({ratio} × the {} that can be stored on them)",
        human(*requested_bytes), at(home.as_deref()), human(*promised_bytes), human(*limit_bytes), human(*capacity_bytes)
    )]
    Overcommit {
        /// Size times copies of what was asked for (growth, for a resize).
        requested_bytes: u128,
        /// The same sum over all volumes.
        promised_bytes: u128,
        /// Limit of that sum.
        limit_bytes: u128,
        /// Sum of what can be stored on the devices.
        capacity_bytes: u128,
        /// The class's ratio.
        ratio: f64,
        /// The class's home, where too much would be promised of the devices there: one copy of each volume.
        home: Option<Box<ClassHome>>,
    },
    /// Making a volume smaller.
    #[error(
        "'{name}' has {}; making it smaller ({}) would cut off data and is refused",
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
    /// Every copy of some of the class's groups was given up, while it had no volumes.
    #[error(
        "no device has copies of {groups} placement groups of the storage class '{class}' any more: all were given up"
    )]
    GroupsGivenUp {
        /// The class.
        class: String,
        /// How many groups.
        groups: usize,
    },
    /// The configuration server serves another cluster.
    #[error("this data folder belongs to cluster {expected}, but the configuration server serves cluster {found}")]
    WrongCluster {
        /// Id in the data folder.
        expected: String,
        /// Id on the server.
        found: String,
    },
    /// The cluster has something that this version would take for something else.
    #[error("the cluster uses what this version of azekura does not understand: {what}")]
    NotUnderstood {
        /// Words of what it requires.
        what: String,
    },
    /// The configuration server is empty.
    #[error("this data folder belongs to cluster {expected}, but the configuration server holds no cluster")]
    ClusterMissing {
        /// Id in the data folder.
        expected: String,
    },
    /// The configuration is not the continuation of what was seen of it.
    #[error("the configuration went back: {reason}")]
    WentBack {
        /// What shows it.
        reason: String,
    },
    /// Another node has found that the configuration went back.
    #[error("node {node} has found that the configuration went back: {reason}")]
    Doubted {
        /// The node.
        node: String,
        /// What has shown it.
        reason: String,
    },
    /// Somebody says that the configuration was restored, and is not ready.
    #[error(
        "the configuration is being changed after it was restored ('azekura cluster restored'), and that is not finished"
    )]
    RestoreUnderWay,
    /// The configuration was restored while the node ran.
    #[error("the configuration was restored from a backup while this node was running")]
    NewLife,
    /// Nothing is there that could be restored.
    #[error("there is nothing to go on from: {reason}")]
    NothingRestored {
        /// Why.
        reason: String,
    },
    /// Nodes are running.
    #[error("nodes are running with this configuration: {nodes}")]
    NodesRunning {
        /// Their names.
        nodes: String,
    },
    /// Two nodes, or devices of a node, with one name.
    #[error("{kind} '{name}' is another one already (it has another identity)")]
    NameTaken {
        /// What.
        kind: Kind,
        /// The name.
        name: String,
    },
    /// Something that changes the configuration, while that does not answer.
    #[error("{what} waits for the configuration, which does not answer: {reason}")]
    NotNow {
        /// What.
        what: String,
        /// Why it does not answer.
        reason: String,
    },
    /// It has left the cluster for good.
    #[error("{kind} '{name}' was removed from the cluster")]
    Removed {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// A node that does not prove who it is.
    #[error(
        "the key of this data folder ({key}) is none of node {node}'s, as its record in the configuration has them"
    )]
    KeyNotListed {
        /// The node.
        node: String,
        /// The key.
        key: PeerKey,
    },
    /// A new node comes without a join token.
    #[error(
        "this cluster takes a new node ({name}) with a join token only: nodes prove who they are, and the API asks for grants"
    )]
    NotInvited {
        /// Its name.
        name: String,
    },
    /// This node runs, and was shut out.
    #[error("this node ({node}) was shut out of the cluster by {by} ({since})")]
    ShutOut {
        /// The node.
        node: String,
        /// By whom.
        by: String,
        /// When, RFC 3339.
        since: String,
    },
    /// Another process has started as this node.
    #[error("another process has started as this node ({node}) and is reached at {address}: this one ends")]
    Replaced {
        /// The node.
        node: String,
        /// Where other nodes reach that process.
        address: SocketAddr,
    },
    /// Another process shows that this node lives.
    #[error(
        "node {node} runs already: a process that other nodes reach at {address} gives signs of life, and this one was started for {wanted}"
    )]
    RunsElsewhere {
        /// The node.
        node: String,
        /// Where other nodes reach that process.
        address: SocketAddr,
        /// Where they would reach this one.
        wanted: SocketAddr,
    },
    /// A key names one node.
    #[error("the key of this data folder ({key}) is node {node}'s")]
    KeyTaken {
        /// That node.
        node: String,
        /// The key.
        key: PeerKey,
    },
    /// A node has as many keys as it may, or would have none.
    #[error("the keys of node {node} stay as they are: {reason}")]
    KeysRefused {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// Something that the cluster can't do without now.
    #[error("{what} is not removed: {reason}")]
    RemovalRefused {
        /// The node or device.
        what: String,
        /// Why.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// A class with volumes, or with data of volumes that is still to be given back.
    #[error("storage class '{class}' is not deleted: {}", class_users(volumes, *layers))]
    ClassInUse {
        /// The class.
        class: String,
        /// Its volumes.
        volumes: Vec<String>,
        /// Its layers: those of volumes and snapshots, also of deleted ones.
        layers: usize,
    },
    /// Several devices of this name.
    #[error("{} devices have the name '{name}': {}", devices.len(), named(devices.iter().map(String::as_str)))]
    Ambiguous {
        /// The name.
        name: String,
        /// Them, as NODE/NAME.
        devices: Vec<String>,
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
    /// Groups went on with writes while a snapshot was to be made.
    #[error("no snapshot of {volumes} was made: {} did not stop within {seconds} s", named_groups(groups))]
    NotStopped {
        /// The volumes.
        volumes: String,
        /// Groups that did not confirm.
        groups: Vec<PgId>,
        /// How long they had.
        seconds: u64,
    },
    /// A snapshot was called off while it was being made.
    #[error(
        "no snapshot of volume '{volume}' was made: it took too long and was called off, or the volume is being deleted"
    )]
    CutEnded {
        /// The volume.
        volume: String,
    },
    /// A volume has as many snapshots as it may.
    #[error("volume '{volume}' has {count} snapshots, which is as many as may be")]
    TooManySnapshots {
        /// The volume.
        volume: String,
        /// Their number.
        count: usize,
    },
    /// More volumes than one transaction can hold.
    #[error("a snapshot of {count} volumes at one instant can't be made: {most} is the most")]
    TooManyVolumes {
        /// Those asked for.
        count: usize,
        /// Those possible.
        most: usize,
    },
    /// A volume has users, who would not notice what is done to it, or be cut off.
    #[error("volume '{volume}' is attached, so it is not {what}")]
    InUse {
        /// The volume.
        volume: String,
        /// What was to be done to it.
        what: &'static str,
    },
    /// What lies behind a volume's new end could not be taken away.
    #[error("volume '{volume}' is not made smaller: what lies behind its new end can't be taken away: {reason}")]
    NotTrimmed {
        /// The volume.
        volume: String,
        /// Why.
        reason: String,
    },
    /// A volume's snapshots would be deleted with it.
    #[error(
        "volume '{volume}' has {count} snapshot{}, which would be deleted with it, so it is not deleted",
        if *count == 1 { "" } else { "s" }
    )]
    HasSnapshots {
        /// The volume.
        volume: String,
        /// How many it has.
        count: usize,
    },
    /// No snapshot is that old.
    #[error("volume '{volume}' has no snapshot of {wanted} or earlier{}", oldest.as_deref().map_or(String::new(), |oldest| format!("; its oldest is of {oldest}")))]
    NoSnapshotThen {
        /// The volume.
        volume: String,
        /// The time asked for.
        wanted: String,
        /// The oldest snapshot's.
        oldest: Option<String>,
    },
    /// A text that names neither a snapshot nor a time.
    #[error("volume '{volume}' has no snapshot '{wanted}', and that is no time either")]
    NoSuchSnapshot {
        /// The volume.
        volume: String,
        /// What was asked for.
        wanted: String,
    },
    /// A protection that makes no sense.
    #[error("the volume's protection is refused: {reason}")]
    InvalidProtection {
        /// What is wrong with it.
        reason: String,
    },
    /// Limits that no volume can have.
    #[error("the volume's limits are refused: {reason}")]
    InvalidLimits {
        /// What is wrong with them.
        reason: String,
    },
    /// A grant that nobody can have.
    #[error("the grant '{name}' is refused: {reason}")]
    InvalidGrant {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
        /// What to do about it, where there is more to say.
        hint: Option<String>,
    },
    /// A project that can't be so.
    #[error("the project '{name}' is refused: {reason}")]
    InvalidProject {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A target that can't be so.
    #[error("the target '{name}' is refused: {reason}")]
    InvalidTarget {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
        /// What to do about it, where there is more to say.
        hint: Option<String>,
    },
    /// A project with something in it.
    #[error("the project '{project}' is not deleted: it has {what}")]
    ProjectInUse {
        /// The project.
        project: String,
        /// What is in it, for people.
        what: String,
    },
    /// More than a project may have.
    #[error(
        "the project '{project}' may have {}, has {}, and would have {} more",
        kind.amount(*quota), kind.amount(*used), kind.amount(*more)
    )]
    Quota {
        /// The project.
        project: String,
        /// Of what.
        kind: QuotaKind,
        /// As much as it may have.
        quota: u64,
        /// What it has.
        used: u64,
        /// What was asked for.
        more: u64,
    },
    /// A clone that would leave its project.
    #[error("the clone '{name}' of '{volume}' is not made: a clone is of its source's project")]
    OtherProject {
        /// The source.
        volume: String,
        /// The clone.
        name: String,
    },
    /// The volumes would promise more than is allowed, told to somebody who may not know what others have.
    #[error("the cluster has no room for such a volume")]
    Full,
    /// A volume or a class with logical blocks that older nodes would take for others.
    #[error("logical blocks of {bytes} bytes are not known to these nodes, which run an older version: {nodes}")]
    UnknownLogicalBlock {
        /// What was asked for.
        bytes: u32,
        /// The nodes, by name.
        nodes: String,
    },
    /// A volume that can't be encrypted.
    #[error("the volume is not made: {reason}")]
    NotEncrypted {
        /// Why.
        reason: String,
    },
    /// A data key that can't be wrapped anew.
    #[error("the key is not wrapped anew: {reason}")]
    NotRewrapped {
        /// Why.
        reason: String,
    },
    /// A volume's data key that can't have another one in its place.
    #[error("the volume's data key is not rotated: {reason}")]
    NotRotated {
        /// Why.
        reason: String,
    },
    /// A data key that changed while a clone's was made of it.
    #[error("the data key {key} has changed while one for the clone was made of it")]
    KeyChanged {
        /// Its number.
        key: KeyId,
    },
    /// A volume that nobody can reserve.
    #[error(
        "the volume '{volume}' can't be reserved: these nodes run a version that passes reservations over: {nodes}"
    )]
    NotReserved {
        /// Its name.
        volume: String,
        /// The nodes, by name.
        nodes: String,
    },
    /// The process ended, or a part of it.
    #[error("it was interrupted: {reason}")]
    Interrupted {
        /// By what.
        reason: String,
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
