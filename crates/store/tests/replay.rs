//! What a restart has to replay is bounded, also while no checkpoint can be saved.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::PgId;
use azekura_store::Options;

#[test]
fn appending_waits_while_no_checkpoint_is_saved() {
    let options = Options { segments: 64, replay_bytes_max: 6 * 64 * 4096, leaf_cache_bytes_max: 4 << 20, ..tiny() };
    let mut rig = Rig::format(&options);
    // The saved map answers everything but checkpoints.
    for round in 0..1000u64 {
        let write = rig.next_write(1, 10, (round % 3) as u32, (round % 64) as u16 * 8, filled(round, 8), 8);
        let sequence = write.header.sequence;
        rig.store.append(round, write);
        rig.store.commit(PgId(1), sequence);
        rig.store.pump();
        rig.take_effects();
        while !rig.disk.waiting.is_empty() {
            rig.finish_write(0);
            rig.take_effects();
        }
        if rig.store.checkpoint_due() {
            rig.store.begin_checkpoint(|_| None);
            rig.take_effects();
        }
        while let Some(load) =
            rig.map_waiting.iter().position(|effect| !format!("{effect:?}").starts_with("Checkpoint"))
        {
            rig.finish_map(load);
            rig.take_effects();
        }
        let replay = rig.store.statistics().replay_bytes;
        assert!(replay <= 13 * 64 * 4096, "{replay} bytes of log are to be replayed");
    }
    assert!(rig.store.statistics().records_waiting > 0);
    rig.settle();
    assert_eq!(rig.store.statistics().records_waiting, 0, "they go on when it is saved");
    rig.check_accounts();
}
