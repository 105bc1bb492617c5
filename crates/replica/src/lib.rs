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
//! Who is primary: `takeover/` has the way from a silent primary to an open epoch, with a drawing of its states, and
//! `epochs.rs` the epochs that a copy knows.
//!
//! Who is in sync: every change is a proposal (`membership.rs`), and what the set should be follows from what is known
//! of the copies (`wanted_set.rs`). Copies take leave without being missed first (`leaving.rs`), also those whose
//! device hangs (`hung.rs`); copies that are slower than the others for long are left behind (`sluggish.rs`). A copy
//! that was away is brought up to date (`resync.rs` on the primary, `learner.rs` on the copy, `digest.rs` between
//! them). How much may be on its way to copies that no write waits for: `flow.rs`.
//!
//! Damaged blocks are written anew (`mend.rs`), and found before somebody needs them (`scrub.rs`). How much of all this
//! there may be at a time: `background.rs`. What becomes of the writes of an attachment that has ended: `fence.rs`.
//!
//! The words are those of docs/glossary.md. A number in a comment, as in "0010, point 3", is a page in docs/decisions:
//! it argues for the rule that the line enforces.

mod action;
mod background;
mod completeness;
mod config;
mod digest;
mod epochs;
mod fence;
mod finding;
mod flow;
mod group;
mod hung;
mod learner;
mod lease;
mod leaving;
mod limits;
mod membership;
mod mend;
mod merge;
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
mod state;
mod takeover;
mod wanted_set;

pub use action::{Action, Client, Mismatch};
pub use azekura_base::AckRule;
pub use config::GroupConfig;
pub use finding::{FINDINGS_MAX, Finding, Flaw, ScrubKind, ScrubReport};
pub use flow::{LAG_BYTES_MAX, WINDOW_BYTES, Window, WindowLimits};
pub use group::{Group, Recovered};
pub use lease::{GRACE, HEARTBEAT_INTERVAL, LEASE};
pub use limits::{PENDING_WRITES_MAX, TICK, WAITING_WRITES_MAX};
pub use restored::{Contradiction, Heard, Held, reopen};
pub use resync::ResyncProgress;
pub use state::GroupState;
