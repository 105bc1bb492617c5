//! Attachments that have ended: once a fence is confirmed, no write of theirs is applied any more, whoever reigns.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const OK: Option<&Result<(), IoStatus>> = Some(&Ok(()));
const REFUSED: Option<&Result<(), IoStatus>> = Some(&Err(IoStatus::Fenced));
const ASK_THE_PRIMARY: Option<&Result<(), IoStatus>> = Some(&Err(IoStatus::Redirect));

#[test]
fn a_fence_waits_until_what_was_ordered_is_committed() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.fence(0, 7, 2);
    assert_eq!(cluster.fenced.get(&RequestId(7)), None, "the write may still be applied");
    cluster.settle();
    assert_eq!(cluster.answered.get(&RequestId(1)), OK);
    assert_eq!(cluster.fenced.get(&RequestId(7)), OK);
    cluster.fence(0, 8, 3);
    assert_eq!(cluster.fenced.get(&RequestId(8)), OK, "nothing is under way");
}

#[test]
fn what_has_no_place_in_the_order_is_refused() {
    let mut cluster = Cluster::new(2);
    // The first is being merged, the others wait for it; the last is of an attachment that stands.
    cluster.write(bytes(1, 512, 100)).unwrap();
    cluster.write(blocks(2, 0, 1)).unwrap();
    let mut stands = blocks(3, 0, 1);
    stands.attachment = Generation(2);
    cluster.write(stands).unwrap();
    cluster.fence(0, 7, 2);
    assert_eq!(cluster.answered.get(&RequestId(1)), REFUSED);
    assert_eq!(cluster.answered.get(&RequestId(2)), REFUSED);
    assert_eq!(cluster.fenced.get(&RequestId(7)), OK);
    while cluster.load_edge() {}
    cluster.settle();
    assert_eq!(cluster.answered.get(&RequestId(3)), OK, "what was in its way is gone");
    assert_eq!(cluster.order(0), [RequestId(3)]);
}

#[test]
fn another_volume_is_not_concerned() {
    let mut cluster = Cluster::new(2);
    let mut other = bytes(1, 512, 100);
    other.volume = VolumeId(VOLUME.0 + 1);
    cluster.write(other).unwrap();
    cluster.fence(0, 7, 2);
    while cluster.load_edge() {}
    cluster.settle();
    assert_eq!(cluster.answered.get(&RequestId(1)), OK);
}

#[test]
fn only_a_primary_with_its_lease_confirms() {
    let mut cluster = Cluster::new(2);
    cluster.fence(1, 7, 2);
    assert_eq!(cluster.fenced.get(&RequestId(7)), ASK_THE_PRIMARY);
    // Cut off, it does not know whether another one reigns already, which might not know of the fence.
    cluster.isolate(0);
    for _ in 0..30 {
        cluster.tick_all(TICK);
    }
    cluster.fence(0, 8, 2);
    assert_eq!(cluster.fenced.get(&RequestId(8)), ASK_THE_PRIMARY);
}

#[test]
fn a_primary_that_is_replaced_sends_the_asker_away() {
    let mut cluster = Cluster::new(2);
    cluster.write(blocks(1, 0, 1)).unwrap();
    cluster.fence(0, 7, 2);
    cluster.isolate(0);
    for _ in 0..30 {
        cluster.tick_all(TICK);
        while cluster.decide_without(device(0)) {}
    }
    cluster.heal();
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.primary(), 1);
    assert_eq!(cluster.fenced.get(&RequestId(7)), ASK_THE_PRIMARY);
    cluster.fence(1, 8, 2);
    assert_eq!(cluster.fenced.get(&RequestId(8)), OK);
}

