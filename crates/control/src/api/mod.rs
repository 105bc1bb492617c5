//! The REST API, `/v1/…`: what the command line, the dashboard and CSI use. JSON in and out; errors are
//! `{"error": …, "hint": …}` with a fitting status.

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use azekura_base::NodeId;
use azekura_meta::MetaClient;

use crate::attachments::Attacher;
use crate::snapshot::NodeStatistics;
use crate::snapshots::Snapshots;

mod classes;
mod diff;
mod drain;
mod error;
mod freed;
mod health;
mod known;
mod layer_questions;
mod members;
mod metrics;
mod peers;
mod removal;
mod resync;
mod scrub;
mod settings;
mod snapshots;
mod space;
mod stats;
mod status;
mod views;
mod volumes;

pub use classes::CreateClass;
pub use diff::{DiffKind, DiffRange, DiffView};
pub use error::ErrorBody;
pub use known::{STALE_HEADER, Stale};
pub use removal::RemovedView;
pub use resync::{ResyncRate, ResyncStatus, ResyncView};
pub use scrub::{LastScrubs, ScrubRequest, ScrubStarted, ScrubTarget};
pub use settings::{ChangeSettings, SettingsView};
pub use snapshots::{CloneVolume, CreateSnapshots, ProtectVolume, RevertVolume, RevertedView, SnapshotView};
pub use space::{ClassSpace, ClusterSpace, DeviceSpace, SpaceView, VolumeSpace, Written};
pub use stats::{ClusterStats, NodeStats};
pub use status::{ClusterStatus, GroupHealth};
pub use views::{AttachmentView, ClassView, DeviceView, GroupView, NodeView, VolumeView};
pub use volumes::{AttachVolume, CreateVolume, DetachVolume, ResizeVolume, ResizedView};

/// Largest request body accepted, bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the handlers share.
#[derive(Clone)]
pub struct Api {
    meta: MetaClient,
    node: NodeId,
    statistics: Arc<dyn NodeStatistics>,
    attacher: Attacher,
    snapshots: Snapshots,
}

impl Api {
    /// The handlers' state for this node.
    pub fn new(
        meta: MetaClient,
        node: NodeId,
        statistics: Arc<dyn NodeStatistics>,
        attacher: Attacher,
        snapshots: Snapshots,
    ) -> Api {
        Api { meta, node, statistics, attacher, snapshots }
    }
}

/// The routes.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/health", get(health::health))
        .route("/v1/status", get(status::status))
        .route("/v1/stats", get(stats::cluster))
        .route("/v1/node/stats", get(stats::node))
        .route("/v1/space", get(space::show))
        .route("/v1/node/layers", get(space::node))
        .route("/v1/volumes", get(volumes::list).post(volumes::create))
        .route("/v1/volumes/{name}", get(volumes::show).delete(volumes::delete))
        .route("/v1/volumes/{name}/resize", post(volumes::resize))
        .route("/v1/volumes/{name}/attach", post(volumes::attach))
        .route("/v1/volumes/{name}/detach", post(volumes::detach))
        .route("/v1/volumes/{name}/revert", post(snapshots::revert))
        .route("/v1/volumes/{name}/clone", post(snapshots::clone))
        .route("/v1/volumes/{name}/protect", post(snapshots::protect))
        .route("/v1/volumes/{name}/snapshots", get(snapshots::list_of_volume))
        .route("/v1/volumes/{name}/snapshots/{snapshot}", get(snapshots::show).delete(snapshots::delete))
        .route("/v1/volumes/{name}/snapshots/{snapshot}/diff", get(diff::show))
        .route("/v1/node/compare", get(layer_questions::compare))
        .route("/v1/node/measure", get(layer_questions::measure))
        .route("/v1/snapshots", get(snapshots::list).post(snapshots::create))
        .route("/v1/classes", get(classes::list).post(classes::create))
        .route("/v1/classes/{name}", get(classes::show).delete(removal::class))
        .route("/v1/nodes", get(members::nodes))
        .route("/v1/nodes/{name}", delete(removal::node))
        .route("/v1/nodes/{name}/drain", post(drain::drain_node))
        .route("/v1/nodes/{name}/undrain", post(drain::undrain_node))
        .route("/v1/devices", get(members::devices))
        .route("/v1/devices/{name}", delete(removal::device))
        .route("/v1/devices/{name}/drain", post(drain::drain_device))
        .route("/v1/devices/{name}/undrain", post(drain::undrain_device))
        .route("/v1/settings", get(settings::show).post(settings::change))
        .route("/v1/groups", get(members::groups))
        .route("/v1/scrub", post(scrub::start))
        .route("/metrics", get(metrics::metrics))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(api)
}
