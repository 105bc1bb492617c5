//! A small load generator of our own, for doors that fio has no engine for: NVMe/TCP and vhost-user; and for NBD, so
//! that a request of the other two can be compared with one of NBD that the same client has sent.
//!
//! One thread keeps so many requests under way, at random places of a volume. Whenever some are done it asks for as
//! many more, which go out together. It prints one line of JSON: what was done, in how long, and the latencies.

mod nbd;
mod nvme;
mod stream;
mod vhost;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;
use std::time::{Duration, Instant};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    Read,
    Write,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Protocol {
    Nbd,
    Nvme,
    Vhost,
}

/// Sends random requests to a volume, and prints how fast they were answered.
#[derive(Debug, Parser)]
struct Args {
    protocol: Protocol,
    /// HOST:PORT, or the path of a unix socket (NBD, vhost-user).
    address: String,
    /// The export (NBD), or the NQN of the subsystem (NVMe).
    #[arg(long, default_value = "")]
    name: String,
    #[arg(long)]
    operation: Operation,
    /// Bytes of a request.
    #[arg(long, default_value_t = 4096)]
    block: u32,
    /// Requests under way.
    #[arg(long, default_value_t = 128)]
    depth: u16,
    /// The first so many bytes of the volume are asked for.
    #[arg(long)]
    size: u64,
    #[arg(long, default_value_t = 8)]
    secs: u64,
}

/// A connection to a volume, as a requester has it. Requests have slots, from 0 to the depth.
trait Door {
    /// Puts a request among those that go out next.
    fn ask(&mut self, slot: u16, operation: Operation, offset: u64) -> Result<()>;

    /// Lets them go out.
    fn send(&mut self) -> Result<()>;

    /// Waits until something is done, and adds the slots of all that is. A request that failed is an error.
    fn done(&mut self, slots: &mut Vec<u16>) -> Result<()>;
}

fn open(args: &Args) -> Result<Box<dyn Door>> {
    Ok(match args.protocol {
        Protocol::Nbd => Box::new(nbd::Nbd::connect(&args.address, &args.name, args.block, args.depth)?),
        Protocol::Nvme => Box::new(nvme::Nvme::connect(&args.address, &args.name, args.block, args.depth)?),
        Protocol::Vhost => Box::new(vhost::Vhost::connect(&args.address, args.block, args.depth)?),
    })
}

/// What one run came to.
struct Measured {
    elapsed: Duration,
    /// Of each request.
    latencies_ns: Vec<u64>,
}

fn run(args: &Args, door: &mut dyn Door) -> Result<Measured> {
    let places = args.size / u64::from(args.block);
    ensure!(places > 0, "--size is less than one request");
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(u64::from(std::process::id()));
    let mut offset = || chance.next_u64() % places * u64::from(args.block);
    let began = Instant::now();
    let end = began + Duration::from_secs(args.secs);
    let mut asked = vec![began; usize::from(args.depth)];
    for slot in 0..args.depth {
        door.ask(slot, args.operation, offset())?;
    }
    door.send()?;
    let (mut latencies_ns, mut under_way, mut slots) = (Vec::new(), usize::from(args.depth), Vec::new());
    while under_way > 0 {
        slots.clear();
        door.done(&mut slots)?;
        let now = Instant::now();
        for slot in &slots {
            let asked = asked.get_mut(usize::from(*slot)).context("an answer to what was not asked")?;
            latencies_ns.push((now - *asked).as_nanos() as u64);
            *asked = now;
            if now < end {
                door.ask(*slot, args.operation, offset())?;
            } else {
                under_way -= 1;
            }
        }
        door.send()?;
    }
    Ok(Measured { elapsed: began.elapsed(), latencies_ns })
}

fn report(mut measured: Measured) -> Result<serde_json::Value> {
    let latencies = &mut measured.latencies_ns;
    if latencies.is_empty() {
        bail!("no request was done");
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64 / 1000.0;
    Ok(json!({
        "requests": latencies.len(),
        "seconds": measured.elapsed.as_secs_f64(),
        "iops": latencies.len() as f64 / measured.elapsed.as_secs_f64(),
        "mean_us": mean,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "max_us": at(1.0),
    }))
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.depth > 0, "--depth is at least 1");
    ensure!(args.block > 0 && args.block.is_multiple_of(4096), "--block is a multiple of 4096");
    let mut door = open(&args).with_context(|| format!("can't connect to {}", args.address))?;
    println!("{}", report(run(&args, door.as_mut())?)?);
    Ok(())
}
