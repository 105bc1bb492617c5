//! Numbers from the kernel's random generator.

/// 128 random bits.
///
/// # Panics
/// When the kernel has no randomness to give, which it always has once a machine is up.
#[must_use]
pub fn bits() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator is always there");
    u128::from_le_bytes(bytes)
}
