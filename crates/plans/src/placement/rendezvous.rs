//! How much a group likes a device.

use azekura_base::DeviceId;

/// SplitMix64's finalizer (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): every bit of
/// the input changes about half of the output's.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A class's own order of devices: FNV-1a of its name.
pub(super) fn seed(class: &str) -> u64 {
    class.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The score of a device for a group; a group wants the devices with the highest scores. With u uniform in (0, 1) from
/// the hash, -weight / ln u is highest for a device with the probability of its share of the weight.
pub(super) fn score(seed: u64, group: u64, device: DeviceId, weight: u64) -> f64 {
    let hash = mix(mix(seed ^ mix(group)) ^ u64::from(device.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // 53 bits, in the middle of their steps, so never 0 or 1.
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -(weight as f64) / uniform.ln()
}
