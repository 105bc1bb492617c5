//! How much is on its way to copies that no write waits for, and what becomes of copies that are slower than the load.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Gateways that keep so many writes under way, and send what was redirected again.
struct Load {
    depth: usize,
    under_way: BTreeMap<u64, u16>,
    next: u64,
    done: usize,
}

impl Load {
    fn new(first: u64, depth: usize) -> Load {
        Load { depth, under_way: BTreeMap::new(), next: first, done: 0 }
    }

    fn go_on(&mut self, cluster: &mut Cluster, count: u16) {
        let mut again = Vec::new();
        self.under_way.retain(|request, block| match cluster.answered.remove(&RequestId(*request)) {
            None => true,
            Some(Ok(())) => {
                self.done += 1;
                false
            }
            Some(Err(IoStatus::Redirect)) => {
                again.push((*request, *block));
                true
            }
            Some(Err(status)) => panic!("{status}"),
        });
        while self.under_way.len() < self.depth {
            let block = (self.next * 7 % 900) as u16;
            self.under_way.insert(self.next, block);
            again.push((self.next, block));
            self.next += 1;
        }
        for (request, block) in again {
            cluster.write(blocks(request, block, count)).unwrap();
        }
    }
}

/// Time passes: copies make so many records durable, and read so many chunks; messages arrive, heartbeats too.
fn step(cluster: &mut Cluster, speeds: &[usize]) {
    cluster.now += STEP;
    let now = cluster.now;
    for n in 0..speeds.len() as u32 {
        let tick = now.as_millis().is_multiple_of(TICK.as_millis());
        let group = cluster.group(n);
        group.advance(now);
        if tick {
            group.tick(now);
            group.allow_resync(true);
        }
        cluster.run(device(n));
        if tick {
            cluster.beat();
        }
    }
    while cluster.decide() {}
    for n in 0..speeds.len() as u32 {
        while cluster.deliver(device(0), device(n)) {}
        for _ in 0..speeds[n as usize] {
            let _ = cluster.persist(device(n));
        }
        for _ in 0..4 {
            let _ = cluster.load(device(n));
        }
        while cluster.deliver_answer(device(0), device(n)) {}
    }
}

/// Two copies, of which the second has been away while much has changed.
fn second_away() -> (Cluster, Window) {
    let mut cluster = Cluster::new(2);
    cluster.isolate(1);
    (1..=400).for_each(|n| cluster.write(blocks(n, n as u16 * 2, 1)).unwrap());
    cluster.pass(2 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 1);
    let window = Window::default();
    cluster.group(0).share_window(device(1), window.clone());
    cluster.answered.clear();
    (cluster, window)
}

#[test]
fn a_copy_that_is_slower_than_the_load_gets_in() {
    let (mut cluster, window) = second_away();
    let mut load = Load::new(1000, 600);
    cluster.heal();
    let start = cluster.now;
    while cluster.config.in_sync.len() < 2 {
        load.go_on(&mut cluster, 1);
        step(&mut cluster, &[10_000, 20]);
        assert!(window.bytes() < 3 << 20, "{} bytes on their way", window.bytes());
        assert!(cluster.now < start + 60 * SECOND, "it does not get in");
    }
    assert!(load.done > 500, "writes go on meanwhile: {}", load.done);
    assert_eq!(window.bytes(), 0, "writes wait for it now");
    cluster.settle();
    cluster.beat();
    assert!(cluster.map(0) == cluster.map(1), "the copies differ");
}

#[test]
fn a_copy_that_keeps_pace_holds_nothing_up() {
    let (mut cluster, window) = second_away();
    let mut load = Load::new(1000, 100);
    cluster.heal();
    for _ in 0..200 {
        load.go_on(&mut cluster, 1);
        step(&mut cluster, &[10_000, 10_000]);
    }
    assert_eq!(cluster.config.in_sync.len(), 2);
    assert!(load.done > 190 * 100, "{}", load.done);
    assert_eq!(window.bytes(), 0);
}

#[test]
fn a_copy_that_takes_nothing_costs_clients_little() {
    let (mut cluster, window) = second_away();
    let mut load = Load::new(1000, 60);
    cluster.heal();
    let (mut stood, steps) = (0, 6000);
    for n in 0..steps {
        let done = load.done;
        load.go_on(&mut cluster, 1);
        stood += u32::from(load.done == done);
        // It begins, and then its device takes nothing more.
        step(&mut cluster, &[10_000, usize::from(n % 100 < 3) * 3]);
        assert!(window.bytes() < 3 << 20, "{} bytes on their way", window.bytes());
    }
    assert_eq!(cluster.config.in_sync.len(), 1);
    assert!(stood < steps / 10, "clients stood still in {stood} of {steps} steps");
}

