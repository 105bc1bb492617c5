//! Leaves of layers that lie on each other, of which several cannot be used: what one of them gets again is not taken
//! for what the other one held.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, Body, ChunkIndex, LayerId, PgId};
use azekura_store::{InMemoryMap, MapDamage, ReadError, Repair, Store};

const CHUNK: u32 = 2;

/// Three layers: the first has eight blocks, the second has written one of them anew, and the third another one.
fn three_layers() -> Rig {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, CHUNK, 0, filled(1, 8), 8);
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.write(1, 11, CHUNK, 4, filled(2, 1), 1);
    rig.store.set_parent(LayerId(12), LayerId(11));
    rig.write(1, 12, CHUNK, 6, filled(3, 1), 1);
    rig.checkpoint();
    rig
}

/// Power goes, and then the leaves of some layers are found damaged.
fn open_damaged(disk: Disk, mut map: InMemoryMap, leaves: &[(u64, MapDamage)]) -> Rig {
    for (layer, damage) in leaves {
        assert!(map.damage(LayerId(*layer), ChunkIndex(CHUNK), *damage));
    }
    let parents = |store: &mut Store| {
        store.set_parent(LayerId(11), LayerId(10));
        store.set_parent(LayerId(12), LayerId(11));
    };
    Rig::open_with(&tiny(), disk, map, parents).unwrap()
}

/// Another copy gives the blocks of a layer.
fn repair(rig: &mut Rig, layer: u64, first: u16, body: Body, count: u16) {
    let (pg, layer, chunk) = (PgId(1), LayerId(layer), ChunkIndex(CHUNK));
    let sequence = rig.store.group(pg).committed;
    let range = BlockRange { layer, chunk, first: BlockIndex(first), count };
    rig.store.append(3, Repair { pg, sequence, range, body });
    rig.settle();
}

fn unknown(first: u16, count: u16) -> Result<Vec<u8>, ReadError> {
    Err(ReadError::Unknown { first: BlockIndex(first), count })
}

#[test]
fn what_a_layer_gets_again_is_not_what_the_damaged_one_on_it_held() {
    let (disk, map) = three_layers().crash(|_, _| true);
    let mut rig = open_damaged(disk, map, &[(10, MapDamage::Leaf), (11, MapDamage::Leaf)]);
    repair(&mut rig, 10, 0, filled(1, 8), 8);
    assert_eq!(rig.read(1, 10, CHUNK, 0, 8).unwrap(), bytes_of(&filled(1, 8), 8));
    // Nobody knows which of these it had from below.
    assert_eq!(rig.read(1, 11, CHUNK, 0, 8), unknown(0, 8));
    assert_eq!(rig.read(1, 12, CHUNK, 0, 6), unknown(0, 6));
    // A restart forgets nothing of that.
    rig.checkpoint();
    rig.check_accounts();
    let (disk, map) = rig.crash(|_, _| true);
    let mut rig = open_damaged(disk, map, &[]);
    assert_eq!(rig.read(1, 11, CHUNK, 0, 8), unknown(0, 8));
    repair(&mut rig, 11, 4, filled(2, 1), 1);
    assert_eq!(rig.read(1, 11, CHUNK, 4, 1).unwrap(), bytes_of(&filled(2, 1), 1));
    // The third layer had this one from the second.
    assert_eq!(rig.read(1, 12, CHUNK, 4, 1).unwrap(), bytes_of(&filled(2, 1), 1));
    assert_eq!(rig.read(1, 12, CHUNK, 6, 1).unwrap(), bytes_of(&filled(3, 1), 1));
    rig.checkpoint();
    rig.check_accounts();
}

#[test]
fn a_damaged_leaf_that_is_merged_hides_what_lies_below_it() {
    let (disk, map) = three_layers().crash(|_, _| true);
    let mut rig = open_damaged(disk, map, &[(10, MapDamage::Leaf), (11, MapDamage::Leaf)]);
    assert_eq!(rig.read(1, 10, CHUNK, 0, 8), unknown(0, 8));
    assert_eq!(rig.read(1, 11, CHUNK, 0, 8), unknown(0, 8));
    rig.store.merge_layer(6, LayerId(11), LayerId(12));
    rig.settle();
    rig.checkpoint();
    repair(&mut rig, 10, 0, filled(1, 8), 8);
    assert_eq!(rig.read(1, 12, CHUNK, 0, 6), unknown(0, 6));
    assert_eq!(rig.read(1, 12, CHUNK, 6, 1).unwrap(), bytes_of(&filled(3, 1), 1));
    rig.check_accounts();
}

/// The leaf in between is made anew with the latest stamps, since its index is gone as well: it counts as one that has
/// seen the repair.
#[test]
fn a_replayed_repair_does_not_pass_a_damaged_leaf() {
    let (disk, map) = three_layers().crash(|_, _| true);
    let leaves = [(10, MapDamage::Leaf), (11, MapDamage::LeafAndIndex)];
    let mut rig = open_damaged(disk, map, &leaves);
    repair(&mut rig, 10, 0, filled(1, 8), 8);
    let (disk, map) = rig.crash(|_, _| true);
    let mut rig = open_damaged(disk, map, &[]);
    assert_eq!(rig.read(1, 10, CHUNK, 0, 8).unwrap(), bytes_of(&filled(1, 8), 8));
    assert_eq!(rig.read(1, 11, CHUNK, 0, 8), unknown(0, 8));
    assert_eq!(rig.read(1, 12, CHUNK, 0, 6), unknown(0, 6));
}
