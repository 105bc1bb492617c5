//! The record of attachments: who may stand beside whom, and who is put out.

use super::*;
use proptest::prelude::*;

const NOBODY_GONE: fn(NodeId, u64) -> bool = |_, _| false;

fn client(node: u32, incarnation: u64) -> AttachWish {
    AttachWish {
        node: NodeId(node),
        incarnation: Some(incarnation),
        host: None,
        to_write: false,
        shared: false,
        force: false,
    }
}

fn by_name(node: u32) -> AttachWish {
    AttachWish { incarnation: None, ..client(node, 0) }
}

fn none() -> AttachmentsRecord {
    AttachmentsRecord::none(VolumeId(1))
}

fn nodes(record: &AttachmentsRecord) -> Vec<u32> {
    record.attachments.iter().map(|entry| entry.node.0).collect()
}

#[test]
fn a_client_comes_and_goes() {
    let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
    assert_eq!((attached.generation, attached.fence_due, nodes(&attached)), (Generation(1), false, vec![1]));
    assert_eq!(attached.attach(&client(1, 5), NOBODY_GONE, "u").unwrap(), attached, "its second connection");
    let back = attached.give_back(NodeId(1), Generation(1)).unwrap();
    assert_eq!((back.generation, back.fence_due, nodes(&back)), (Generation(2), false, vec![]));
    assert_eq!(back.give_back(NodeId(1), Generation(1)), None);
}

#[test]
fn another_nodes_client_waits_unless_the_process_is_gone() {
    let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
    let refused = attached.attach(&client(2, 9), NOBODY_GONE, "t").unwrap_err();
    assert_eq!(refused, InTheWay::Holder(Box::new(attached.attachments[0].clone())));
    let taken = attached.attach(&client(2, 9), |node, incarnation| (node.0, incarnation) == (1, 5), "t").unwrap();
    assert_eq!((nodes(&taken), taken.fence_due), (vec![2], true));
    assert_eq!(taken.standing(), [Generation(2)]);
}

#[test]
fn a_process_does_not_go_on_with_the_attachment_of_the_one_before() {
    let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
    let again = attached.attach(&client(1, 6), NOBODY_GONE, "t").unwrap();
    assert_eq!((again.standing(), again.fence_due), (vec![Generation(2)], true));
}

#[test]
fn what_was_asked_for_by_name_stays() {
    let pinned = none().attach(&by_name(1), NOBODY_GONE, "t").unwrap();
    assert!(!pinned.fence_due && pinned.attachments[0].pinned);
    assert!(pinned.attach(&client(2, 9), |_, _| true, "t").is_err(), "nobody takes it over by himself");
    let used = pinned.attach(&client(1, 5), NOBODY_GONE, "u").unwrap();
    assert_eq!((used.attachments[0].incarnation, used.attachments[0].since.as_str()), (Some(5), "t"));
    assert!(used.attachments[0].pinned && !used.fence_due);
    let unused = used.give_back(NodeId(1), used.attachments[0].generation).unwrap();
    assert_eq!((nodes(&unused), unused.attachments[0].incarnation), (vec![1], None));
    assert!(!unused.standing().contains(&used.attachments[0].generation));
    assert!(used.attach(&client(2, 9), |_, _| true, "t").is_err());
    let forced = used.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((nodes(&forced), forced.fence_due), (vec![2], true));
    let forced = unused.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
    assert!(!forced.fence_due, "nobody had used it");
}

#[test]
fn naming_a_node_that_has_it_already_pins_what_it_has() {
    let attached = none().attach(&client(1, 5), NOBODY_GONE, "t").unwrap();
    let pinned = attached.attach(&by_name(1), NOBODY_GONE, "u").unwrap();
    assert_eq!(pinned.standing(), attached.standing(), "its clients go on");
    assert!(pinned.attachments[0].pinned && pinned.generation > attached.generation);
}

