//! What a device says that it holds can be written to it, in records of any size; then it is full, and takes what gives
//! space back.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{Body, PgId};
use azekura_store::{Initialisation, Options};

/// Where record `index` of `size` blocks lies: a chunk, and the first block in it.
fn place(index: u64, size: u16) -> (u32, u16) {
    let per_chunk = 1024 / u64::from(size);
    ((index / per_chunk) as u32, (index % per_chunk) as u16 * size)
}

fn write(rig: &mut Rig, index: u64, size: u16, body: Body) {
    let (chunk, first) = place(index, size);
    rig.write(chunk % 3, 1, chunk, first, body, size);
    assert_eq!(rig.store.statistics().records_waiting, 0, "{:?}", rig.store.space());
}

/// Writes records from `from` on, those that `which` chooses, until the device takes no more data, as a node does.
/// Gives the record after the last one.
fn fill(rig: &mut Rig, from: u64, size: u16, which: impl Fn(u64) -> bool) -> u64 {
    let mut index = from;
    while !rig.store.space().full {
        if which(index) {
            write(rig, index, size, filled(index + 1, size));
        }
        index += 1;
    }
    let space = rig.store.space();
    assert!(space.live >= space.capacity, "full although not all that was promised is used: {space:?}");
    let over = space.live - space.capacity;
    assert!(over < u64::from(size) * 4096, "more was taken than one record over what was promised: {space:?}");
    index
}

fn fill_and_trim(options: Options, size: u16) {
    assert!(u32::from(size) <= options.record_blocks_max());
    let mut rig = Rig::format(&options);
    let end = fill(&mut rig, 0, size, |_| true);
    for round in 0..2 {
        // What is trimmed comes back, and can be written again.
        for index in (0..end).filter(|index| index % 4 == round) {
            write(&mut rig, index, size, Body::Zero);
        }
        let end = fill(&mut rig, 0, size, |index| index % 4 == round || index >= end);
        assert!(end > 0);
    }
    for index in [0, 1, end / 2, end - 1] {
        let (chunk, first) = place(index, size);
        assert_eq!(rig.read(chunk % 3, 1, chunk, first, size).unwrap(), bytes_of(&filled(index + 1, size), size));
    }
    rig.check_accounts();
}

/// A new log's segments are initialised one by one, each when data waits for it.
#[test]
fn data_waits_for_segments_that_soon_are_initialised() {
    let options = small();
    let mut rig = Rig::format(&options);
    rig.store.segments_ready(8, Initialisation::GoesOn);
    assert_eq!(rig.store.space().capacity, Rig::format(&options).store.space().capacity, "that of the whole device");
    assert_eq!(rig.store.space().capacity, options.usable_bytes());
    let (mut ready, mut index) = (8, 0);
    while !rig.store.space().full {
        let (chunk, first) = place(index, 16);
        let write = rig.next_write(chunk % 3, 1, chunk, first, filled(index + 1, 16), 16);
        let sequence = write.header.sequence;
        rig.store.append(1, write);
        rig.settle();
        while rig.store.statistics().records_waiting > 0 {
            assert!(ready < options.segments, "data waits although all is initialised: {:?}", rig.store.space());
            ready += 1;
            rig.store.segments_ready(ready, Initialisation::GoesOn);
            rig.settle();
        }
        rig.store.commit(PgId(chunk % 3), sequence);
        rig.settle();
        index += 1;
    }
    assert!(ready > options.segments - 4, "only {ready} segments were needed for all that was promised");
    assert!(rig.store.space().live >= rig.store.space().capacity);
    for index in 0..index {
        let (chunk, first) = place(index, 16);
        assert_eq!(rig.read(chunk % 3, 1, chunk, first, 16).unwrap(), bytes_of(&filled(index + 1, 16), 16));
    }
    rig.check_accounts();
}

#[test]
fn a_device_is_full_whose_other_segments_are_not_initialised() {
    let mut rig = Rig::format(&small());
    rig.store.segments_ready(12, Initialisation::Halted);
    let end = fill(&mut rig, 0, 16, |_| true);
    // There is room again: all that was promised before is there.
    rig.store.segments_ready(12, Initialisation::GoesOn);
    assert!(!rig.store.space().full);
    rig.store.segments_ready(24, Initialisation::GoesOn);
    assert!(fill(&mut rig, end, 16, |_| true) > end);
    rig.check_accounts();
}

fn small() -> Options {
    Options {
        segments: 24,
        segment_blocks: 256,
        batch_blocks_max: 64,
        leaf_cache_bytes_max: 2 << 20,
        ..Options::default()
    }
}

#[test]
fn a_device_can_be_filled_with_records_of_any_size() {
    for size in [1, 2, 3, 5, 8, 13, 16, 21, 31, 32, 33, 41, 50, 59, 63, 64] {
        fill_and_trim(small(), size);
    }
}

#[test]
fn a_device_can_be_filled_with_the_largest_records() {
    for size in [1024, 683] {
        fill_and_trim(Options { segments: 11, ..Options::default() }, size);
    }
}

#[test]
fn a_device_can_be_filled_where_batches_are_tiny() {
    for records in [1, 2, 5, 16] {
        for size in [1, 4, 15, 16] {
            let options = Options { batch_records_max: records, cleaning_reserve_percent: 10, ..tiny() };
            fill_and_trim(Options { segments: 32, ..options }, size);
        }
    }
}

