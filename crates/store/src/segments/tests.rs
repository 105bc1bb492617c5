//! When a segment of moved blocks becomes free.

use super::*;

fn table() -> Segments {
    let options = Options { segments: 16, segment_blocks: 64, ..Options::default() };
    Segments::new(&options, &[], &[])
}

/// A checkpoint with which replay begins at `position` frees segment 3 and no other.
fn frees(segments: &mut Segments, position: u64) -> bool {
    segments.begin_checkpoint(position);
    segments.end_checkpoint(position) == [3]
}

#[test]
fn a_segment_of_moved_blocks_is_not_free_before_replay_begins_behind_its_records() {
    let mut segments = table();
    segments.open_apart(3, 5);
    segments.pin(3, 2);
    segments.seal(3);
    segments.landed(3, 2, 8);
    assert!(!frees(&mut segments, 6) && !frees(&mut segments, 8) && frees(&mut segments, 9));
}

#[test]
fn a_replayed_record_keeps_its_segment_as_long() {
    let mut segments = table();
    assert!(segments.adopt(3, 5) && segments.adopt(3, 8));
    assert!(!frees(&mut segments, 6) && !frees(&mut segments, 8) && frees(&mut segments, 9));
}

/// A crash took back what the segment was opened for last.
#[test]
fn a_replayed_record_does_not_leave_its_segment_behind_the_end_of_the_log() {
    let options = Options { segments: 16, segment_blocks: 64, ..Options::default() };
    let row = SegmentRow { generation: 9, live: 0, used: false };
    let mut segments = Segments::new(&options, &[(3, row)], &[]);
    assert!(segments.adopt(3, 5));
    assert_eq!(segments.get(3).generation, 5);
}