#[test]
fn shared_attachments_stand_side_by_side() {
    let shared = |node, incarnation| AttachWish { shared: true, ..client(node, incarnation) };
    let one = none().attach(&shared(1, 5), NOBODY_GONE, "t").unwrap();
    let two = one.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
    assert_eq!((nodes(&two), two.fence_due), (vec![1, 2], false));
    assert!(two.attach(&client(3, 1), NOBODY_GONE, "t").is_err(), "an exclusive one does not come between");
    let alone = two.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((nodes(&alone), alone.fence_due), (vec![2], true));
    assert_eq!(alone.standing(), [Generation(2)], "and goes on");
    let cut = two.detach(Some(NodeId(1))).unwrap();
    assert_eq!((cut.standing(), cut.fence_due), (vec![Generation(2)], true));
    assert_eq!(two.detach(Some(NodeId(7))), None);
    assert_eq!(nodes(&two.detach(None).unwrap()), [0; 0]);
    let third = two.attach(&shared(3, 1), |node, _| node == NodeId(1), "t").unwrap();
    assert_eq!((nodes(&third), third.fence_due), (vec![2, 3], true), "the dead are cleared away");
}

#[test]
fn who_is_put_out_may_come_again_by_another_name() {
    let shared = |node, incarnation| AttachWish { shared: true, ..client(node, incarnation) };
    let pinned = none().attach(&AttachWish { shared: true, ..by_name(1) }, NOBODY_GONE, "t").unwrap();
    assert_eq!(pinned.put_out(&pinned.standing().into_iter().collect()), None, "no process has it");
    let used = pinned.attach(&shared(1, 5), NOBODY_GONE, "t").unwrap();
    let two = used.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
    let name = |record: &AttachmentsRecord, node| record.of(NodeId(node), None).map(|entry| entry.generation);
    let first: BTreeSet<Generation> = name(&two, 1).into_iter().collect();
    let out = two.put_out(&first).unwrap();
    assert_eq!((nodes(&out), out.fence_due), (vec![1, 2], true));
    assert!(!out.standing().contains(&name(&two, 1).unwrap()) && name(&out, 2) == name(&two, 2));
    assert!(out.attachments[0].pinned && out.attachments[0].incarnation.is_none());
    assert_eq!(out.put_out(&first), None);
    let all = two.put_out(&two.standing().into_iter().collect()).unwrap();
    assert_eq!((nodes(&all), all.fence_due), (vec![1], true));
    let again = all.attach(&shared(2, 9), NOBODY_GONE, "t").unwrap();
    assert!(name(&again, 2) > name(&two, 2));
}

#[test]
fn there_is_a_limit() {
    let mut record = none();
    for node in 0..VOLUME_ATTACHMENTS_MAX as u32 {
        let wish = AttachWish { shared: true, ..client(node, 1) };
        record = record.attach(&wish, NOBODY_GONE, "t").unwrap();
    }
    let wish = AttachWish { shared: true, ..client(1000, 1) };
    assert_eq!(record.attach(&wish, NOBODY_GONE, "t"), Err(InTheWay::TooMany));
}

/// A host's wish.
fn of_host(host: u8, node: u32) -> AttachWish {
    AttachWish { host: host_name(host), ..client(node, 5) }
}

fn host_name(host: u8) -> Option<HostName> {
    [None, "iqn.2026-01.example:a".parse().ok(), "iqn.2026-01.example:b".parse().ok()][usize::from(host)].clone()
}

/// Who stands, and whether that is to write.
fn who(record: &AttachmentsRecord) -> Vec<(u32, bool)> {
    record.attachments.iter().map(|entry| (entry.node.0, !entry.reads_only)).collect()
}

fn pairs(record: &AttachmentsRecord) -> Vec<(&AttachmentRecord, &AttachmentRecord)> {
    let all = &record.attachments;
    (0..all.len()).flat_map(|a| (0..a).map(move |b| (&all[a], &all[b]))).collect()
}

