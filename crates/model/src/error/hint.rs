//! What to do about an error.

use super::{Kind, MetaError};
use crate::FailureDomain;

/// The way on after the configuration was restored, for people.
const RESTORED: &str = "'azekura cluster restored' (docs/operations/configuration-backup.md)";

/// The way on for a node whose key is none of its record's.
fn key_not_listed(node: &str) -> String {
    format!(
        "put identity/node.key back from a backup of the folder. If it was lost, and this is {node}'s machine, start it once \
         with --replace-key, which takes its other keys from the record. If {node} was shut out ('azekura node list'), whoever \
         lets it in names this key: azekura node let-in {node} --key KEY"
    )
}

fn let_in(node: &str) -> String {
    format!(
        "its machine is not trusted any more. Install it anew, move identity/node.key away, start the node, and let it in with \
         the key that it names (azekura node let-in {node} --key KEY); or do without it: azekura node remove {node} --lost"
    )
}

/// What to do about a name that something has.
fn another_name(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Grant => format!(
            "choose another name, or end that one first: 'azekura token revoke {name}', 'azekura key revoke {name}' or \
             'azekura host remove {name}', whichever it is"
        ),
        _ => format!("choose another name, or delete the existing {kind} first"),
    }
}

/// What shows what there is.
fn list_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Grant => {
            "'azekura token list' shows all tokens, 'azekura key list' all keys, 'azekura host list' all hosts"
        }
        Kind::Target => "'azekura target list' shows all targets, 'azekura target create' makes one",
        Kind::Project => "'azekura project list' shows all projects, 'azekura project create' makes one",
        _ => "'azekura snapshot list' shows all snapshots",
    }
}

