//! Random numbers from a seed: xoshiro256** (Blackman and Vigna, 2018), seeded with SplitMix64.

use std::time::Duration;

/// A stream of random numbers. The same seed gives the same stream.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut at = seed;
        Random { state: std::array::from_fn(|_| split_mix(&mut at)) }
    }

    /// A stream of its own for one part of a run, so that one part's draws don't shift another's.
    pub fn fork(&mut self) -> Random {
        Random::new(self.draw())
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
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

fn split_mix(at: &mut u64) -> u64 {
    *at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *at;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

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
