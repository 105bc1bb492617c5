//! What the tools say of segments of moved blocks.

use super::damage::at_header;
use super::load::options;
use super::{apart, closed, segments};
use azekura_store::{RecordInfo, SavedMap, Severity, check};
use std::collections::BTreeMap;

#[test]
fn a_check_tells_of_blocks_whose_header_is_damaged() {
    let load = closed();
    assert_eq!(check(&load.rig.disk, &load.rig.map, &[], true).findings, []);
    let info = apart(&load).into_iter().find(|info| info.batches.len() > 2).unwrap();
    for index in 0..2 {
        let mut disk = load.rig.disk.clone();
        disk.image[at_header(&info, index) + 200] ^= 1;
        let report = check(&disk, &load.rig.map, &[], true);
        let found: Vec<_> = report.findings.iter().filter(|finding| finding.severity == Severity::Warning).collect();
        let name = format!("segment {} ", info.segment);
        assert!(found.len() == 1 && found[0].what.starts_with(&name), "{report:?}");
        assert_eq!(report.errors, 0, "{report:?}");
    }
}

#[test]
fn a_dump_tells_of_each_live_block_where_it_is_and_was() {
    let load = closed();
    // What headers tell of: by address, the record and which of its blocks that is.
    let mut told: BTreeMap<u32, (RecordInfo, u16)> = BTreeMap::new();
    let infos = segments(&load.rig.disk);
    for info in infos.iter().filter(|info| info.apart) {
        assert!(!info.summary);
        for record in info.batches.iter().inspect(|batch| assert!(batch.payload_whole)).flat_map(|batch| &batch.records)
        {
            assert_eq!(record.kind, "relocated");
            told.extend((0..record.count).map(|n| (record.address + u32::from(n), (record.clone(), n))));
        }
    }
    let mut live = 0;
    let is_apart = |address: u32| infos[((address - 256) / options().segment_blocks) as usize].apart;
    load.rig
        .map
        .for_each_leaf(&mut |leaf| {
            let (key, leaf) = leaf.unwrap();
            for (block, entry) in leaf.entries.present().filter(|(_, entry)| is_apart(entry.address)) {
                let (record, n) = &told[&entry.address];
                assert_eq!((record.layer, record.chunk), (key.layer.0, key.chunk.0));
                assert_eq!(usize::from(record.first + n), block);
                live += 1;
            }
        })
        .unwrap();
    assert!(live > 50, "{live}");
    // The chain says the same of where blocks were moved to.
    let mut moved = 0;
    for record in infos.iter().filter(|info| !info.apart).flat_map(|info| &info.batches).flat_map(|b| &b.records) {
        let Some((told, n)) = told.get(&record.address).filter(|_| record.kind == "moved") else { continue };
        if told.old_address + u32::from(*n) == record.old_address {
            assert_eq!((record.layer, record.chunk, record.first), (told.layer, told.chunk, told.first + n));
            moved += 1;
        }
    }
    assert!(moved > 10, "{moved}");
}