#[test]
fn a_copy_that_was_put_off_is_tried_when_nobody_writes() {
    let (mut cluster, _window) = second_away();
    let mut load = Load::new(1000, 4);
    cluster.heal();
    // It takes nothing, time after time, and is put off for longer each time: at last for 26 s.
    let (mut learns, mut given_up, mut steps) = (false, 0, 0);
    while given_up < 3 {
        load.go_on(&mut cluster, 16);
        step(&mut cluster, &[10_000, usize::from(steps % 100 < 3) * 3]);
        let before = std::mem::replace(&mut learns, cluster.group(0).resyncs().count() > 0);
        given_up += u32::from(before && !learns);
        steps += 1;
        assert!(steps < 3000, "it is tried");
    }
    let start = cluster.now;
    while cluster.config.in_sync.len() < 2 {
        step(&mut cluster, &[10_000, 10_000]);
        assert!(cluster.now < start + 13 * SECOND, "it does not get in");
    }
    assert!(cluster.now > start + 9 * SECOND, "somebody might have written on");
}

#[test]
fn nothing_is_begun_for_a_copy_while_much_waits_to_be_sent_to_its_node() {
    let (mut cluster, window) = second_away();
    window.set_unsent(WINDOW_BYTES);
    cluster.heal();
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.group(0).resyncs().count(), 0);
    assert_eq!(cluster.config.in_sync.len(), 1);
    window.set_unsent(0);
    cluster.pass(3 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 2);
}

#[test]
fn a_copy_that_lags_is_sent_no_more_than_its_bound_although_the_configuration_is_away() {
    const WRITE_BLOCKS: u16 = 64;
    let write_bytes = usize::from(WRITE_BLOCKS) * BLOCK_SIZE;
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    let window = Window::default();
    cluster.isolate(2);
    cluster.group(0).share_window(device(2), window.clone());
    cluster.heal();
    cluster.settle();
    cluster.beat();
    cluster.store_away = true;
    let count = 2 * LAG_BYTES_MAX / write_bytes;
    for n in 1..=count as u64 {
        cluster.write(blocks(n, (n % 8) as u16 * WRITE_BLOCKS, WRITE_BLOCKS)).unwrap();
        while cluster.persist(device(0)) {}
        while cluster.deliver(device(0), device(1)) {}
        while cluster.persist(device(1)) {}
        while cluster.deliver_answer(device(0), device(1)) {}
        assert_eq!(cluster.answered[&RequestId(n)], Ok(()), "the others are enough");
    }
    let sent = cluster.prepares.iter().filter(|(to, _)| *to == device(2)).count();
    assert!(sent * write_bytes <= LAG_BYTES_MAX + write_bytes, "{sent} writes are on their way");
    assert!(window.bytes() <= LAG_BYTES_MAX + 2 * write_bytes, "{}", window.bytes());
    // It gets what was sent, and does not complain of a gap.
    while cluster.deliver(device(0), device(2)) {}
    while cluster.persist(device(2)) {}
    while cluster.deliver_answer(device(0), device(2)) {}
    assert_eq!(window.bytes(), 0);
    cluster.store_away = false;
    cluster.pass(10 * SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3, "left behind, and brought up to date");
    assert!(cluster.map(2) == cluster.map(0), "the copies differ");
}

#[test]
fn a_copy_that_lags_for_a_moment_goes_on() {
    let mut cluster = Cluster::with_rule(3, AckRule::Majority, &[]);
    for n in 1..=3000 {
        cluster.write(blocks(n, n as u16 % 900, 1)).unwrap();
        while cluster.persist(device(0)) {}
        while cluster.deliver(device(0), device(1)) {}
        while cluster.persist(device(1)) {}
        while cluster.deliver_answer(device(0), device(1)) {}
    }
    cluster.settle();
    cluster.pass(SECOND);
    assert_eq!(cluster.config.in_sync.len(), 3);
    assert!(cluster.repaired == 0 && cluster.map(2) == cluster.map(0), "it was not left behind");
}