/// More was on its way than there is room for: what needs no space is not held up by it.
#[test]
fn zeros_pass_data_that_waits_for_space() {
    let size = 64;
    let mut rig = Rig::format(&small());
    let end = fill(&mut rig, 0, size, |_| true);
    let mut index = end;
    while rig.store.statistics().records_waiting < 8 {
        let (chunk, first) = place(index, size);
        // All of one group.
        let record = rig.next_write(9, 1, chunk + 1000, first, filled(index + 1, size), size);
        rig.store.append(1, record);
        rig.settle();
        index += 1;
    }
    for index in (0..end).step_by(2) {
        let (chunk, first) = place(index, size);
        let group = chunk % 3;
        let zeros = rig.next_write(group, 1, chunk, first, Body::Zero, size);
        let sequence = zeros.header.sequence;
        rig.store.append(2, zeros);
        rig.settle();
        assert!(rig.store.prepared(PgId(group)).all(|write| write.durable), "the zeros are held up");
        rig.store.commit(PgId(group), sequence);
        rig.settle();
    }
    assert_eq!(rig.store.statistics().records_waiting, 0);
    rig.store.commit(PgId(9), rig.store.group(PgId(9)).prepared_end);
    rig.settle();
    rig.check_accounts();
}

/// Prepares come on until their primaries hear that the device is full. A TRIM of the same group can't pass them, since
/// it counts only when they do: so there has to be room for them.
#[test]
fn a_trim_behind_what_was_on_its_way_to_a_full_device_is_done() {
    let options = Options { segments: 64, segment_blocks: 1024, batch_blocks_max: 64, ..Options::default() };
    for size in [1, 64] {
        let mut rig = Rig::format(&options);
        let end = fill(&mut rig, 0, size, |_| true);
        let on_its_way = 9 * 1024 / 2 / u64::from(size);
        for index in end..end + on_its_way {
            let (chunk, first) = place(index, size);
            let record = rig.next_write(chunk % 3, 1, chunk, first, filled(index + 1, size), size);
            rig.store.append(1, record);
            rig.settle();
        }
        for index in (0..end).step_by(2) {
            let (chunk, first) = place(index, size);
            let zeros = rig.next_write(chunk % 3, 1, chunk, first, Body::Zero, size);
            rig.store.append(2, zeros);
            rig.settle();
            assert_eq!(rig.store.statistics().records_waiting, 0, "records of {size}: {:?}", rig.store.space());
        }
        for group in (0..3).map(PgId) {
            rig.store.commit(group, rig.store.group(group).prepared_end);
        }
        rig.settle();
        assert!(!rig.store.space().full, "what was trimmed comes back");
        for index in (0..end).step_by(4) {
            write(&mut rig, index, size, filled(index + 1, size));
        }
        rig.check_accounts();
    }
}

/// A small device is full, and data of `late` MiB was on its way to it: of each group, or of the first one only. Gives
/// the records before that, and the chunks of that.
fn full_with_late_data(mib: u64, late_mib: u64, one_group: bool) -> (Rig, u32, Vec<u32>) {
    let mut rig = Rig::format(&Options::for_device(mib << 20));
    let end = fill(&mut rig, 0, 1024, |_| true) as u32;
    let step = if one_group { 3 } else { 1 };
    let late: Vec<u32> = (0..late_mib as u32 / 4).map(|n| end.next_multiple_of(3) + n * step).collect();
    for chunk in &late {
        let record = rig.next_write(chunk % 3, 1, *chunk, 0, filled(u64::from(*chunk) + 1, 1024), 1024);
        rig.store.append(1, record);
        rig.settle();
        commit_durable(&mut rig, chunk % 3);
    }
    assert!(rig.store.statistics().records_waiting > 0, "more than there is room for: {:?}", rig.store.space());
    (rig, end, late)
}

/// Commits what is durable here, as a primary does that waits for this copy.
fn commit_durable(rig: &mut Rig, group: u32) {
    loop {
        let durable = rig.store.prepared(PgId(group)).take_while(|write| write.durable).last();
        let Some(write) = durable else { return };
        rig.store.commit(PgId(group), write.header.sequence);
        rig.settle();
    }
}

fn trim(rig: &mut Rig, chunk: u32) {
    let group = chunk % 3;
    let zeros = rig.next_write(group, 1, chunk, 0, Body::Zero, 1024);
    rig.store.append(2, zeros);
    rig.settle();
    commit_durable(rig, group);
    let waits = rig.store.prepared(PgId(group)).count();
    assert_eq!(waits, 0, "the TRIM waits behind data: {:?}", rig.store.space());
}

/// A device that is too small to keep room for such data: what stands before the TRIM in its group takes what is kept
/// for zeros and for cleaning.
#[test]
fn a_trim_behind_its_groups_data_is_done_on_a_small_device() {
    for (mib, late_mib, one_group) in [(300, 64, true), (512, 112, true), (1024, 144, true), (1024, 192, false)] {
        let (mut rig, end, late) = full_with_late_data(mib, late_mib, one_group);
        // To trim what holds nothing wins nothing, and takes nothing from the TRIM that does.
        (0..20).for_each(|_| trim(&mut rig, 30_000));
        (0..end).step_by(2).for_each(|chunk| trim(&mut rig, chunk));
        assert_eq!(rig.store.statistics().records_waiting, 0);
        late.iter().step_by(2).for_each(|chunk| trim(&mut rig, *chunk));
        assert!(!rig.store.space().full, "what was trimmed comes back: {:?}", rig.store.space());
        fill(&mut rig, 50_001, 1024, |_| true);
        assert!(rig.store.space().free_segments > 4, "what was taken is there again: {:?}", rig.store.space());
        let kept = late.iter().skip(1).step_by(2);
        for chunk in (1..end).step_by(2).chain(kept.copied()) {
            let read = rig.read(chunk % 3, 1, chunk, 0, 1024).unwrap();
            assert_eq!(read, bytes_of(&filled(u64::from(chunk) + 1, 1024), 1024), "chunk {chunk}");
        }
        rig.check_accounts();
    }
}
