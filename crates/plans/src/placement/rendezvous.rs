//! How much a group likes a device.

use azekura_base::{DeviceId, mix64};

/// A class's own order of devices: FNV-1a of its name.
pub(super) fn seed(class: &str) -> u64 {
    class.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The score of a device for a group; a group wants the devices with the highest scores. With u uniform in (0, 1) from
/// the hash, -weight / ln u is highest for a device with the probability of its share of the weight.
pub(super) fn score(seed: u64, group: u64, device: DeviceId, weight: u64) -> f64 {
    let hash = mix64(mix64(seed ^ mix64(group)) ^ u64::from(device.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // 53 bits, in the middle of their steps, so never 0 or 1.
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -(weight as f64) / uniform.ln()
}
