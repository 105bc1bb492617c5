//! One placement group's state machine: primary order, prepare and commit, epochs, leases, retries applied once.
//!
//! The protocol is PacificA (Lin et al., 2008) with reads from any copy as in CRAQ (Terrace and Freedman, 2009). A
//! [`Group`] is one copy of one placement group. It takes messages, completions of what it asked for, and the time;
//! it returns [`Action`]s. It knows nothing of sockets, of the store's insides, or of etcd.
//!
//! The write path, in the order of the files: [`Group::write`] (`primary.rs`) gives a write its place in the order
//! ([`Action::Append`], [`Action::Send`] of a `Prepare`); a secondary appends it (`secondary.rs`); when all in-sync
//! copies are durable the primary commits ([`Action::Commit`]) and answers. Writes of partial blocks are merged first
//! (`merge.rs`).
//!
//! Membership, in the order of the files: who reigns and who is in sync (`membership.rs`); how a group changes hands and
//! copies take leave without being missed first (`hand_over.rs`), also those whose device hangs (`hung.rs`);
//! who is slower than the others for long (`sluggish.rs`), and how much may be on its way to copies that nobody waits for (`flow.rs`); how a new primary gathers what was
//! prepared before it (`opening.rs`, `secondary.rs`); how a copy that was away is brought up to date (`resync.rs` on the
//! primary, `learner.rs` on the copy, `digest.rs` between them); how a damaged block is written anew (`mend.rs`),
//! and found before somebody needs it (`scrub.rs`), and how much of all this there may be at a time (`background.rs`). What becomes of the writes of an attachment that has ended: `fence.rs`.

mod action;
mod background;
mod completeness;
mod digest;
mod epochs;
mod fence;
mod finding;
mod flow;
mod group;
mod hand_over;
mod hung;
mod learner;
mod lease;
mod membership;
mod mend;
mod merge;
mod opening;
mod peer;
mod pending;
mod primary;
mod quorum;
mod restored;
mod resync;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
mod scrub;
mod secondary;
mod sessions;
mod sluggish;

pub use action::{Action, Client, Mismatch};
pub use finding::{FINDINGS_MAX, Finding, Flaw};
pub use flow::{LAG_BYTES_MAX, WINDOW_BYTES, Window, WindowLimits};
pub use group::{Group, GroupConfig, GroupState, Recovered, RecoveredWrite};
pub use lease::{GRACE, HEARTBEAT_INTERVAL, LEASE};
pub use quorum::AckRule;
pub use restored::{Contradiction, Heard, Held, reopen};
pub use resync::ResyncProgress;
pub use scrub::{ScrubKind, ScrubReport};

/// Time between two calls of [`Group::tick`].
pub const TICK: std::time::Duration = std::time::Duration::from_millis(100);
/// Most writes of one group that may be prepared and not committed; further ones are asked to come again.
pub const PENDING_WRITES_MAX: usize = 4096;
/// Most writes of one group that wait for a merge to finish.
pub const WAITING_WRITES_MAX: usize = 1024;
