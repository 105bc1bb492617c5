//! Fairness between connections, with a gateway that does one request after the other.

use azekura_frontend::{TurnLimits, Turns};
use std::collections::{BTreeMap, VecDeque};

const LIMITS: TurnLimits = TurnLimits { connection_requests_max: 1024, window_requests: 1024, window_bytes: 32 << 20 };

/// A client that keeps so many requests of so many bytes outstanding, one of which at a time is at the door.
struct Client {
    depth: usize,
    bytes: usize,
    outstanding: usize,
    at_the_door: bool,
    done: usize,
    /// The longest time between two answers.
    pause_max: usize,
    answered_at: usize,
}

impl Client {
    fn new(depth: usize, bytes: usize) -> Client {
        Client { depth, bytes, outstanding: 0, at_the_door: false, done: 0, pause_max: 0, answered_at: 0 }
    }
}

/// A gateway with the window of the limits that answers `steps` requests, in the order in which they came.
fn run(clients: &mut BTreeMap<u32, Client>, steps: usize) {
    let mut turns = Turns::new(LIMITS);
    let mut window: VecDeque<(u32, usize)> = VecDeque::new();
    let mut bytes_under_way = 0;
    for step in 0..steps {
        turns.begin_round();
        loop {
            for (id, client) in clients.iter_mut() {
                if !client.at_the_door && client.outstanding < client.depth {
                    client.at_the_door = true;
                    turns.ask(*id, client.bytes);
                }
            }
            if window.len() >= LIMITS.window_requests || bytes_under_way >= LIMITS.window_bytes {
                break;
            }
            let Some(id) = turns.let_in(|_| true) else { break };
            let client = clients.get_mut(&id).expect("it has asked");
            (client.at_the_door, client.outstanding) = (false, client.outstanding + 1);
            window.push_back((id, client.bytes));
            bytes_under_way += client.bytes;
        }
        let Some((id, bytes)) = window.pop_front() else { continue };
        bytes_under_way -= bytes;
        turns.ended(id, bytes);
        let client = clients.get_mut(&id).expect("it has asked");
        client.outstanding -= 1;
        client.done += 1;
        client.pause_max = client.pause_max.max(step - client.answered_at);
        client.answered_at = step;
    }
}

#[test]
fn thirty_two_clients_at_depth_64_get_the_same() {
    let mut clients: BTreeMap<u32, Client> = (0..32).map(|id| (id, Client::new(64, 4096))).collect();
    run(&mut clients, 32_000);
    let done: Vec<usize> = clients.values().map(|client| client.done).collect();
    assert!(done.iter().all(|done| (900..=1100).contains(done)), "{done:?}");
    let pauses: Vec<usize> = clients.values().map(|client| client.pause_max).collect();
    assert!(pauses.iter().all(|pause| *pause < 1500), "{pauses:?}");
}

#[test]
fn a_client_that_fills_the_window_leaves_the_others_their_part() {
    let mut clients: BTreeMap<u32, Client> = (1..=8).map(|id| (id, Client::new(4, 4096))).collect();
    clients.insert(0, Client::new(5000, 4096));
    run(&mut clients, 50_000);
    for (id, client) in clients.iter().filter(|(id, _)| **id > 0) {
        // Each answer waits for what is in the window, never for the door.
        assert!(client.done >= 4 * 50_000 / 1024 * 9 / 10, "client {id} got {}", client.done);
    }
    assert!(clients[&0].done > 45_000, "what the others don't want is the large one's: {}", clients[&0].done);
}

#[test]
fn large_requests_are_counted_by_their_bytes() {
    let mut clients = BTreeMap::from([(0, Client::new(64, 1 << 20)), (1, Client::new(64, 4096))]);
    run(&mut clients, 20_000);
    let (large, small) = (clients[&0].done, clients[&1].done);
    assert!(small > 2 * large, "{small} small requests beside {large} large ones");
    assert!(large > 1000, "{large} large requests");
}

#[test]
fn a_connection_has_a_limit_also_when_it_is_alone() {
    let mut turns = Turns::new(TurnLimits { connection_requests_max: 3, ..LIMITS });
    turns.begin_round();
    for _ in 0..3 {
        turns.ask(1, 10);
        assert_eq!(turns.let_in(|_| true), Some(1));
    }
    turns.ask(1, 10);
    assert_eq!(turns.let_in(|_| true), None);
    assert!(!turns.has_waiting() && turns.is_waiting(1), "nobody is to be asked again before something ends");
    turns.ended(1, 10);
    turns.begin_round();
    assert_eq!(turns.let_in(|_| true), Some(1));
}

#[test]
fn who_is_gone_takes_nobody_s_turn() {
    let mut turns = Turns::new(LIMITS);
    (1..=3).for_each(|conn| turns.ask(conn, 10));
    turns.gone(2);
    turns.begin_round();
    assert_eq!((turns.let_in(|_| true), turns.let_in(|_| true), turns.let_in(|_| true)), (Some(1), Some(3), None));
    turns.gone(1);
    turns.ended(1, 10);
    turns.ended(3, 10);
    assert!(!turns.has_waiting());
}
