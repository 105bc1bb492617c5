//! The control plane: the leader, which does what `azekura_plans` says, and the REST API.
//!
//! - [`volumes`]: making a volume with all that it needs.
//! - [`reconcile`]: the leader's background work. `rotation`: its work on data keys that are rotated.
//! - `authorities`: the node's certificate, and the authority that signs it.
//! - [`join`]: asking a cluster to take this machine in.
//! - `doors`: where the REST API is asked.
//! - `api`: the handlers of the REST API, whose types are in `azekura_api`.
//! - [`reservations`]: carrying commands of reservations out.
//! - [`snapshots`]: making snapshots, and what is done with them.
//! - [`snapshot`]: where it gets what its node says about itself; [`layers`]: and about layers on its devices.
//!
//! A node process calls [`bind`] and [`start`].

use std::sync::Arc;
use std::time::Duration;

use azekura_base::NodeId;
use azekura_meta::MetaClient;
use azekura_meta::cluster::LeaseHold;
use tokio::task::JoinHandle;

mod api;
pub mod attachments;
mod authorities;
mod data_keys;
mod doors;
mod host_secrets;
mod joining;
pub mod layers;
mod proofs;
pub mod reconcile;
pub mod reservations;
mod rotation;
pub mod snapshot;
pub mod snapshots;
pub mod volumes;

pub use attachments::{Attacher, DataPlane};
pub use authorities::Secrets;
pub use data_keys::{DataKeys, KEYS_RETRY};
pub use doors::{Doors, bind, bind_local};
pub use host_secrets::OpenedSecrets;
pub use joining::join;
pub use proofs::{draw_secret, hash_of};
pub use reservations::Reserver;
pub use snapshot::NodeStatistics;
pub use snapshots::Snapshots;

/// Longest wait for the leadership to be given back.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// The running control plane of a node; ends when dropped, or with [`Control::stop`].
#[derive(Debug)]
pub struct Control {
    leadership: Option<LeaseHold>,
    tasks: Vec<JoinHandle<()>>,
}

/// Serves the REST API at these doors, and stands for leader of the control plane.
pub fn start(
    doors: Doors,
    meta: MetaClient,
    node: NodeId,
    statistics: Arc<dyn NodeStatistics>,
    attacher: Attacher,
    keys: DataKeys,
) -> Control {
    let leadership = meta.campaign(node);
    let snapshots = Snapshots::new(meta.clone(), node, attacher.clone());
    let reconcile = tokio::spawn(reconcile::run(meta.clone(), leadership.watch(), snapshots.clone()));
    let authorities = authorities::Authorities::new(meta.clone(), node, &doors);
    let certificate = tokio::spawn(authorities.clone().run());
    let (api, following) = api::Api::new(meta, node, statistics, attacher, snapshots, keys, authorities);
    let rotation = tokio::spawn(rotation::run(api.clone(), leadership.watch()));
    let mut tasks = vec![reconcile, certificate, following, rotation];
    tasks.extend(doors.serve(api::router(api)));
    Control { leadership: Some(leadership), tasks }
}

impl Control {
    /// Whether this node leads the control plane.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leadership.as_ref().is_some_and(LeaseHold::is_held)
    }

    /// Stops serving and gives the leadership back at once.
    pub async fn stop(mut self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(leadership) = self.leadership.take() {
            // If that takes long, the lease's time runs out.
            let _outcome = tokio::time::timeout(RELEASE_WAIT, leadership.release()).await;
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
