//! The REST API as types: every request, query, answer and error, and at which path each is asked for.
//!
//! - [`endpoint`]: what can be asked, a type each: method, path, query, body, answer. The server routes by them and
//!   clients ask by them, so the two can't differ.
//! - [`ErrorBody`] and [`ErrorCode`]: how a request fails, and with which status.
//! - The other modules have the bodies. A `…View` is an answer; what is named by a verb is a request.
//! - [`OPENAPI`]: all of this as an OpenAPI 3.1 description, for other languages. A test makes it from the types.
//!
//! Times are RFC 3339 in UTC where they are text, and seconds since 1970 where they are numbers. Sizes are bytes. Units
//! come last in a name.
//!
//! Nothing in here does input or output; `azekura-client` asks, `azekura-control` answers.

use serde::{Deserialize, Deserializer};

mod audit;
mod authority;
mod class;
mod data_key;
mod diff;
pub mod endpoint;
mod error;
mod grant;
mod group;
mod health;
mod idempotency;
mod job;
mod joining;
mod kek;
pub mod layers;
mod member;
mod page;
mod period;
mod project;
mod scrub;
mod settings;
mod snapshot;
mod space;
mod statistics;
mod status;
mod target;
mod volume;
mod watch;

#[cfg(test)]
mod description;

pub use audit::{AUDIT_PAGE, AuditEntry, AuditQuery, AuditView};
pub use authority::{AuthorityKey, AuthorityQuery, AuthorityView};
pub use azekura_base::{Needs, Role};
pub use class::{AckRule, ChangeClass, ClassHome, ClassView, CreateClass, FailureDomain};
pub use data_key::{KeyGenerationView, NodeDataKey, NodeDataKeys, RekeyPass, RekeyView, VolumeKeyView};
pub use diff::{AllocatedQuery, AllocatedRange, AllocatedView, DiffKind, DiffQuery, DiffRange, DiffView};
pub use endpoint::{Answer, Endpoint, Method, NoBody, NoContent, NoQuery, Prometheus, Route};
pub use error::{ErrorBody, ErrorCode};
pub use grant::{
    ChapCreated, CreateChap, CreateGrant, CreateHost, CreateKey, GrantCreated, GrantProof, GrantView, HostCreated,
    HostView, KeyCreated, WhoView,
};
pub use group::{GroupHealth, GroupView, ResyncStatus, ResyncView};
pub use health::{HealthView, ReadyView};
pub use idempotency::{IDEMPOTENCY_KEY_HEADER, REPLAYED_HEADER};
pub use job::{JobKind, JobProgress, JobUnit, JobView};
pub use joining::{JoinCluster, JoinedView};
pub use kek::{KekMarkView, KekVersionView, KekView, NodeKekView, NodeKeks, NodeKeksView, RewrapKeys, RewrappedView};
pub use member::{
    DeviceState, DeviceView, EndpointView, FailureKind, LetInNode, NodeView, RemoveMember, RemovedView, ShutOutNode,
    ShutOutView,
};
pub use page::{NEXT_HEADER, PAGE_MAX, PageQuery};
pub use period::Period;
pub use project::{ChangeProject, CreateProject, ProjectQuota, ProjectUse, ProjectView};
pub use scrub::{BlockFlaw, FoundBlock, GroupScrubs, LastScrubs, ScrubRequest, ScrubStarted, ScrubTarget, ScrubTimes};
pub use settings::{ApiAccess, ChangeSettings, SettingsView, Transport};
pub use snapshot::{
    CloneVolume, CreateSnapshots, ProtectVolume, Protection, RevertVolume, RevertedView, ShowSnapshot, SnapshotOrigin,
    SnapshotView, Thinning,
};
pub use space::{ClassSpace, ClusterSpace, DeviceSpace, HomeSpace, SpaceView, VolumeSpace, Written};
pub use statistics::{
    BackgroundSnapshot, DeviceOperations, DeviceSnapshot, GroupSnapshot, IDLE, LATENCY_BUCKETS, LayerUse, NodeSnapshot,
    READ_ONLY, RequestCounters, ResyncSnapshot, ScrubSnapshot, UNPROVEN, VolumeSnapshot,
};
pub use status::{ClusterStats, ClusterStatus, NodeStats, Stale};
pub use target::{AddUnit, CreateTarget, RemoveUnits, TargetView, UnitView};
pub use volume::{
    AttachVolume, AttachmentView, ChangeVolumeSecret, CreateVolume, DeleteVolume, DetachVolume, ExposeHere,
    ExposeVolume, Exposed, IoLimits, KeyUnlocked, ResizeVolume, ResizedView, UnlockKey, UnlockVolume, VolumeAccess,
    VolumeHome, VolumeView,
};
pub use watch::{Events, LAST_EVENT_HEADER, NO_POSITION, RESET_EVENT, ResetView, WatchQuery, Watched, write_event};

/// The header of an answer that may be out of date: what it says, for people.
pub const STALE_HEADER: &str = "azekura-stale";

/// The OpenAPI 3.1 description of this API (docs/api/openapi.json).
pub const OPENAPI: &str = include_str!("../../../docs/api/openapi.json");

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A field that is there, whether or not it is `null`.
fn named<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}
