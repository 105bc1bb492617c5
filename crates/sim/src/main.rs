//! Runs the simulator over many seeds.

use azekura_sim::{AckRule, Lie, Mode, Plan, Report, Violation, fault_matrix, run};
use clap::Parser;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::{NonZeroU8, ParseIntError};
use std::ops::Range;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Fresh seeds are below this, so that they can be typed.
const FRESH_SEED_MAX: u64 = 1_000_000_000;

/// Runs simulated clusters, one seed after the other, and stops at the first that breaks an invariant.
#[derive(Clone, Parser)]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1, conflicts_with = "fresh")]
    first: u64,
    /// Start with a seed that nobody knows.
    #[arg(long)]
    fresh: bool,
    /// Stop after so many minutes, whatever is left.
    #[arg(long)]
    minutes: Option<f64>,
    /// Runs at once.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Operations that clients start in each run.
    #[arg(long)]
    operations: Option<u64>,
    /// Faults.
    #[arg(long, value_enum, default_value_t = Mode::All)]
    mode: Mode,
    /// Devices are wiped, refuse, lie, are drained and replaced, in whatever mode.
    #[arg(long)]
    devices_fail: bool,
    /// Devices fail, and also call single writes done that they lose, in the midst of others that they keep.
    #[arg(long)]
    writes_lost: bool,
    /// The configuration is restored from older backups. Not together with failing devices.
    #[arg(long, conflicts_with_all = ["devices_fail", "writes_lost"])]
    goes_back: bool,
    /// Nodes come and go for good, and groups remember few gateways. Not together with failing devices.
    #[arg(long, conflicts_with_all = ["devices_fail", "writes_lost", "goes_back"])]
    guests: bool,
    /// When writes are acknowledged; without it, each seed has its own rule.
    #[arg(long, value_enum)]
    ack: Option<Ack>,
    /// Shards of each node: a number, `up-to:N`, where a later process may have others, or `draw`: up to 4, as the seed
    /// has it. Without it, fresh seeds draw, and others have one, so that they mean what they always meant.
    #[arg(long)]
    shards: Option<Shards>,
    /// Some writes expect to find what their client has seen last. Without it, half of the runs of fresh seeds have it
    /// so, and others not.
    #[arg(long)]
    compares: bool,
    /// All volumes are encrypted, and their data key is rotated all the time. Without it, a third of the runs of fresh
    /// seeds have it so, and others not. A restored configuration may lack keys.
    #[arg(long, conflicts_with = "goes_back")]
    rekeys: bool,
    /// Every start of a node is registered, as in the product. Without it, fresh seeds have it so, and others not.
    #[arg(long)]
    registered_starts: bool,
    /// Let a part of the simulated world break its promises.
    #[arg(long, value_enum)]
    lie: Option<Lie>,
    /// Go on after a violation, and count.
    #[arg(long)]
    keep_going: bool,
    /// Print which faults happen in which modes, and how often; run nothing.
    #[arg(long)]
    faults: bool,
    /// Print every step.
    #[arg(long)]
    trace: bool,
}

/// The ack rules.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Ack {
    All,
    Majority,
    EachSite,
}

impl Ack {
    /// The rule of a seed's run.
    fn of(seed: u64) -> Ack {
        match seed % 4 {
            2 => Ack::Majority,
            3 => Ack::EachSite,
            _ => Ack::All,
        }
    }

    fn rule(self) -> AckRule {
        match self {
            Ack::All => AckRule::All,
            Ack::Majority => AckRule::Majority,
            Ack::EachSite => AckRule::EachSite,
        }
    }
}

/// The shards of a run's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shards {
    Each(NonZeroU8),
    UpTo(NonZeroU8),
    Draw,
}

impl FromStr for Shards {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Shards, ParseIntError> {
        match text.split_once(':') {
            Some(("up-to", number)) => Ok(Shards::UpTo(number.parse()?)),
            _ if text == "draw" => Ok(Shards::Draw),
            _ => Ok(Shards::Each(text.parse()?)),
        }
    }
}

impl Shards {
    fn of(self, seed: u64) -> azekura_sim::Shards {
        match self {
            Shards::Each(count) => azekura_sim::Shards::Each(count),
            Shards::UpTo(count) => azekura_sim::Shards::UpTo(count),
            Shards::Draw => azekura_sim::Shards::draw(seed),
        }
    }
}

type Outcome = (u64, Result<Report, Violation>);

