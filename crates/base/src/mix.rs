//! One word into another that looks like chance.

/// SplitMix64's finalizer (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): every bit of
/// `value` changes about half of the result's. Zero gives zero.
#[must_use]
pub const fn mix64(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_published_generator() {
        // The first outputs of SplitMix64 with seed 0.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let drawn: Vec<u64> = (1..=3).map(|index| mix64(step.wrapping_mul(index))).collect();
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        assert_eq!(mix64(0), 0);
    }
}
