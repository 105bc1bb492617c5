//! Random overwriting: the cleaner keeps up, smoothly, and nothing is lost.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::PgId;
use azekura_store::{Effect, Options};
use std::time::Duration;

const DEPTH: u64 = 32;

fn options() -> Options {
    Options {
        segments: 96,
        segment_blocks: 256,
        batch_blocks_max: 64,
        leaf_cache_bytes_max: 8 << 20,
        cleaning_reserve_percent: 10,
        ..Options::default()
    }
}

/// One turn of an event loop: what was asked for is done, each kind of effect once, but for a checkpoint while `saves`
/// is false.
fn turn(rig: &mut Rig, turns: u64, saves: bool) {
    rig.store.tick(Duration::from_micros(turns * 200));
    rig.store.pump();
    rig.take_effects();
    if rig.store.checkpoint_due() {
        rig.store.begin_checkpoint(|_| None);
    }
    rig.take_effects();
    for _ in 0..rig.disk.waiting.len() {
        rig.finish_write(0);
    }
    for _ in 0..rig.reads_waiting.len() {
        rig.finish_read(0);
    }
    let mut later = 0;
    for _ in 0..rig.map_waiting.len() {
        let effect = &rig.map_waiting[later];
        // What is no lookup waits for the checkpoint before it.
        if !effect.is_lookup() && (later > 0 || !saves && is_checkpoint(effect)) {
            later += 1;
        } else {
            rig.finish_map(later);
        }
    }
    rig.take_effects();
    rig.done.clear();
}

fn is_checkpoint(effect: &Effect) -> bool {
    matches!(effect, Effect::Checkpoint { .. })
}

#[test]
fn a_device_at_seventy_percent_keeps_its_pace() {
    let mut rig = Rig::format(&options());
    let raw = u64::from(options().segments) * u64::from(options().segment_blocks);
    let blocks = raw * 70 / 100;
    assert!(blocks * 4096 < rig.store.space().capacity);
    let mut turns = 0;
    let mut state = 1u64;
    let mut version = vec![0u64; blocks as usize];
    let mut written = 0;
    let mut turns_of_round = Vec::new();
    let mut moved_of_round = Vec::new();
    for round in 0..8 {
        let (first_turn, first_moved) = (turns, rig.store.statistics().moved_blocks);
        for group in 0..blocks / DEPTH {
            for index in 0..DEPTH {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = if round == 0 { group * DEPTH + index } else { (state >> 33) % blocks };
                written += 1;
                version[at as usize] = written;
                let chunk = (at / 1024) as u32;
                let write = rig.next_write(1, 1, chunk, (at % 1024) as u16, filled(written, 1), 1);
                rig.store.append(written, write);
            }
            let mut waited = 0;
            while rig.store.prepared(PgId(1)).any(|p| !p.durable) {
                turns += 1;
                waited += 1;
                turn(&mut rig, turns, true);
                assert!(waited < 200, "clients wait without end: {:?} {:?}", rig.store.space(), rig.store.statistics());
            }
            let end = rig.store.group(PgId(1)).prepared_end;
            rig.store.commit(PgId(1), end);
        }
        turns_of_round.push(turns - first_turn);
        moved_of_round.push(rig.store.statistics().moved_blocks - first_moved);
    }
    println!("turns a round {turns_of_round:?}, blocks moved a round {moved_of_round:?} for {blocks} written");
    // The last rounds move no more than a segment that is 70 % full needs: 0.7 / 0.3 blocks for each block of log.
    let moved = moved_of_round[7] as f64 / blocks as f64;
    assert!(moved < 2.6, "{moved} blocks were moved for each that was written");
    assert!(turns_of_round[7] < turns_of_round[1] * 4, "{turns_of_round:?}");
    rig.check_accounts();
    for at in (0..blocks).step_by(97) {
        let got = rig.read(1, 1, (at / 1024) as u32, (at % 1024) as u16, 1).unwrap();
        if version[at as usize] > 0 {
            assert_eq!(got, bytes_of(&filled(version[at as usize], 1), 1));
        }
    }
}

/// A checkpoint of a large map takes as long as it takes to write several segments, and one follows the other: what is
/// emptied meanwhile is enough for what is written.
#[test]
fn checkpoints_that_take_long_hold_up_no_cleaning() {
    const TURNS: u64 = 60;
    let options = Options { segments: 192, ..options() };
    let mut rig = Rig::format(&options);
    let blocks = u64::from(options.segments) * u64::from(options.segment_blocks) / 2;
    let (mut turns, mut begun, mut state, mut written) = (0, None, 1u64, 0);
    let mut longest = [0; 6];
    for (round, longest) in longest.iter_mut().enumerate() {
        for group in 0..blocks / DEPTH {
            for index in 0..DEPTH {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = if round == 0 { group * DEPTH + index } else { (state >> 33) % blocks };
                written += 1;
                let write = rig.next_write(1, 1, (at / 1024) as u32, (at % 1024) as u16, filled(written, 1), 1);
                rig.store.append(written, write);
            }
            let mut waited = 0;
            while rig.store.prepared(PgId(1)).any(|p| !p.durable) {
                turns += 1;
                waited += 1;
                let saves = begun.is_some_and(|begun| turns >= begun + TURNS);
                turn(&mut rig, turns, saves);
                let is_saving = rig.map_waiting.iter().any(is_checkpoint);
                begun = is_saving.then(|| begun.filter(|_| !saves).unwrap_or(turns));
                assert!(waited < 50 * TURNS, "clients wait without end: {:?}", rig.store.space());
            }
            *longest = waited.max(*longest);
            let end = rig.store.group(PgId(1)).prepared_end;
            rig.store.commit(PgId(1), end);
        }
    }
    println!("longest waits, turns: {longest:?}");
    // Before the first cleaning nobody knows how long a checkpoint takes.
    assert!(longest[2..].iter().all(|turns| *turns <= 6), "turns that clients waited for in each round: {longest:?}");
    rig.check_accounts();
}
