//! What the cipher takes: `cargo run --release -p azekura-cipher --example rate`, beside the same mode of `xts-mode`,
//! which takes one AES block at a time.
#![allow(clippy::unwrap_used)]

use aes::Aes256;
use aes::cipher::KeyInit;
use azekura_base::{BLOCK_SIZE, block_checksums, checksum};
use azekura_cipher::{UNIT_SIZE, VolumeKey};
use std::time::{Duration, Instant};
use xts_mode::{Xts128, get_tweak_default};

/// Bytes of each size in all.
const BYTES: usize = 1 << 30;

fn rate(what: &str, size: usize, mut run: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        (0..BYTES / size).for_each(|_| run());
        best = best.min(start.elapsed());
    }
    let each = best.as_secs_f64() / (BYTES / size) as f64;
    println!("{what:>24} {:>8} bytes: {:6.2} GB/s, {:8.2} µs", size, size as f64 / each / 1e9, each * 1e6);
}

fn main() {
    let bytes: [u8; VolumeKey::BYTES] = std::array::from_fn(|at| at as u8);
    let key = VolumeKey::new(&bytes).unwrap();
    let other =
        Xts128::new(Aes256::new_from_slice(&bytes[..32]).unwrap(), Aes256::new_from_slice(&bytes[32..]).unwrap());
    for size in [UNIT_SIZE, 4096, 64 << 10, 4 << 20] {
        let from: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8 | 1).collect();
        let mut to = vec![0; size];
        rate("encrypt", size, || key.encrypt(9, &from, &mut to));
        rate("decrypt", size, || key.decrypt(9, &from, &mut to));
        rate("copy", size, || std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)));
    }
    // As a gateway writes: the ciphertext's checksums are wanted, too. Many buffers, as of many requests.
    const LARGE: usize = 4 << 20;
    let from: Vec<u8> = (0..16 * LARGE).map(|at| (at * 7 % 251) as u8 | 1).collect();
    let mut to = vec![0; 16 * LARGE];
    let mut turn = (0..16).cycle();
    rate("encrypt, then checksums", LARGE, || {
        let at = turn.next().unwrap() * LARGE;
        key.encrypt(9, &from[at..at + LARGE], &mut to[at..at + LARGE]);
        std::hint::black_box(block_checksums(&to[at..at + LARGE]).fold(0, |sum, one| sum ^ one.0));
    });
    rate("block by block", LARGE, || {
        let at = turn.next().unwrap() * LARGE;
        let blocks = from[at..at + LARGE].chunks(BLOCK_SIZE).zip(to[at..at + LARGE].chunks_mut(BLOCK_SIZE));
        let sums = blocks.zip((9..).step_by(BLOCK_SIZE / UNIT_SIZE)).map(|((from, to), unit)| {
            key.encrypt(unit, from, to);
            checksum(to).0
        });
        std::hint::black_box(sums.fold(0, |sum, one| sum ^ one));
    });
    let mut to = vec![3; 4096];
    rate("xts-mode, encrypt", 4096, || other.encrypt_area(&mut to, UNIT_SIZE, 9, get_tweak_default));
    rate("xts-mode, decrypt", 4096, || other.decrypt_area(&mut to, UNIT_SIZE, 9, get_tweak_default));
}
