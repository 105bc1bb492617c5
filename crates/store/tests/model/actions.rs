//! What is done with a store, as drawn and as written down in `tests/histories`.

use super::state::{CHUNKS, GROUPS};
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub enum Action {
    Write {
        chunk: u32,
        first: u16,
        count: u16,
        zero: bool,
    },
    Repair {
        chunk: u32,
        first: u16,
        count: u16,
        zero: bool,
    },
    Lose {
        chunk: u32,
        first: u16,
        count: u16,
    },
    Commit {
        pg: u32,
        back: u64,
    },
    Epoch {
        pg: u32,
        back: u64,
    },
    Jump {
        pg: u32,
        by: u64,
    },
    Rejoin {
        pg: u32,
        by: u64,
    },
    Mark {
        chunk: u32,
    },
    Forget {
        pg: u32,
    },
    Read {
        age: u8,
        chunk: u32,
        first: u16,
        count: u16,
    },
    Snapshot,
    Clone {
        age: u8,
    },
    Merge {
        age: u8,
    },
    Drop,
    DropClone,
    Pump,
    FinishWrite(u8),
    FinishRead(u8),
    FinishMap(u8),
    /// The map does a lookup, and its answer comes later.
    LookUp(u8),
    Checkpoint,
    Tick(u16),
    Settle,
    /// The same blocks are written over and over, until the log has gone round; what the cleaner has asked for
    /// rests.
    GoRound {
        chunk: u32,
        records: u16,
        count: u16,
    },
    /// The saved map is in trouble.
    Trouble(Trouble),
    Crash {
        seed: u64,
        coarse: bool,
        checkpoint_lands: bool,
        interrupted: u8,
        unreadable: bool,
    },
}

/// What happens to the saved map.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// A leaf is damaged, and perhaps what the index says of it.
    DamageLeaf { age: u8, chunk: u32, index: bool },
    /// The page of a leaf can't be read any more.
    SpoilLeaf { age: u8, chunk: u32 },
    /// It refuses so many reads.
    MapRefuses(u32),
    /// It has no room for so many checkpoints.
    MapFull(u32),
}

pub fn action() -> impl Strategy<Value = Action> {
    let chunk = 0..CHUNKS;
    let chunk_again = chunk.clone();
    let first = 0u16..20;
    let count = prop_oneof![4 => 1u16..2, 2 => 2u16..5, 1 => 5u16..13];
    prop_oneof![
        24 => (chunk.clone(), first.clone(), count.clone(), prop::bool::weighted(0.12))
            .prop_map(|(chunk, first, count, zero)| Action::Write { chunk, first, count, zero }),
        2 => (chunk.clone(), first.clone(), count.clone(), prop::bool::weighted(0.1))
            .prop_map(|(chunk, first, count, zero)| Action::Repair { chunk, first, count, zero }),
        1 => (chunk.clone(), first.clone(), 1u16..3).prop_map(|(chunk, first, count)| Action::Lose { chunk, first, count }),
        12 => (0..GROUPS, 0u64..3).prop_map(|(pg, back)| Action::Commit { pg, back }),
        1 => (0..GROUPS, 0u64..4).prop_map(|(pg, back)| Action::Epoch { pg, back }),
        1 => (0..GROUPS, 1u64..9).prop_map(|(pg, by)| Action::Jump { pg, by }),
        8 => (0u8..3, chunk, first, count).prop_map(|(age, chunk, first, count)| Action::Read { age, chunk, first, count }),
        1 => (0..GROUPS, 0u64..6).prop_map(|(pg, by)| Action::Rejoin { pg, by }),
        1 => chunk_again.prop_map(|chunk| Action::Mark { chunk }),
        1 => prop::bool::weighted(0.3).prop_flat_map(|rare| if rare { 0..GROUPS } else { GROUPS..GROUPS + 1 })
            .prop_map(|pg| Action::Forget { pg }),
        2 => Just(Action::Snapshot),
        1 => (0u8..3).prop_map(|age| Action::Clone { age }),
        2 => (0u8..3).prop_map(|age| Action::Merge { age }),
        1 => Just(Action::Drop),
        1 => Just(Action::DropClone),
        10 => Just(Action::Pump),
        14 => any::<u8>().prop_map(Action::FinishWrite),
        8 => any::<u8>().prop_map(Action::FinishRead),
        8 => any::<u8>().prop_map(Action::FinishMap),
        2 => any::<u8>().prop_map(Action::LookUp),
        2 => Just(Action::Checkpoint),
        1 => (0u16..50_000).prop_map(Action::Tick),
        2 => Just(Action::Settle),
        1 => go_round(),
        1 => crash(),
    ]
}

