//! What cleaning costs: blocks moved for each block of a client's, where some blocks are written again and others stay.
//!
//! It is counted, not timed, so it is the same on each machine. The table of decision 0036:
//!
//!     cargo test --release -p azekura-store --test integration cleaning:: -- --ignored --nocapture
#![allow(clippy::unwrap_used)]

mod device;
mod load;

use azekura_store::Options;
use load::{Cost, Load, Range};

/// Blocks that are moved for each that clients write at the most, a little more than there are.
const THIN_MOVED_MAX: f64 = 0.92;
const BESIDE_MOVED_MAX: f64 = 0.56;
const ALIKE_MOVED_MAX: f64 = 1.40;
const SKEWED_MOVED_MAX: f64 = 1.23;
const REAL_MOVED_MAX: f64 = 1.27;
/// Blocks of headers and summaries for each of them.
const REAL_SAID_MAX: f64 = 0.088;
/// Blocks of log that are written at most while 16 writes of 1 MiB wait.
const LARGE_BESIDE_MAX: u64 = 6 * 16 * 256;

/// Writes that clients have under way.
const DEPTH: u64 = 16;
/// The same of a device that has a third of 128: so many are in a batch of it (docs/performance.md).
const REAL_DEPTH: u64 = 40;

/// A device of 384 segments, as one of 12 GiB has. What counts blocks or bytes is smaller as its segments are. A batch
/// has more room beside clients' writes than there would be in so small a segment otherwise.
fn like_twelve_gib(segment_blocks: u32) -> Options {
    let times = 8192 / segment_blocks;
    Options {
        segments: 384,
        segment_blocks,
        batch_blocks_max: 64,
        batch_records_max: 64,
        cleaning_blocks_in_flight_max: 64,
        leaf_cache_bytes_max: (64 << 20) / times as usize,
        read_cache_bytes_max: 0,
        replay_bytes_max: (1 << 30) / u64::from(times),
        checkpoint_leaves_max: (32 << 10) / times as usize,
        checkpoint_bytes_max: (12 << 20) / times as usize,
        ..Options::default()
    }
}

/// As many blocks of the device as `gib` GiB are of one of 12 GiB.
fn share(options: &Options, gib: u64) -> u64 {
    u64::from(options.segments) * u64::from(options.segment_blocks) * gib / 12
}

/// What writing a hot range costs before there is thin data beside it, what writing that costs, and the hot range
/// again: a figure for each time that as much has been written as there is.
struct Beside {
    before: Vec<Cost>,
    thin: Vec<Cost>,
    after: Vec<Cost>,
}

fn hot_beside_thin(options: &Options, rounds: [u32; 3]) -> Beside {
    let mut load = Load::new(options, DEPTH);
    let hot = Range { layer: 1, blocks: share(options, 2), every: 1 };
    let thin = Range { layer: 2, blocks: share(options, 6), every: 32 };
    load.fill(hot);
    let before = (0..rounds[0]).map(|_| load.overwrite(hot, hot.blocks)).collect();
    load.fill(thin);
    let between = (0..rounds[1]).map(|_| load.overwrite(thin, thin.blocks)).collect();
    let after = (0..rounds[2]).map(|_| load.overwrite(hot, hot.blocks)).collect();
    load.check();
    Beside { before, thin: between, after }
}

fn uniform(options: &Options, percent: u64, rounds: u32) -> Vec<Cost> {
    let mut load = Load::new(options, DEPTH);
    let blocks = u64::from(options.segments) * u64::from(options.segment_blocks) * percent / 100;
    let range = Range { layer: 1, blocks, every: 1 };
    load.fill(range);
    let costs = (0..rounds).map(|_| load.overwrite(range, blocks)).collect();
    load.check();
    costs
}

/// Nine writes of ten go to a tenth of the blocks.
fn skewed(options: &Options, percent: u64, rounds: u32) -> Vec<Cost> {
    let mut load = Load::new(options, DEPTH);
    let blocks = u64::from(options.segments) * u64::from(options.segment_blocks) * percent / 100;
    let range = Range { layer: 1, blocks, every: 1 };
    load.fill(range);
    let costs = (0..rounds).map(|_| load.overwrite_skewed(range, blocks)).collect();
    load.check();
    costs
}

fn print(what: &str, costs: &[Cost]) {
    for (round, cost) in costs.iter().enumerate() {
        println!("{what} {round}: {cost}");
    }
}

/// A device of `gib` GiB with `cache` MiB for leaves. `times` more blocks in a segment would be a usual one: all that
/// counts blocks or bytes is so many times smaller, but batches are not.
fn real(gib: u64, cache: usize, times: u32) -> Options {
    let usual = Options::for_device(gib << 30);
    Options {
        segment_blocks: usual.segment_blocks / times,
        leaf_cache_bytes_max: (cache << 20) / times as usize,
        read_cache_bytes_max: 0,
        replay_bytes_max: usual.replay_bytes_max / u64::from(times),
        checkpoint_leaves_max: usual.checkpoint_leaves_max / times as usize,
        checkpoint_bytes_max: usual.checkpoint_bytes_max / times as usize,
        ..usual
    }
}