/// Something that happens; `u32`s name copies.
#[derive(Clone, Debug)]
enum Step {
    Write {
        block: u16,
        partial: bool,
    },
    Retry,
    /// The volume is attached anew, and all earlier attachments end.
    Attach,
    /// A copy is asked to confirm that.
    Fence(u32),
    Deliver(u32, u32),
    Answer(u32, u32),
    Persist(u32),
    Decide,
    LoadEdge,
    Beat,
    Isolate(u32),
    Heal,
    Pass(u64),
    Load(u32),
    Restart {
        n: u32,
        kept: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let copy = || 0u32..3;
    prop_oneof![
        6 => (0u16..4, any::<bool>()).prop_map(|(block, partial)| Step::Write { block, partial }),
        2 => Just(Step::Retry),
        2 => Just(Step::Attach),
        6 => copy().prop_map(Step::Fence),
        12 => (copy(), copy()).prop_map(|(a, b)| Step::Deliver(a, b)),
        12 => (copy(), copy()).prop_map(|(a, b)| Step::Answer(a, b)),
        12 => copy().prop_map(Step::Persist),
        4 => Just(Step::Decide),
        4 => Just(Step::LoadEdge),
        3 => Just(Step::Beat),
        1 => copy().prop_map(Step::Isolate),
        1 => Just(Step::Heal),
        6 => (1u64..120).prop_map(Step::Pass),
        3 => copy().prop_map(Step::Load),
        1 => (copy(), 0usize..4).prop_map(|(n, kept)| Step::Restart { n, kept }),
    ]
}

/// What nodes do around the group: they refuse what arrives from ended attachments. `known` is what each has heard of.
struct Nodes {
    /// As the configuration says.
    generation: u64,
    known: BTreeMap<u32, u64>,
    asked: Vec<(u16, bool, u64)>,
}

impl Nodes {
    fn write(&self, cluster: &mut Cluster, number: u64) {
        let (block, partial, attachment) = self.asked[number as usize - 1];
        let mut write = if partial {
            bytes(number, u32::from(block) * BLOCK_SIZE as u32 + 512, 5000)
        } else {
            blocks(number, block, 1)
        };
        write.attachment = Generation(attachment);
        if attachment >= self.known[&cluster.primary()] {
            cluster.write(write).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_an_ended_attachment_lands_after_the_fence_is_confirmed(
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut cluster = Cluster::new(3);
        let mut nodes = Nodes { generation: 1, known: (0..3).map(|n| (n, 1)).collect(), asked: Vec::new() };
        let mut fences = 0;
        // Fences by request: the generation asked for. And what was applied when one was confirmed.
        let mut open = BTreeMap::new();
        let mut confirmed: BTreeMap<u64, BTreeSet<(SessionId, RequestId)>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Write { block, partial } => {
                    nodes.asked.push((block, partial, nodes.generation));
                    let number = nodes.asked.len() as u64;
                    nodes.write(&mut cluster, number);
                }
                Step::Retry => (1..=nodes.asked.len() as u64).for_each(|number| nodes.write(&mut cluster, number)),
                Step::Attach => nodes.generation += 1,
                Step::Fence(n) => {
                    fences += 1;
                    nodes.known.insert(n, nodes.generation);
                    open.insert(RequestId(1000 + fences), nodes.generation);
                    cluster.fence(n, 1000 + fences, nodes.generation);
                }
                Step::Deliver(from, to) => drop(cluster.deliver(device(from), device(to))),
                Step::Answer(from, to) => drop(cluster.deliver_answer(device(from), device(to))),
                Step::Persist(n) => drop(cluster.persist(device(n))),
                Step::Decide => {
                    // A copy that may reign knows the configuration as of its claim.
                    cluster.decide();
                    nodes.known.insert(cluster.primary(), nodes.generation);
                }
                Step::LoadEdge => drop(cluster.load_edge()),
                Step::Beat => cluster.beat(),
                Step::Isolate(n) => cluster.isolate(n),
                Step::Heal => cluster.heal(),
                Step::Pass(hundredths) => cluster.tick_all(Duration::from_millis(10 * hundredths)),
                Step::Load(n) => drop(cluster.load(device(n))),
                Step::Restart { n, kept } => {
                    cluster.restart(n, kept);
                    cluster.reconnect(n);
                }
            }
            let applied = || cluster.history.values().copied().collect();
            for (request, generation) in &open {
                if cluster.fenced.get(request) == OK {
                    confirmed.entry(*generation).or_insert_with(applied);
                }
            }
        }
        cluster.heal();
        cluster.pass(Duration::from_secs(15));
        for (generation, before) in confirmed {
            for (session, request) in cluster.history.values() {
                let attachment = nodes.asked[request.0 as usize - 1].2;
                let late = attachment < generation && !before.contains(&(*session, *request));
                prop_assert!(!late, "{:?} of attachment {} is applied after {} was confirmed", request, attachment, generation);
            }
        }
    }
}
