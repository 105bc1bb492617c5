//! Small rows of the saved map that are damaged: one copy costs nothing, and both are noticed.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::LayerId;
use azekura_store::{MapError, MapRow, SavedMap};

/// Two layers, one of which was merged into the other, all saved.
fn saved() -> Rig {
    let mut rig = Rig::format(&tiny());
    for chunk in 0..6 {
        rig.write(1, 10, chunk, 0, filled(u64::from(chunk), 8), 8);
    }
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.write(1, 11, 0, 0, filled(9, 1), 1);
    // Each checkpoint saves a part of what has changed.
    (0..3).for_each(|_| rig.checkpoint());
    rig
}

#[test]
fn a_row_is_read_from_its_second_copy() {
    let (disk, mut map) = saved().crash(|_, _| true);
    let segment = map.root().unwrap().unwrap().segments[0].0;
    for row in [MapRow::Segment(segment), MapRow::Layer(LayerId(10)), MapRow::Layer(LayerId(11))] {
        assert!(map.damage_row(row), "{row:?}");
    }
    let mut rig = Rig::open_with(&tiny(), disk, map, |store| store.set_parent(LayerId(11), LayerId(10))).unwrap();
    rig.check_accounts();
    assert_eq!(rig.read(1, 11, 0, 0, 1).unwrap(), bytes_of(&filled(9, 1), 1));
    assert_eq!(rig.read(1, 11, 5, 0, 8).unwrap(), bytes_of(&filled(5, 8), 8));
}

#[test]
fn a_row_that_is_damaged_twice_is_noticed_and_a_checkpoint_writes_it_anew() {
    for row in [MapRow::Layer(LayerId(10)), MapRow::Layer(LayerId(11))] {
        let mut rig = saved();
        assert!(rig.map.damage_row(row) && rig.map.damage_row(row));
        let error = rig.map.root().unwrap_err();
        assert!(matches!(&error, MapError::Failed(what) if what.contains("second copy")), "{error}");
        // What each layer owns changes.
        rig.write(1, 10, 0, 8, filled(7, 4), 4);
        rig.write(1, 11, 1, 0, filled(7, 4), 4);
        // Each checkpoint saves a part of what has changed.
        (0..4).for_each(|_| rig.checkpoint());
        assert!(rig.map.root().is_ok(), "{row:?}");
    }
    assert!(!saved().map.damage_row(MapRow::Layer(LayerId(99))));
}