/// The same, and the saved map is in trouble at times.
pub fn action_in_trouble() -> impl Strategy<Value = Action> {
    prop_oneof![40 => action(), 4 => trouble().prop_map(Action::Trouble)]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        (0u8..3, 0..CHUNKS, prop::bool::weighted(0.3)).prop_map(|(age, chunk, index)| Trouble::DamageLeaf {
            age,
            chunk,
            index
        }),
        (0u8..3, 0..CHUNKS).prop_map(|(age, chunk)| Trouble::SpoilLeaf { age, chunk }),
        (1u32..4).prop_map(Trouble::MapRefuses),
        (1u32..4).prop_map(Trouble::MapFull),
    ]
}

fn crash() -> impl Strategy<Value = Action> {
    (any::<u64>(), any::<bool>(), any::<bool>(), 0u8..12, any::<bool>()).prop_map(
        |(seed, coarse, checkpoint_lands, interrupted, unreadable)| Action::Crash {
            seed,
            coarse,
            checkpoint_lands,
            interrupted,
            unreadable,
        },
    )
}

/// Rare, since each is hundreds of writes.
fn go_round() -> impl Strategy<Value = Action> {
    (prop::bool::weighted(0.2), 0..CHUNKS, 1u16..12, 1u16..4).prop_map(|(often, chunk, records, count)| match often {
        true => Action::GoRound { chunk, records, count },
        false => Action::Pump,
    })
}

/// One action a line: its name and its values in the order of its fields.
pub fn parse(line: &str) -> Action {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    let flag = |index: usize| words[index] == "true";
    let (chunk, first, count) = (|| number(1) as u32, || number(2) as u16, || number(3) as u16);
    match words[0] {
        "Write" => Action::Write { chunk: chunk(), first: first(), count: count(), zero: flag(4) },
        "Repair" => Action::Repair { chunk: chunk(), first: first(), count: count(), zero: flag(4) },
        "Lose" => Action::Lose { chunk: chunk(), first: first(), count: count() },
        "Commit" => Action::Commit { pg: chunk(), back: number(2) },
        "Epoch" => Action::Epoch { pg: chunk(), back: number(2) },
        "Jump" => Action::Jump { pg: chunk(), by: number(2) },
        "Read" => {
            Action::Read { age: number(1) as u8, chunk: number(2) as u32, first: count(), count: number(4) as u16 }
        }
        "Rejoin" => Action::Rejoin { pg: chunk(), by: number(2) },
        "Mark" => Action::Mark { chunk: chunk() },
        "Forget" => Action::Forget { pg: chunk() },
        "Snapshot" => Action::Snapshot,
        "Clone" => Action::Clone { age: number(1) as u8 },
        "Merge" => Action::Merge { age: number(1) as u8 },
        "DropClone" => Action::DropClone,
        "Drop" => Action::Drop,
        "Pump" => Action::Pump,
        "FinishWrite" => Action::FinishWrite(number(1) as u8),
        "FinishRead" => Action::FinishRead(number(1) as u8),
        "FinishMap" => Action::FinishMap(number(1) as u8),
        "LookUp" => Action::LookUp(number(1) as u8),
        "Checkpoint" => Action::Checkpoint,
        "Tick" => Action::Tick(number(1) as u16),
        "Settle" => Action::Settle,
        "GoRound" => Action::GoRound { chunk: chunk(), records: number(2) as u16, count: number(3) as u16 },
        "DamageLeaf" => {
            Action::Trouble(Trouble::DamageLeaf { age: number(1) as u8, chunk: number(2) as u32, index: flag(3) })
        }
        "SpoilLeaf" => Action::Trouble(Trouble::SpoilLeaf { age: number(1) as u8, chunk: number(2) as u32 }),
        "MapRefuses" => Action::Trouble(Trouble::MapRefuses(number(1) as u32)),
        "MapFull" => Action::Trouble(Trouble::MapFull(number(1) as u32)),
        "Crash" => Action::Crash {
            seed: number(1),
            coarse: flag(2),
            checkpoint_lands: flag(3),
            interrupted: number(4) as u8,
            // Older histories have only four values.
            unreadable: words.get(5) == Some(&"true"),
        },
        other => panic!("no action is called {other}"),
    }
}