/// What all runs together have done.
#[derive(Default)]
struct Total {
    report: Report,
    runs: u64,
    violations: u64,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.faults {
        print!("{}", fault_matrix());
        return ExitCode::SUCCESS;
    }
    if arguments.fresh {
        arguments.shards.get_or_insert(Shards::Draw);
        arguments.registered_starts = true;
        arguments.first = RandomState::new().build_hasher().finish() % FRESH_SEED_MAX;
        arguments.compares |= arguments.first.is_multiple_of(2);
        arguments.rekeys |= arguments.first.is_multiple_of(3) && !arguments.goes_back;
    }
    let first = arguments.first;
    println!("mode {}, seeds from {first}", name(&arguments.mode));
    let started = Instant::now();
    let left = Arc::new(Mutex::new(first..first + arguments.seeds));
    let (sender, outcomes) = channel();
    for _ in 0..arguments.threads.max(1) {
        let (arguments, left, sender) = (arguments.clone(), left.clone(), sender.clone());
        thread::spawn(move || work(&arguments, &left, &sender));
    }
    drop(sender);
    let total = gather(&arguments, started, &left, &outcomes);
    progress(&total, started);
    println!("{}", total.report);
    if total.violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs seeds until none is left.
fn work(arguments: &Arguments, left: &Mutex<Range<u64>>, outcomes: &Sender<Outcome>) {
    loop {
        let Some(seed) = left.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
        let ack = arguments.ack.unwrap_or_else(|| Ack::of(seed));
        let shards = arguments.shards.map_or(azekura_sim::Shards::ONE, |shards| shards.of(seed));
        let mut plan = Plan::draw(arguments.mode, seed).with_rule(ack.rule()).with_shards(shards);
        plan = if arguments.guests && shards == azekura_sim::Shards::ONE { plan.with_guests() } else { plan };
        plan.operations = arguments.operations.unwrap_or(plan.operations);
        plan.lie = arguments.lie;
        plan.devices_fail |= arguments.devices_fail || arguments.writes_lost;
        plan.writes_lost = arguments.writes_lost;
        plan.goes_back = arguments.goes_back;
        plan.devices_fail &= !plan.goes_back;
        plan.registered_starts |= arguments.registered_starts;
        plan.compares |= arguments.compares;
        plan.rekeys = arguments.rekeys;
        plan.trace = arguments.trace;
        if outcomes.send((seed, run(seed, &plan))).is_err() {
            return;
        }
    }
}

/// Adds up what comes, until all is done, time is over, or something does not hold.
fn gather(arguments: &Arguments, started: Instant, left: &Mutex<Range<u64>>, outcomes: &Receiver<Outcome>) -> Total {
    let limit = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let mut total = Total::default();
    let mut shown_at = Instant::now();
    let stop = || *left.lock().unwrap_or_else(PoisonError::into_inner) = 0..0;
    loop {
        match outcomes.recv_timeout(PROGRESS_INTERVAL) {
            Ok((_, Ok(report))) => {
                total.runs += 1;
                total.report.add(&report);
            }
            Ok((seed, Err(violation))) => {
                total.runs += 1;
                total.violations += 1;
                println!("seed {seed}: {violation}");
                println!("again: {}", command(arguments, seed));
                if !arguments.keep_going {
                    stop();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return total,
        }
        if shown_at.elapsed() > PROGRESS_INTERVAL {
            shown_at = Instant::now();
            progress(&total, started);
        }
        if limit.is_some_and(|limit| started.elapsed() > limit) {
            stop();
        }
    }
}

fn progress(total: &Total, started: Instant) {
    let faults: u64 = total.report.faults.values().sum();
    println!(
        "{:>6.0} s: {} seeds, {:.2} cluster-hours, {} operations, {faults} faults, {} violations",
        started.elapsed().as_secs_f64(),
        total.runs,
        total.report.virtual_time.as_secs_f64() / 3600.0,
        total.report.operations,
        total.violations
    );
}

/// A variant's name as the command line takes it.
fn name(value: &dyn std::fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The command that runs `seed` again, with its trace.
fn command(arguments: &Arguments, seed: u64) -> String {
    let mut command =
        format!("cargo run --release -p azekura-sim -- --mode {} --first {seed} --seeds 1", name(&arguments.mode));
    if let Some(operations) = arguments.operations {
        command += &format!(" --operations {operations}");
    }
    if arguments.devices_fail {
        command += " --devices-fail";
    }
    if arguments.writes_lost {
        command += " --writes-lost";
    }
    if arguments.goes_back {
        command += " --goes-back";
    }
    if arguments.guests {
        command += " --guests";
    }
    if let Some(ack) = &arguments.ack {
        command += &format!(" --ack {}", name(ack));
    }
    match arguments.shards {
        Some(Shards::Each(count)) => command += &format!(" --shards {count}"),
        Some(Shards::UpTo(count)) => command += &format!(" --shards up-to:{count}"),
        Some(Shards::Draw) => command += " --shards draw",
        None => {}
    }
    if arguments.rekeys {
        command += " --rekeys";
    }
    if arguments.registered_starts {
        command += " --registered-starts";
    }
    if arguments.compares {
        command += " --compares";
    }
    if let Some(lie) = &arguments.lie {
        command += &format!(" --lie {}", name(lie));
    }
    command + " --trace"
}
