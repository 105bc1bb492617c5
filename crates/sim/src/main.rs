//! Runs the simulator over many seeds.

use azekura_sim::{Lie, Mode, Plan, Report, run};
use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs simulated clusters, one seed after the other, and stops at the first that breaks an invariant.
#[derive(Parser)]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Stop after so many minutes, whatever is left.
    #[arg(long)]
    minutes: Option<f64>,
    /// Operations that clients start in each run.
    #[arg(long)]
    operations: Option<u64>,
    /// Faults.
    #[arg(long, value_enum, default_value_t = Mode::Crash)]
    mode: Mode,
    /// Let a part of the simulated world break its promises.
    #[arg(long, value_enum)]
    lie: Option<Lie>,
    /// Go on after a violation, and count.
    #[arg(long)]
    keep_going: bool,
    /// Print every step.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (mut total, mut runs, mut violations) = (Report::default(), 0u64, 0u64);
    let mut told = Instant::now();
    for seed in arguments.first..arguments.first + arguments.seeds {
        if limit.is_some_and(|limit| started.elapsed() > limit) {
            break;
        }
        let mut plan = Plan::draw(arguments.mode, seed);
        plan.operations = arguments.operations.unwrap_or(plan.operations);
        plan.lie = arguments.lie;
        plan.trace = arguments.trace;
        runs += 1;
        match run(seed, &plan) {
            Ok(report) => total.add(&report),
            Err(violation) => {
                violations += 1;
                println!("seed {seed}: {violation}");
                println!("again: {}", command(&arguments, seed));
                if !arguments.keep_going {
                    return ExitCode::FAILURE;
                }
            }
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("{runs} seeds in {:.0} s, {violations} violations", started.elapsed().as_secs_f64());
        }
    }
    println!("{runs} seeds in {:.1} s, {violations} violations", started.elapsed().as_secs_f64());
    println!("{total}");
    if violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The command that runs `seed` again, with its trace.
fn command(arguments: &Arguments, seed: u64) -> String {
    let name = |value: &dyn std::fmt::Debug| {
        let mut name = String::new();
        for letter in format!("{value:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        name
    };
    let mut command =
        format!("cargo run --release -p azekura-sim -- --mode {} --first {seed} --seeds 1", name(&arguments.mode));
    if let Some(operations) = arguments.operations {
        command += &format!(" --operations {operations}");
    }
    if let Some(lie) = &arguments.lie {
        command += &format!(" --lie {}", name(lie));
    }
    command + " --trace"
}
