//! What a volume's clients may ask for in a second.
#![allow(clippy::unwrap_used)]

use crate::support::Rig;
use azekura_base::IoLimits;
use azekura_frontend::{Budgets, Frontend};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

fn iops(iops: u64, burst_seconds: u32) -> Option<IoLimits> {
    Some(IoLimits { iops: Some(iops), bytes_per_second: None, burst_seconds })
}

fn bandwidth(bytes: u64) -> Option<IoLimits> {
    Some(IoLimits { iops: None, bytes_per_second: Some(bytes), burst_seconds: 0 })
}

/// Sends a read whenever the one before was let in, and answers all at once, for so long. Gives how many were let in by
/// each connection.
fn saturate(rig: &mut Rig, conns: &[u32], len: usize, time: Duration) -> Vec<usize> {
    let end = rig.now + time;
    let mut done = vec![0; conns.len()];
    while rig.now < end {
        for (conn, done) in conns.iter().zip(&mut done) {
            let heard = rig.heard(*conn);
            *done += heard.lines().filter(|line| line.starts_with("data")).count();
            if !rig.frontend.waits_for_turn(*conn) {
                rig.say(*conn, &format!("read 0 {len}"));
            }
        }
        rig.answer_all();
        rig.now += Duration::from_micros(200);
        rig.turn();
    }
    conns.iter().zip(&mut done).for_each(|(conn, done)| {
        *done += rig.heard(*conn).lines().filter(|line| line.starts_with("data")).count();
    });
    done
}

#[test]
fn requests_over_a_limit_wait_and_the_rate_is_held() {
    let mut rig = Rig::new(&["vol1", "vol2"]);
    let (one, other) = (rig.open("vol1", 7), rig.open("vol2", 8));
    rig.limit("vol1", iops(1000, 0));
    let begin = rig.now;
    let done = saturate(&mut rig, &[one, other], 4096, Duration::from_secs(10));
    // A tenth of a second is saved up at first.
    assert!((10_000..=10_105).contains(&done[0]), "{done:?}");
    assert!(done[1] > 40_000, "a volume without limits waits for nothing: {done:?}");
    assert_eq!(rig.now - begin, Duration::from_secs(10));
}

#[test]
fn bytes_count_and_a_request_larger_than_a_second_is_paid_for_behind() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.limit("vol1", bandwidth(1 << 20));
    // 32 reads of 256 KiB are 8 MiB.
    let done = saturate(&mut rig, &[conn], 256 << 10, Duration::from_secs(8));
    assert!((32..=33).contains(&done[0]), "{done:?}");
    let done = saturate(&mut rig, &[conn], 4 << 20, Duration::from_secs(12));
    assert!((3..=4).contains(&done[0]), "{done:?}");
}

#[test]
fn what_was_not_asked_for_is_saved_for_the_time_of_a_burst() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.limit("vol1", iops(100, 20));
    saturate(&mut rig, &[conn], 1, Duration::from_secs(60));
    rig.now += Duration::from_secs(7);
    let done = saturate(&mut rig, &[conn], 1, Duration::from_secs(3));
    assert!((1000..=1010).contains(&done[0]), "seven seconds and three: {done:?}");
    rig.now += Duration::from_secs(500);
    let done = saturate(&mut rig, &[conn], 1, Duration::from_secs(10));
    assert!((3000..=3010).contains(&done[0]), "twenty seconds and ten: {done:?}");
}

#[test]
fn connections_to_a_limited_volume_get_the_same() {
    let mut rig = Rig::new(&["vol1"]);
    let conns: Vec<u32> = (0..4).map(|_| rig.open("vol1", 7)).collect();
    rig.limit("vol1", iops(400, 0));
    let done = saturate(&mut rig, &conns, 1, Duration::from_secs(10));
    assert!((4_000..=4_060).contains(&done.iter().sum::<usize>()), "{done:?}");
    assert!(done.iter().all(|done| (950..=1_060).contains(done)), "{done:?}");
}

#[test]
fn other_limits_count_at_once_and_old_debts_are_forgotten() {
    let mut rig = Rig::new(&["vol1"]);
    let conn = rig.open("vol1", 7);
    rig.limit("vol1", bandwidth(1 << 20));
    rig.say(conn, &format!("read 0 {}\nread 0 1", 16 << 20));
    rig.answer_all();
    assert!(rig.frontend.waits_for_turn(conn), "the second waits for 16 s");
    rig.limit("vol1", iops(10, 0));
    assert!(!rig.frontend.waits_for_turn(conn));
    rig.say(conn, &"read 0 1\n".repeat(5));
    assert!(rig.frontend.waits_for_turn(conn));
    rig.limit("vol1", None);
    rig.answer_all();
    rig.turn();
    assert!(!rig.frontend.waits_for_turn(conn));
    assert_eq!(rig.frontend.next_look().filter(|look| *look < rig.now + Duration::from_secs(1)), None);
}

#[test]
fn front_ends_of_a_process_share_what_a_volume_may_do() {
    let budgets = Arc::new(Budgets::default());
    let mut rigs = [Rig::new(&["vol1"]), Rig::new(&["vol1"])];
    let mut total = 0;
    for rig in &mut rigs {
        rig.frontend = Frontend::new(azekura_frontend::ClientLimits::default());
        rig.frontend.share(Arc::default(), Arc::clone(&budgets));
        rig.limit("vol1", iops(1000, 0));
    }
    let conns: Vec<u32> = rigs.iter_mut().map(|rig| rig.open("vol1", 7)).collect();
    for _ in 0..5_000 {
        for (rig, conn) in rigs.iter_mut().zip(&conns) {
            total += saturate(rig, &[*conn], 1, Duration::from_millis(1))[0];
        }
    }
    assert!((4_900..=5_105).contains(&total), "{total}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever clients ask for at whatever times: no more enters than the limits allow, and somebody who waits is
    /// let in by the time that the front end has named.
    #[test]
    fn no_limit_is_passed_and_nobody_waits_too_long(
        iops in 10..3000u64,
        mebibytes in 1..50u64,
        burst_seconds in 0..3u32,
        asks in prop::collection::vec((0..400u64, 1..2_000_000usize), 1..120),
    ) {
        let mut rig = Rig::new(&["vol1"]);
        let conn = rig.open("vol1", 7);
        let limits = IoLimits { iops: Some(iops), bytes_per_second: Some(mebibytes << 20), burst_seconds };
        rig.limit("vol1", Some(limits));
        let begin = rig.now;
        let (mut entered, mut bytes, mut largest) = (0_u64, 0_u64, 0_u64);
        for (pause_ms, len) in asks {
            rig.now += Duration::from_millis(pause_ms);
            rig.turn();
            rig.say(conn, &format!("read 0 {len}"));
            let mut looks = 0;
            while rig.frontend.waits_for_turn(conn) {
                let look = rig.frontend.next_look().expect("a front end with a request that waits wants to look");
                prop_assert!(look > rig.now);
                rig.now = look;
                rig.turn();
                looks += 1;
                prop_assert!(looks < 3, "let in by the time that was named");
            }
            (entered, bytes, largest) = (entered + 1, bytes + len as u64, largest.max(len as u64));
            let seconds = (rig.now - begin).as_secs_f64() + f64::from(burst_seconds).max(0.1);
            prop_assert!(entered as f64 <= seconds * iops as f64 + 1.01, "{entered} in {seconds} s");
            let most = seconds * (mebibytes << 20) as f64 + largest as f64;
            prop_assert!(bytes as f64 <= most * 1.001, "{bytes} bytes in {seconds} s");
            rig.answer_all();
            rig.heard(conn);
        }
    }
}
