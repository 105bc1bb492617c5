//! What the leader of the control plane does next, as pure functions of the configuration: given a
//! [`Model`](azekura_model::Model) and the time, they say which changes to make ([`Plan`]). `azekura-control` runs them
//! on a configuration server, the simulator in memory.
//!
//! - [`Leader`]: all of it, in one step.
//! - [`placement`]: which devices hold which group; [`homes`]: away from what is lost or drained, a share for new ones;
//!   [`followers`]: groups that follow a volume to where it is attached.
//! - [`cuts`], [`snapshots`], [`schedule`], [`retention`], [`protection`], [`layers`]: what comes and goes with
//!   snapshots.
//! - [`rotation`]: data keys of encrypted volumes get others in their place.
//! - [`restored`]: groups open again after the configuration was restored.

pub mod cuts;
pub mod followers;
pub mod homes;
pub mod layers;
mod leader;
pub mod placement;
mod plan;
pub mod protection;
pub mod restored;
pub mod retention;
pub mod rotation;
pub mod schedule;
pub mod snapshots;

pub use leader::{Leader, Moment, Round};
pub use plan::Plan;