/// Writes of `count` blocks, at random, each quarter of the range a figure.
fn quarters(options: &Options, percent: u64, count: u16, quarters: u32) -> Vec<Cost> {
    // No write crosses the end of a chunk.
    let blocks = u64::from(options.segments) * u64::from(options.segment_blocks) * percent / 100 / 4096 * 4096;
    let mut load = Load::new(options, if count == 1 { REAL_DEPTH } else { DEPTH });
    let range = Range { layer: 1, blocks, every: 1 };
    load.fill_by(range, options.record_blocks_max().min(256) as u16);
    let costs = (0..quarters).map(|_| load.overwrite_by(range, blocks / 4, count)).collect();
    load.check();
    costs
}

/// With TIMES=1 in the environment segments are as large as usual ones.
#[test]
#[ignore = "prints the rows of decision 0036 about a device of 100 GiB, in some minutes"]
fn of_a_hundred_gib() {
    let times = std::env::var("TIMES").map_or(4, |value| value.parse().unwrap());
    for (percent, cache) in [(70, 512), (85, 512), (70, 64)] {
        let costs = quarters(&real(100, cache, times), percent, 1, 8);
        print(&format!("100 GiB, {percent} %, {cache} MiB for leaves, quarter"), &costs);
    }
    print("100 GiB, writes of 1 MiB, 80 %, quarter", &quarters(&real(100, 512, times), 80, 256, 8));
}

/// The bound is a little more than there are. Large devices need a smaller share of free segments than that of
/// `like_twelve_gib`, and have larger batches.
#[test]
fn uniform_writes_move_less_on_a_device_of_many_segments() {
    let costs = quarters(&real(25, 128, 16), 70, 1, 8);
    let (moved, said) = (costs[7].moved, costs[7].log - costs[7].moved - 1.0);
    println!("{moved:.3} moved for a block of uniform writes, {said:.3} of headers and summaries");
    assert!(moved < REAL_MOVED_MAX, "{moved:.3} blocks were moved for each of uniform writes");
    assert!(said < REAL_SAID_MAX, "{said:.3} blocks of headers and summaries were written for each of uniform writes");
}

/// While some writes wait no more is written than they cost in all, and little beside: there is no pause in which
/// cleaning catches up. Turns are many, since the cleaner reads so much less in one than these clients write.
#[test]
fn large_writes_wait_for_no_cleaning() {
    let costs = quarters(&real(25, 128, 8), 80, 256, 4);
    let beside = costs.iter().map(|cost| cost.beside_max).max().unwrap();
    print("writes of 1 MiB, quarter", &costs);
    assert!(beside < LARGE_BESIDE_MAX, "{beside} blocks of log were written while clients waited");
}

#[test]
#[ignore = "prints the table of decision 0036"]
fn table() {
    let options = like_twelve_gib(512);
    let Beside { before, thin, after } = hot_beside_thin(&options, [4, 6, 24]);
    print("hot alone", &before);
    print("thin", &thin);
    print("hot beside thin", &after);
    print("uniform, 70 %", &uniform(&options, 70, 6));
    print("uniform, 85 %", &uniform(&options, 85, 6));
    print("nine of ten to a tenth, 70 %", &skewed(&options, 70, 6));
}

/// In segments of 128 blocks headers take more than usual: see decision 0036 for larger ones.
#[test]
fn a_hot_range_beside_thin_data_costs_no_more_than_it_did() {
    let Beside { before, thin, after } = hot_beside_thin(&like_twelve_gib(128), [1, 2, 8]);
    let last = |costs: &[Cost]| costs.last().unwrap().moved;
    println!(
        "{:.3} moved for a block of a range alone, {:.3} of thin data, {:.3} beside it",
        last(&before),
        last(&thin),
        last(&after)
    );
    assert!(last(&before) < 0.01, "what is written again and again leaves nothing to move: {:.3}", last(&before));
    assert!(last(&thin) < THIN_MOVED_MAX, "{:.3} blocks were moved for each of the thin data", last(&thin));
    assert!(last(&after) < BESIDE_MOVED_MAX, "{:.3} blocks were moved for each of the hot range", last(&after));
}

/// Where some blocks are written more often than others, less is moved than where all are written alike.
#[test]
fn what_is_moved_stays_apart_from_what_is_written_again() {
    let options = like_twelve_gib(128);
    let moved = |costs: Vec<Cost>| costs.last().unwrap().moved;
    let (alike, skewed) = (moved(uniform(&options, 70, 3)), moved(skewed(&options, 70, 3)));
    println!("{alike:.3} moved for a block of uniform writes, {skewed:.3} where nine of ten go to a tenth");
    assert!(alike < ALIKE_MOVED_MAX, "{alike:.3} blocks were moved for each of uniform writes");
    assert!(skewed < SKEWED_MOVED_MAX, "{skewed:.3} blocks were moved for each where nine of ten go to a tenth");
}
