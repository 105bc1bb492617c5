//! A store that dies while it opens.

use crate::common::*;
use azekura_store::{Options, Store};

/// Opens, but dies after some effects.
pub fn interrupted_open(
    options: &Options,
    disk: Disk,
    map: azekura_store::InMemoryMap,
    prepare: &dyn Fn(&mut Store),
    effects: u8,
) -> (Disk, azekura_store::InMemoryMap) {
    use azekura_store::SavedMap;
    let root = map.root().unwrap().unwrap();
    let mut store = Store::open(options.clone(), IDENTITY, root);
    prepare(&mut store);
    let mut rig = Rig::around(store, disk, map);
    for _ in 0..effects {
        rig.take_effects();
        if !rig.reads_waiting.is_empty() {
            rig.finish_read(0);
        } else if !rig.map_waiting.is_empty() {
            rig.finish_map(0);
        }
    }
    rig.crash(|_, _| false)
}
