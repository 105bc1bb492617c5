//! One shard with connections inside its process, on the thread of the test, and others that never run.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::driver::commands::Command;
use crate::driver::fixture::{Fixture, THERE};
use crate::driver::messages::Report;
use azekura_wire::Heartbeat;
use std::time::Duration;

/// The ends that the other shard was sent; it was sent nothing else.
fn offered(fixture: &Fixture) -> Vec<End> {
    let end = |command| match command {
        Command::Join(end) => end,
        _ => panic!("another command"),
    };
    fixture.commands_there.try_iter().map(end).collect()
}

#[test]
fn a_machine_that_stood_still_is_noticed_before_what_was_sent_after_that_is_read() {
    let mut fixture = Fixture::new();
    let (end, mut other) = End::pair(fixture.plane.handle().waker(), fixture.reactor_there.waker());
    fixture.plane.joined(end);
    // Between the beginning of the turn and the reading of what others have sent.
    fixture.plane.clock.stood_still(Duration::from_secs(10));
    other.inlet.put(Message::Heartbeat(Heartbeat { stamp_us: 1, echo_us: None, groups: Vec::new() }));
    other.inlet.flush();
    fixture.plane.read_local();
    let report = fixture.reports.try_recv();
    assert!(matches!(&report, Ok((_, Report::Warn(warning))) if warning.text.contains("jumped by")), "{report:?}");
}

#[test]
fn a_shard_that_stands_still_is_offered_one_connection() {
    let mut fixture = Fixture::new();
    (0..100).for_each(|_| fixture.plane.join(THERE));
    let ends = offered(&fixture);
    assert_eq!(ends.len(), 1, "they take memory, and nobody reads them");
    // It goes on: whoever had given that connection up makes another one.
    let mut there = LocalSide::default();
    for end in ends {
        let _ = there.add(end);
    }
    (0..2).for_each(|_| fixture.plane.join(THERE));
    let ends = offered(&fixture);
    assert_eq!(ends.len(), 1);
    // One that can't be taken in stands in nobody's way.
    drop(ends);
    fixture.plane.join(THERE);
    assert_eq!(offered(&fixture).len(), 1);
}
