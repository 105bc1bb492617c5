//! A model of the membership protocol of `crates/replica`, checked exhaustively within bounds.
//!
//! docs/protocol-model.md says what is modelled, what is left out, and how to read a counter-example.

mod configuration;
mod members;
mod model;
mod opening;
mod quorum;
mod run;
mod serving;
mod state;
mod symmetry;

pub use model::{Action, Bounds, KEPT, Membership, ONE_REIGNS, ONE_SERVES, RETURNS_WHOLE, Rules};
pub use quorum::AckRule;
pub use state::State;