impl MetaError {
    /// What to do about it, when there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        use MetaError as E;
        Some(match self {
            E::Etcd(error) => return error.hint().map(Into::into),
            E::Exists { kind, name } => another_name(*kind, name),
            E::NotFound { kind: Kind::Volume, .. } => "'azekura volume list' shows all volumes".into(),
            E::NotFound { kind: Kind::Class, .. } => {
                "'azekura class list' shows all classes, 'azekura class create' makes one".into()
            }
            E::NotFound { kind: Kind::Node, .. } => "'azekura node list' shows all nodes".into(),
            E::NotFound { kind: Kind::Device, .. } => {
                "'azekura device list' shows all devices; name one by its number, or as NODE/NAME".into()
            }
            E::NotFound { kind: kind @ (Kind::Snapshot | Kind::Grant | Kind::Project | Kind::Target), .. } => list_of(*kind).into(),
            E::KeyChanged { .. } => "try again: keys change while they are rotated or wrapped anew".into(),
            E::InvalidName { .. } => {
                "use 1 to 127 letters, digits, '.', '_' or '-', beginning with a letter or digit".into()
            }
            E::UnknownLogicalBlock { .. } => {
                "update these nodes first, or make it with blocks of 512 bytes".into()
            }
            E::InvalidSize { .. } => "give a multiple of 4096 bytes up to 64 TiB, for example 10GiB".into(),
            E::InvalidClass { .. } | E::InvalidSetting { .. } | E::InvalidProject { .. } | E::KeysRefused { .. } | E::NotFound { .. } | E::NotEncrypted { .. } | E::NotRewrapped { .. } | E::NotRotated { .. } => return None,
            E::InvalidGrant { hint, .. } | E::InvalidTarget { hint, .. } => return hint.clone(),
            E::DrainRefused { .. } => "add nodes or devices first, or delete volumes".into(),
            E::NotEnoughDevices { failure_domain, copies, .. } => match failure_domain {
                FailureDomain::Device => format!("add devices, or use a class with fewer than {copies} copies"),
                domain => format!(
                    "add {domain}s, or use a class with fewer than {copies} copies or a smaller failure domain than {domain}"
                ),
            },
            E::Overcommit { .. } => "add devices, delete volumes, or use a class with a larger overcommit ratio".into(),
            E::ShrinkRefused { .. } => "--shrink makes a volume smaller, and keeps a snapshot of what it was".into(),
            E::NotStopped { .. } => "'azekura status' tells what is wrong with the groups; try again when it is well".into(),
            E::TooManySnapshots { volume, .. } => {
                format!("'azekura snapshot list {volume}' shows them, 'azekura snapshot delete' deletes one")
            }
            E::Quota { project, kind, .. } => format!(
                "delete some ('azekura project show {project}' tells what it has), or let an administrator raise the quota: azekura \
                 project set {project} --{}", kind.option()
            ),
            E::ProjectInUse { project, .. } => format!("delete and revoke what 'azekura project show {project}' tells of first"),
            E::OtherProject { volume, .. } => format!("name it as '{volume}' is named, with the same project before the '/' or with none"),
            E::Full => "delete volumes, or ask an administrator".into(),
            E::TooManyVolumes { .. } => "make snapshots of fewer volumes at once".into(),
            E::InUse { volume, what: "deleted" } => format!(
                "stop its clients first ('azekura volume show {volume}' tells where they are); --force deletes it under them"
            ),
            E::InUse { volume, .. } => format!(
                "unmount it and stop its clients first ('azekura volume show {volume}' tells where they are); --force cuts \
                 them off"
            ),
            E::HasSnapshots { volume, .. } => format!(
                "--snapshots deletes them, too; clones of it stay as they are. 'azekura snapshot list {volume}' shows them, \
                 'azekura volume clone {volume}@SNAPSHOT NAME' keeps one as a volume"
            ),
            E::NoSnapshotThen { volume, .. } | E::NoSuchSnapshot { volume, .. } => format!(
                "'azekura snapshot list {volume}' shows its snapshots; times are UTC, such as 14:03:20, \
                 2026-01-31T14:03:20Z or '10 minutes ago'"
            ),
            E::InvalidProtection { .. } => {
                "for example --every 10s --keep 1h --then 1h:24h,1d:30d: one every 10 s for an hour, then one an hour for a \
                 day, then one a day for a month"
                    .into()
            }
            E::InvalidLimits { .. } => {
                "for example --iops 1000 --bandwidth 100MiB --burst 10s; --off ends all limits".into()
            }
            E::NotTrimmed { .. } => {
                "the snapshot that was made holds all of it; look at 'azekura status', and try again".into()
            }
            E::Interrupted { .. } | E::CutEnded { .. } | E::NoGroups { .. } | E::Contended { .. } => "try again".into(),
            E::GroupsGivenUp { class, .. } => {
                format!("take another class, or 'azekura class delete {class}' and make it anew")
            }
            E::WrongCluster { .. } => {
                "start the node with its own cluster's servers (--config), or with a new data folder".into()
            }
            E::NotUnderstood { .. } => {
                "start the version that this node had before, or a later one (docs/operations/upgrades.md); nothing was changed"
                    .into()
            }
            E::ClusterMissing { .. } => format!(
                "check --config. If the configuration was lost: start no node yet, restore the newest backup, and then run \
                 {RESTORED}"
            ),
            E::WentBack { .. } | E::Doubted { .. } => format!(
                "check --config. If the configuration was restored from a backup: stop all nodes, and run {RESTORED}. No node \
                 serves before, because what an older configuration says of copies and of free numbers is wrong"
            ),
            E::RestoreUnderWay => format!("run {RESTORED} again, to its end"),
            E::NewLife => "start the node again".into(),
            E::NothingRestored { .. } => {
                "restore the newest backup first, or name the data folders of nodes with --data".into()
            }
            E::NodesRunning { .. } => "stop all nodes first".into(),
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
            E::NameTaken { kind: Kind::Node, name } => format!(
                "give this node another name (--name), or, if the machine that had the name has lost its data folder or will \
                 never come back, free the name with 'azekura node replace {name}' and start this node again"
            ),
            E::NameTaken { kind, .. } => format!("give this {kind} another name"),
            E::Removed { kind: Kind::Node, .. } => format!(
                "start it with an empty data folder to let it join as a new node, and move the former one away; if nobody has \
                 removed it, an older configuration was restored: keep the folder, and run {RESTORED}"
            ),
            E::Removed { .. } => "move its folder away; the node makes a new device in its place when it is started with \
                 --device-size"
                .into(),
            E::RemovalRefused { hint, .. } => hint.clone(),
            E::KeyNotListed { node, .. } => key_not_listed(node),
            E::ShutOut { node, .. } => let_in(node),
            E::Replaced { .. } | E::RunsElsewhere { .. } => TWO_FOLDERS.into(),
            E::NotInvited { name } => format!(
                "make one on a machine of the cluster (azekura token create {name} --join --api unix:DIR/api.sock), and start this node \
                 with --join https://NODE:7180 --token-file FILE; or start this node with --trusted-config, where only machines of \
                 the cluster reach the configuration servers"
            ),
            E::KeyTaken { node, .. } => format!("identity/node.key was copied from {node}'s folder: move it away, a new one is made"),
            E::NotNow { .. } => "what is attached already goes on; try again when etcd, or the node with the embedded server, runs".into(),
            E::ClassInUse { volumes, .. } if volumes.is_empty() => "that takes moments while all nodes run; try again".into(),
            E::ClassInUse { .. } => "delete the volumes first ('azekura volume delete NAME'); a volume can't change its class".into(),
            E::Ambiguous { devices, .. } => format!(
                "name it with its node, for example {}, or by its number ('azekura device list')",
                devices.first().map_or("NODE/NAME", String::as_str)
            ),
            E::NotReserved { .. } => "start these nodes with the version of the others, or remove them".into(),
            E::Broken { .. } => "repair or remove the record with etcdctl".into(),
        })
    }
}

/// Two processes with one identity.
const TWO_FOLDERS: &str = "one data folder is one node, and is used by one process at a time: of two folders, keep the one that the node \
                           has run with, and never start a copy of it; another machine joins with an empty folder. Where this is the \
                           node's only folder, end the other process first";
