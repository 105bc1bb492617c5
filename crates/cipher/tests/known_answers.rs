//! The cipher does what the standard says, whatever is encrypted together.
#![allow(clippy::unwrap_used)]

use aes::Aes256;
use aes::cipher::KeyInit;
use azekura_cipher::{SameHalves, UNIT_SIZE, VolumeKey};
use proptest::prelude::*;
use xts_mode::{Xts128, get_tweak_default};

const KEY: &str = "2718281828459045235360287471352662497757247093699959574966967627\
                   3141592653589793238462643383279502884197169399375105820974944592";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The standard's vectors: data unit and ciphertext.
fn vectors() -> Vec<(u64, Vec<u8>)> {
    let mut vectors: Vec<(u64, String)> = Vec::new();
    for line in include_str!("ieee1619.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(hex) => vectors.last_mut().unwrap().1.push_str(hex),
            None => vectors.push((line.parse().unwrap(), String::new())),
        }
    }
    vectors.into_iter().map(|(unit, hex)| (unit, bytes(&hex))).collect()
}

fn key(bytes: &[u8]) -> VolumeKey {
    VolumeKey::new(bytes.try_into().unwrap()).unwrap()
}

#[test]
fn the_standards_vectors() {
    let key = key(&bytes(KEY));
    let plain: Vec<u8> = (0..UNIT_SIZE).map(|at| at as u8).collect();
    let vectors = vectors();
    assert_eq!(vectors.len(), 5);
    for (unit, cipher) in vectors {
        let mut to = vec![0; UNIT_SIZE];
        key.encrypt(unit, &plain, &mut to);
        assert_eq!(to, cipher, "unit {unit}");
        key.decrypt(unit, &cipher, &mut to);
        assert_eq!(to, plain, "unit {unit}");
    }
}

#[test]
fn a_key_with_equal_halves_is_refused() {
    assert_eq!(VolumeKey::new(&[7; VolumeKey::BYTES]).err(), Some(SameHalves));
    let mut almost = [7; VolumeKey::BYTES];
    almost[VolumeKey::BYTES - 1] = 8;
    assert_eq!(format!("{:?}", VolumeKey::new(&almost).unwrap()), "VolumeKey(…)");
}

#[test]
fn units_of_zeros_stay_zeros_beside_others() {
    let key = key(&bytes(KEY));
    let plain: Vec<u8> = (0..4 * UNIT_SIZE).map(|at| (at / 3) as u8).collect();
    let mut held = vec![0; plain.len()];
    key.encrypt(80, &plain, &mut held);
    held[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
    let mut seen = vec![1; plain.len()];
    key.decrypt(80, &held, &mut seen);
    let mut wanted = plain.clone();
    wanted[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
    assert_eq!(seen, wanted);
    // Zeros that a client has written are no zeros in what copies hold.
    let mut zeros = vec![0; UNIT_SIZE];
    key.encrypt(81, &[0; UNIT_SIZE], &mut zeros);
    assert_ne!(zeros, [0; UNIT_SIZE]);
}

#[test]
#[should_panic(expected = "units are not cut")]
fn a_part_of_a_unit_is_not_encrypted() {
    key(&bytes(KEY)).encrypt(0, &[0; 100], &mut [0; 100]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_units_are_as_another_implementation_has_them(
        raw in prop::collection::vec(any::<u8>(), VolumeKey::BYTES),
        unit in prop_oneof![0u64..64, any::<u64>(), Just(u64::MAX)],
        count in 1usize..20,
        seed in any::<u8>(),
    ) {
        prop_assume!(raw[..32] != raw[32..]);
        let plain: Vec<u8> = (0..count * UNIT_SIZE).map(|at| (at as u8).wrapping_mul(seed).rotate_left(3) ^ (at >> 8) as u8).collect();
        let key = key(&raw);
        let mut cipher = vec![0; plain.len()];
        key.encrypt(unit, &plain, &mut cipher);
        let mut other = plain.clone();
        let (data, tweak) = raw.split_at(32);
        let reference = Xts128::new(Aes256::new_from_slice(data).unwrap(), Aes256::new_from_slice(tweak).unwrap());
        reference.encrypt_area(&mut other, UNIT_SIZE, u128::from(unit), get_tweak_default);
        prop_assert!(cipher == other);
        let mut back = vec![9; plain.len()];
        key.decrypt(unit, &cipher, &mut back);
        prop_assert!(back == plain);
        // Where a range is cut into requests does not matter.
        let cut = count / 2 * UNIT_SIZE;
        let mut again = vec![0; plain.len()];
        key.encrypt(unit, &plain[..cut], &mut again[..cut]);
        prop_assume!(unit.checked_add((count / 2) as u64).is_some());
        key.encrypt(unit + (count / 2) as u64, &plain[cut..], &mut again[cut..]);
        prop_assert!(again == cipher);
    }
}
