//! One placement group's state machine: primary order, prepare and commit, epochs, leases, retries applied once.
//!
//! The protocol is PacificA (Lin et al., 2008) with reads from any copy as in CRAQ (Terrace and Freedman, 2009). A
//! [`Group`] is one copy of one placement group. It takes messages, completions of what it asked for, and the time;
//! it returns [`Action`]s. It knows nothing of sockets, of the store's insides, or of etcd.
//!
//! [`Group`] has who plays which role, and what every message goes to. What both roles share is the context
//! (`context.rs`), which is handed to whichever is played: `primary.rs` or `secondary.rs`. Handlers of what arrives
//! begin with `on_`, what is sent with `send_`.
//!
//! The write path, by files: [`Group::write`] gives a write its place (`primary/order.rs`: [`Action::Append`]) and has
//! it sent (`primary/replicate.rs`: [`Action::SendPrepare`]); a secondary appends it and answers
//! (`secondary/follow.rs`); when all in-sync copies are durable the primary commits and answers (`primary/commit.rs`:
//! [`Action::Commit`]). Writes of partial blocks are merged first (`primary/merges.rs`).
//!
//! Who is primary: `takeover/` has the way from a silent primary to an open epoch, with a drawing of its states, and
//! `epochs.rs` the epochs that a copy knows.
//!
//! Who is in sync: every change is a proposal (`primary/members.rs`), and what the set should be follows from what is
//! known of the copies (`primary/wanted_set.rs`). Copies take leave without being missed first, also those whose device
//! hangs (`primary/leave.rs`, `secondary/leave.rs`); copies that are slower than the others for long are left behind
//! (`primary/slowness.rs`). A copy that was away is brought up to date (`repair/resyncing.rs` on the primary,
//! `secondary/learn.rs` on the copy, `digest.rs` between them). How much may be on its way to copies that no write
//! waits for: `primary/shares.rs`.
//!
//! Damaged blocks are written anew (`repair/mending.rs`), and found before somebody needs them (`repair/scrubbing.rs`).
//! How much of all this there may be at a time: `background.rs`. What becomes of the writes of an attachment that has
//! ended: `primary/fence.rs`.
//!
//! The words are those of docs/glossary.md. A number in a comment, as in "0010, point 3", is a page in docs/decisions:
//! it argues for the rule that the line enforces.

mod action;
mod background;
mod completeness;
mod condition;
mod config;
mod context;
mod digest;
mod epochs;
mod finding;
mod group;
mod lease;
mod limits;
mod links;
mod pace;
mod pending;
mod primary;
mod quorum;
mod recovered;
mod repair;
mod restored;
mod roll;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
mod secondary;
mod sessions;
mod state;
mod takeover;
mod window;

pub use action::{Action, Client, Mismatch};
pub use azekura_base::AckRule;
pub use config::GroupConfig;
pub use finding::{FINDINGS_MAX, Finding, Flaw, ScrubKind, ScrubReport};
pub use group::Group;
pub use lease::{GRACE, HEARTBEAT_INTERVAL, LEASE};
pub use limits::{PENDING_WRITES_MAX, TICK, WAITING_WRITES_MAX};
pub use recovered::Recovered;
pub use repair::ResyncProgress;
pub use restored::{Contradiction, Heard, Held, reopen};
pub use roll::NodeRoll;
pub use sessions::SESSIONS_MAX;
pub use state::GroupState;
pub use window::{LAG_BYTES_MAX, WINDOW_BYTES, Window, WindowLimits};
