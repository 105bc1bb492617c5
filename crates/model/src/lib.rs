//! The cluster's configuration as a value: its records, the names of their keys, and what follows from them.
//!
//! Nothing here does I/O: no sockets, no clock, no randomness, no async runtime. `azekura-meta` keeps these records on
//! a configuration server, `azekura-plans` says what the leader changes next, and the simulator does both in memory.
//!
//! - [`Model`]: the whole cluster as one value.
//! - [`transitions`]: how it changes, as functions from [`Records`] to a [`Txn`].
//! - [`history`]: whether a configuration continues what a node has seen of it.
//! - [`Memory`]: executes those changes without a server.

mod attachments;
mod audit;
mod authorities;
mod class_home;
mod cluster;
mod data_keys;
mod device_view;
mod endpoints;
mod error;
mod grants;
pub mod history;
mod idempotency;
mod key_value;
mod keys;
mod layer_ends;
mod members;
mod memory;
mod model;
mod own_groups;
mod projects;
mod read;
mod records;
mod removal;
mod reservations;
mod restored;
mod scrubs;
mod snapshots;
mod targets;
pub mod transitions;
mod txn;
mod usage;
mod zero_is_none;

pub use attachments::{
    AttachWish, AttachmentRecord, AttachmentsRecord, Ending, HOST_PATHS, InTheWay, VOLUME_ATTACHMENTS_MAX, VolumeAccess,
};
pub use audit::{AUDIT_PREFIX, AUDIT_RECORDS_MAX, AuditProof, AuditRecord, audit_key, audit_time};
pub use authorities::AuthorityRecord;
pub use azekura_base::{AckRule, Bounds, DEFAULT_PROJECT, GrantId, Needs, Role, SecretHash, project_of};
pub use class_home::{CLASS_HOMES, ClassHome, OWN_GROUPS};
pub use cluster::ClusterRecord;
pub use data_keys::{
    CSI_KEYS, CSI_PROVIDER, DataKeyRecord, ENCRYPTION, FILE_PROVIDER, FormerKeys, KEY_GENERATIONS, KEY_PROVIDERS,
    WrappedKey, Wrapping,
};
pub use device_view::DeviceView;
pub use endpoints::Endpoint;
pub use error::{EtcdError, Kind, MetaError};
pub use grants::{ChapRecord, GrantKind, GrantRecord, HOSTS, HostRecord, KEY_VOLUMES};
pub use idempotency::{
    IDEMPOTENCY_PREFIX, IDEMPOTENCY_RECORDS_MAX, IDEMPOTENT_ANSWER_BYTES_MAX, IdempotencyRecord, KeptAnswer,
    idempotency_end, idempotency_keys,
};
pub use key_value::{Change, KeyValue};
pub use keys::{Key, PREFIX};
pub use layer_ends::{LayerEnd, LayerHolders};
pub use members::{
    AliveRecord, COMPARE_AND_WRITE, DeviceFailure, DeviceRecord, DeviceState, FailureKind, LOGICAL_BLOCKS, NodeRecord,
    ShutOut, UNDERSTOOD,
};
pub use memory::Memory;
pub use model::{Model, RecordMap, Versioned, group_of};
pub use own_groups::{class_shown, is_own, own_name};
pub use projects::{PROJECTS, ProjectQuota, ProjectRecord, ProjectUse};
pub use read::{Found, Gathered, Halt, Outcome, Records, Step, check_bounds};
pub use records::{
    ClassRecord, FailureDomain, GroupPlan, GroupRecord, IO_TIMEOUT_DEFAULT_SECONDS, LayerRecord, LayerState,
    LeaderRecord, SettingsRecord, Unknown, VolumeRecord,
};
pub use removal::RemovalStep;
pub use reservations::{
    Access, CommandKind, Heeding, Hex64, Notice, NoticeKind, REGISTRANTS_MAX, RESERVATION_CHANGES_KEPT, RESERVATIONS,
    Registrant, RegistrantName, Reservation, ReservationChange, ReservationCommand, ReservationKind,
    ReservationOutcome, ReservationStatus, ReservationsRecord, ReservationsView, Rights, access,
};
pub use restored::{ClosedRecord, DoubtRecord, HeldRecord, HoldingsRecord, RestoredRecord};
pub use scrubs::{BlockFlaw, FOUND_BLOCKS_MAX, FoundBlockRecord, ScrubRecord, ScrubTimes};
pub use snapshots::{CutRecord, ProtectionRecord, SnapshotOrigin, SnapshotRecord, Thinning, VOLUME_SNAPSHOTS_MAX};
pub use targets::{
    ISCSI_NAME_MAX, ISCSI_PREFIX, ISCSI_UNITS_PREFIX, TARGETS, TargetRecord, iscsi_name, units_iscsi_name,
};
pub use txn::{Condition, Txn, Write, encode};
pub use usage::named;
