//! Random numbers from a seed: xoshiro256** (Blackman and Vigna, 2018), seeded with SplitMix64.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// A stream of random numbers. The same seed gives the same stream.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256StarStar);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// A stream of its own for one part of a run, so that one part's draws don't shift another's.
    pub fn fork(&mut self) -> Random {
        Random::new(self.draw())
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which must not be zero. The bias of the remainder is of no interest here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A duration between `first` and `last` microseconds.
    pub fn micros(&mut self, first: u64, last: u64) -> Duration {
        Duration::from_nanos(self.between(first * 1000, last * 1000))
    }

    /// A duration between `first` and `last` milliseconds, short ones as likely as long ones on a logarithmic scale.
    pub fn spread_millis(&mut self, first: u64, last: u64) -> Duration {
        let steps = (last / first.max(1)).max(1).ilog2();
        let scale = 1u64 << self.below(u64::from(steps) + 1);
        let low = first.max(1) * scale;
        self.micros(low * 1000, (low * 2).min(last.max(low)) * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds are written down in tests and reports: what one means never changes.
    #[test]
    fn a_seed_means_what_it_always_did() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draw(0), [0x99ec_5f36_cb75_f2b4, 0xbf6e_1f78_4956_452a, 0x1a5f_849d_4933_e6e0]);
        assert_eq!(draw(1), [0xb3f2_af6d_0fc7_10c5, 0x853b_5596_4736_4cea, 0x92f8_9756_082a_4514]);
        assert_eq!(draw(u64::MAX), [0x8f55_20d5_2a7e_ad08, 0xc476_a018_caa1_802d, 0x81de_31c0_d260_469e]);
    }

    #[test]
    fn a_seed_gives_one_stream_and_another_seed_another() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&random.between(3, 9)));
            let ms = random.spread_millis(1, 500).as_micros();
            assert!((1000..=500_000).contains(&ms), "{ms}");
        }
        assert!((0..1000).filter(|_| random.chance(30)).count().abs_diff(300) < 60);
    }
}