#[test]
fn a_host_comes_through_several_nodes_and_writes_through_one() {
    let one = none().attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    let two = one.attach(&of_host(1, 2), NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&two), two.fence_due), (vec![(1, true), (2, false)], false), "an exclusive volume");
    assert!(two.attach(&of_host(2, 3), NOBODY_GONE, "t").is_err(), "which is for one host");
    assert!(two.attach(&client(3, 5), NOBODY_GONE, "t").is_err());
    assert!(two.attach(&client(1, 5), NOBODY_GONE, "t").is_err(), "and for one node's clients, where none is known");
    let again = two.attach(&of_host(1, 2), NOBODY_GONE, "t").unwrap();
    assert_eq!(again, two, "its second session");

    let moved = two.attach(&AttachWish { to_write: true, ..of_host(1, 2) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&moved), moved.fence_due), (vec![(2, true)], true));
    let name = |record: &AttachmentsRecord, node| record.of(NodeId(node), host_name(1).as_ref()).unwrap().generation;
    assert!(name(&moved, 2) > name(&two, 2), "what it had sent there before is another attachment's");
    let back = AttachmentsRecord { fence_due: false, ..moved }.attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&back), back.fence_due), (vec![(1, false), (2, true)], false));
    assert!(name(&back, 1) > name(&two, 1), "what it had sent before is another attachment's");

    let left = back.give_back(NodeId(2), name(&back, 2)).unwrap();
    assert_eq!(who(&left), [(1, false)]);
    let writes = left.attach(&AttachWish { to_write: true, ..of_host(1, 1) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&writes), writes.fence_due), (vec![(1, true)], true), "also where nobody is in the way");
    let still = AttachmentsRecord { fence_due: false, ..writes }.attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&still), still.fence_due), (vec![(1, true)], false), "and so it stays");
}

/// A property test's find: the reader became a writer under the name that it had, when another session of it came.
#[test]
fn who_reads_goes_on_reading_when_the_writer_is_gone() {
    let two = none().attach(&of_host(1, 3), NOBODY_GONE, "t").unwrap();
    let two = two.attach(&of_host(1, 2), NOBODY_GONE, "t").unwrap();
    let left = two.give_back(NodeId(3), two.of(NodeId(3), host_name(1).as_ref()).unwrap().generation).unwrap();
    let again = left.attach(&of_host(1, 2), NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&again), again == left), (vec![(2, false)], true));
    let next = again.attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    assert_eq!(who(&next), [(1, true), (2, false)], "whoever comes new may write");
}

