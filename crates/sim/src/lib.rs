//! A deterministic simulator of whole clusters.
//!
//! Real nodes ([`azekura_node::Node`] with real stores, groups, gateways and codecs) run on simulated disks, networks,
//! clocks and a simulated configuration store. One seed decides everything: latencies, faults, what clients do. So
//! every failure comes again from its seed. docs/decisions/0005-simulator.md says what is simulated and what is not.
//!
//! - `kernel/`: time, chance, network, disks, clocks.
//! - `cluster/`: real nodes on them, the configuration, the control plane.
//! - `faults/`: what goes wrong.
//! - `workloads/`: who uses the cluster, and for what.
//! - `checks/`: what must hold.
//!
//! A run ([`run()`]) has two parts: clients work while faults happen; then faults end, everything must come to rest,
//! everything is read back, and the checks (`checks/`) look at the whole history and at all copies; then all nodes
//! lose power once more, and it is all looked at again.

mod checks;
mod cluster;
mod cue;
mod faults;
mod kernel;
mod plan;
mod report;
mod run;
mod workloads;
mod world;

pub use azekura_replica::AckRule;
pub use faults::fault_matrix;
pub use kernel::random::Random;
pub use plan::{Lie, Mode, Plan, Shards};
pub use report::{Invariant, Report, Violation};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs `plan` with `seed`.
///
/// # Errors
/// What did not hold. A panic of the code under test is one, too.
pub fn run(seed: u64, plan: &Plan) -> Result<Report, Violation> {
    #[cfg(feature = "sabotage")]
    {
        azekura_frontend::sabotage::count_only_first(plan.lie == Some(Lie::UncountedClients));
        azekura_frontend::sabotage::heed_at_once(plan.lie == Some(Lie::HastyHeeding));
        azekura_frontend::sabotage::write_by_every_path(plan.lie == Some(Lie::EveryPathWrites));
        azekura_frontend::sabotage::go_on_with_lost(plan.lie == Some(Lie::LostGoesOn));
        azekura_frontend::sabotage::wait_with_writes(plan.lie == Some(Lie::WaitingWrites));
        azekura_gateway::sabotage::share_window(plan.lie == Some(Lie::SharedWindow));
        azekura_gateway::sabotage::settle_nothing(plan.lie == Some(Lie::ForgottenErrors));
        azekura_node::sabotage::ignore_keys(plan.lie == Some(Lie::IgnoredKeys));
        azekura_node::sabotage::keep_keys(plan.lie == Some(Lie::KeptKeys));
        azekura_node::sabotage::take_any_answer(plan.lie == Some(Lie::StaleAnswers));
        azekura_node::sabotage::overlook_hangs(plan.lie == Some(Lie::UnnoticedHang));
        azekura_replica::sabotage::bear_slowness(plan.lie == Some(Lie::UnnoticedSlowness));
        azekura_replica::sabotage::compare_beside_writes(plan.lie == Some(Lie::CompareBesideWrites));
        azekura_replica::sabotage::forget_tail(plan.lie == Some(Lie::ForgottenTail));
        azekura_replica::sabotage::forget_sessions(plan.lie == Some(Lie::ForgottenSessions));
        azekura_replica::sabotage::let_the_gone_write(plan.lie == Some(Lie::UnfencedNodes));
        azekura_replica::sabotage::hurry(plan.lie == Some(Lie::HastyClaim));
        azekura_replica::sabotage::trust(plan.lie == Some(Lie::LostRepairs));
        azekura_replica::sabotage::forget_votes(plan.lie == Some(Lie::ForgottenVotes));
        azekura_replica::sabotage::acknowledge_on_any(plan.lie == Some(Lie::TooFewCopies));
        azekura_replica::sabotage::be_content_with_one(plan.lie == Some(Lie::OneForAll));
        azekura_replica::sabotage::open_windows(plan.lie == Some(Lie::NoWindow));
    }
    let run = || world::draw(seed, plan)?.run();
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let what = text.unwrap_or("a panic without a text").to_string();
        Err(Violation { invariant: Invariant::Assertion, what, at: Duration::ZERO })
    })
}
