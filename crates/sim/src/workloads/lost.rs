//! A class that is lost for the middle of a run: its only copy is on a node that is away. Clients of another class,
//! none of whose copies are there, notice nothing (invariant 10), although those of the lost one go on asking through
//! the same gateways.

mod steps;

use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::plan::Mode;
use azekura_base::Endpoint;
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests on it are numbered from here.
pub(crate) const TOKENS: u64 = 1 << 48;
/// Operations of volumes whose groups are all reachable end within this time.
pub(crate) const SERVED_WITHIN: Duration = Duration::from_secs(5);
/// Requests that clients of the lost volume start at once: together more than a window.
const BURST: u64 = 24;
/// Connections that each process has from them: one alone does not carry as many requests as a window has numbers.
const LINES: u64 = 3;
/// Blocks that they write.
const BLOCKS: u64 = 16;
/// When the node goes.
const LOST_AT: Duration = Duration::from_secs(2);

/// What is asked of the lost volume.
pub(crate) struct Lost {
    pub(crate) on: bool,
    /// How long requests on it wait.
    pub(crate) io_timeout: Option<Duration>,
    running: BTreeMap<u64, (Life, Duration)>,
    tokens: u64,
    /// Gateways without room for the other volume, and since when.
    full: BTreeMap<Endpoint, Duration>,
    random: Random,
}

impl Lost {
    pub(crate) fn new(mode: Mode, mut random: Random) -> Lost {
        let io_timeout = random.chance(50).then(|| random.spread_millis(1000, 8000));
        Lost {
            on: mode == Mode::Lost,
            io_timeout,
            running: BTreeMap::new(),
            tokens: TOKENS,
            full: BTreeMap::new(),
            random,
        }
    }

    pub(crate) fn idle(&self) -> bool {
        self.running.is_empty()
    }
}

/// A request that waited for so long may have failed. A node's clock may be a little fast.
pub(crate) fn timed_out(waited: Duration, io_timeout: Option<Duration>) -> bool {
    io_timeout.is_some_and(|bound| waited >= bound.mul_f64(0.9))
}