#[test]
fn a_host_whose_node_has_died_writes_through_the_next() {
    let two = none().attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    let two = two.attach(&of_host(1, 2), NOBODY_GONE, "t").unwrap();
    let three = two.attach(&of_host(1, 3), |node, _| node.0 == 1, "t").unwrap();
    assert_eq!((who(&three), three.fence_due), (vec![(2, false), (3, true)], true));
    let restarted = two.attach(&AttachWish { incarnation: Some(6), ..of_host(1, 1) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&restarted), restarted.fence_due), (vec![(1, true), (2, false)], true));
    let other = none().attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    let other = other.attach(&AttachWish { incarnation: Some(6), ..client(1, 6) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((who(&other), other.fence_due), (vec![(1, true)], true), "the former process is over for all");
}

#[test]
fn a_host_that_has_just_turned_to_a_node_stays_there() {
    const NOW: u64 = 1_800_000_000;
    let made = |seconds: u64| none().attach(&of_host(1, 1), NOBODY_GONE, &rfc3339_seconds(seconds)).unwrap();
    let host = host_name(1).unwrap();
    let alive = |_| true;
    for (made_at, stays) in [(NOW, true), (NOW - 5, true), (NOW - 6, false), (NOW + 1, false)] {
        assert_eq!(made(made_at).has_just_turned(&host, NodeId(2), NOW, alive), stays, "{made_at}");
    }
    assert!(!made(NOW).has_just_turned(&host, NodeId(2), NOW, |_| false), "a dead node keeps nothing");
    assert!(!made(NOW).has_just_turned(&host, NodeId(1), NOW, alive), "nor does one keep from itself");
    assert!(!made(NOW).has_just_turned(&host_name(2).unwrap(), NodeId(2), NOW, alive), "another host's");
    let two = made(NOW - 60).attach(&of_host(1, 2), NOBODY_GONE, &rfc3339_seconds(NOW)).unwrap();
    assert!(!two.has_just_turned(&host, NodeId(3), NOW, alive), "who reads has nothing to keep");
}

#[test]
fn hosts_of_a_shared_volume_do_not_put_each_other_out() {
    let shared = |wish: AttachWish| AttachWish { shared: true, ..wish };
    let wishes = [of_host(1, 1), of_host(2, 1), of_host(1, 2), of_host(2, 3), client(2, 5)];
    let all = wishes.into_iter().fold(none(), |all, wish| all.attach(&shared(wish), NOBODY_GONE, "t").unwrap());
    assert_eq!(who(&all), [(1, true), (1, true), (2, true), (2, false), (3, false)]);
    let moved = all.attach(&shared(AttachWish { to_write: true, ..of_host(1, 2) }), NOBODY_GONE, "t").unwrap();
    let writers: Vec<(u32, bool)> = who(&moved).into_iter().filter(|(_, writes)| *writes).collect();
    assert_eq!((who(&moved).len(), writers), (4, vec![(1, true), (2, true), (2, true)]));
    assert_eq!(who(&all.detach(Some(NodeId(2))).unwrap()), [(1, true), (1, true), (3, false)]);
}

#[test]
fn hosts_use_what_was_asked_for_by_name() {
    let pinned = none().attach(&by_name(1), NOBODY_GONE, "t").unwrap();
    let used = pinned.attach(&of_host(1, 1), NOBODY_GONE, "t").unwrap();
    assert_eq!(nodes(&used), [1, 1]);
    assert!(used.attach(&of_host(1, 2), NOBODY_GONE, "t").is_err(), "it is for that node");
    let forced = used.attach(&AttachWish { force: true, ..by_name(2) }, NOBODY_GONE, "t").unwrap();
    assert_eq!((nodes(&forced), forced.fence_due), (vec![2], true));
    let left = used.give_back(NodeId(1), used.attachments[1].generation).unwrap();
    assert!(left.attachments.len() == 1 && left.attachments[0].pinned);
    let out = used.put_out(&used.standing().into_iter().collect()).unwrap();
    assert!(out.attachments.len() == 1 && out.attachments[0].pinned && out.fence_due);
}

#[derive(Clone, Debug)]
enum Change {
    Attach(AttachWish),
    GiveBack(u32),
    Detach(Option<u32>),
}

fn change() -> impl Strategy<Value = Change> {
    let wish = (0u32..4, prop::option::of((1u64..3, 0u8..3)), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(node, client, to_write, shared, force)| AttachWish {
            node: NodeId(node),
            incarnation: client.map(|(incarnation, _)| incarnation),
            host: client.and_then(|(_, host)| host_name(host)),
            to_write,
            shared,
            force,
        },
    );
    prop_oneof![
        4 => wish.prop_map(Change::Attach),
        1 => (0u32..4).prop_map(Change::GiveBack),
        1 => prop::option::of(0u32..4).prop_map(Change::Detach),
    ]
}

proptest! {
    #[test]
    fn nobody_is_put_out_unnoticed(changes in prop::collection::vec(change(), 1..40), gone in 0u32..4) {
        let mut record = none();
        for change in changes {
            let mut given_back = None;
            let next = match change {
                Change::Attach(wish) => record.attach(&wish, |node, _| node.0 == gone, "t").ok(),
                Change::GiveBack(node) => record.of_node(NodeId(node)).last().map(|mine| mine.generation).and_then(|name| {
                    given_back = Some(name);
                    record.give_back(NodeId(node), name)
                }),
                Change::Detach(node) => record.detach(node.map(NodeId)),
            };
            let Some(next) = next.filter(|next| *next != record) else { continue };
            prop_assert_eq!(next.generation.0, record.generation.0 + 1);
            let before: Vec<_> = record.attachments.iter().filter(|entry| entry.incarnation.is_some()).collect();
            let standing = next.standing();
            let out = before.iter().any(|e| !standing.contains(&e.generation) && Some(e.generation) != given_back);
            prop_assert!(!out || next.fence_due, "{record:?} {next:?}");
            prop_assert!(standing.iter().all(|name| *name <= next.generation));
            for (a, b) in pairs(&next) {
                let together = a.node == b.node || a.shared && b.shared || a.host.is_some() && a.host == b.host;
                prop_assert!(together && !a.is_of_same(b), "{next:?}");
                let writers = [a, b].iter().filter(|entry| !entry.reads_only).count();
                prop_assert!(a.host.is_none() || a.host != b.host || writers < 2, "{next:?}");
            }
            prop_assert!(next.attachments.iter().all(|entry| !entry.reads_only || entry.host.is_some()));
            // A name is given once, to one process.
            for entry in &next.attachments {
                let same = record.attachments.iter().find(|old| old.generation == entry.generation);
                let whose = |entry: &AttachmentRecord| (entry.node, entry.incarnation, entry.host.clone());
                prop_assert!(same.is_none_or(|old| whose(old) == whose(entry)));
                prop_assert!(same.is_none_or(|old| old.reads_only == entry.reads_only));
            }
            record = AttachmentsRecord { fence_due: false, ..next };
        }
    }
}
