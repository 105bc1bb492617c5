//! Random schedules: whatever the order of messages, disk writes, breaks and restarts, the copies agree, nothing
//! acknowledged is lost, and every write is applied once.

#![allow(clippy::unwrap_used)]

use crate::support::*;
use azekura_base::*;
use azekura_replica::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// Something that happens; `u32`s name copies.
#[derive(Clone, Debug)]
enum Step {
    Write {
        block: u16,
        partial: bool,
    },
    /// The gateway asks again for everything that it has no good answer to.
    Retry,
    Deliver(u32, u32),
    Answer(u32, u32),
    Persist(u32),
    Decide,
    LoadEdge,
    Beat,
    Break(u32, u32),
    /// A primary is to hand over.
    HandOver(u32, u32),
    /// A copy takes leave; its process goes on until it is restarted.
    Leave(u32),
    /// A copy's device hangs, or answers again.
    Hang(u32, bool),
    /// A copy's connections are cut.
    Isolate(u32),
    Heal,
    /// Time passes, in hundredths of a second.
    Pass(u64),
    /// A copy reads what it wants to.
    Load(u32),
    Restart {
        n: u32,
        kept: usize,
    },
}

impl Step {
    /// The copies that it names exist.
    fn is_of(&self, copies: u32) -> bool {
        match self {
            Step::Deliver(a, b) | Step::Answer(a, b) | Step::Break(a, b) | Step::HandOver(a, b) => a.max(b) < &copies,
            Step::Persist(n) | Step::Leave(n) | Step::Hang(n, _) | Step::Isolate(n) | Step::Load(n) => *n < copies,
            Step::Restart { n, .. } => *n < copies,
            _ => true,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let copy = || 0u32..4;
    prop_oneof![
        6 => (0u16..4, any::<bool>()).prop_map(|(block, partial)| Step::Write { block, partial }),
        3 => Just(Step::Retry),
        12 => (copy(), copy()).prop_map(|(a, b)| Step::Deliver(a, b)),
        12 => (copy(), copy()).prop_map(|(a, b)| Step::Answer(a, b)),
        12 => copy().prop_map(Step::Persist),
        4 => Just(Step::Decide),
        4 => Just(Step::LoadEdge),
        2 => Just(Step::Beat),
        1 => (copy(), copy()).prop_map(|(a, b)| Step::Break(a, b)),
        1 => (copy(), copy()).prop_map(|(a, b)| Step::HandOver(a, b)),
        1 => copy().prop_map(Step::Leave),
        1 => (copy(), any::<bool>()).prop_map(|(n, hangs)| Step::Hang(n, hangs)),
        1 => copy().prop_map(Step::Isolate),
        1 => Just(Step::Heal),
        6 => (1u64..120).prop_map(Step::Pass),
        3 => copy().prop_map(Step::Load),
        1 => (copy(), 0usize..4).prop_map(|(n, kept)| Step::Restart { n, kept }),
    ]
}

fn request(number: u64, block: u16, partial: bool) -> azekura_wire::WriteRequest {
    if partial { bytes(number, u32::from(block) * BLOCK_SIZE as u32 + 512, 5000) } else { blocks(number, block, 1) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn copies_agree_and_nothing_is_lost_or_applied_twice(
        rule in prop_oneof![Just(AckRule::All), Just(AckRule::Majority), Just(AckRule::EachSite)],
        copies in 3u32..5,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let copies = if rule == AckRule::All { 3 } else { copies };
        let mut cluster = Cluster::with_rule(copies, rule, &["a", "a", "b", "b"]);
        let mut asked = Vec::new();
        let mut acknowledged = BTreeSet::new();
        let mut leaving = BTreeSet::new();
        for step in steps.into_iter().filter(|step| step.is_of(copies)) {
            match step {
                Step::Write { block, partial } => {
                    asked.push((block, partial));
                    cluster.write(request(asked.len() as u64, block, partial)).unwrap();
                }
                Step::Retry => {
                    for (at, (block, partial)) in asked.iter().enumerate() {
                        let number = at as u64 + 1;
                        if !acknowledged.contains(&RequestId(number)) {
                            cluster.write(request(number, *block, *partial)).unwrap();
                        }
                    }
                }
                Step::Deliver(from, to) => drop(cluster.deliver(device(from), device(to))),
                Step::Answer(from, to) => drop(cluster.deliver_answer(device(from), device(to))),
                Step::Persist(n) => drop(cluster.persist(device(n))),
                Step::Decide => drop(cluster.decide()),
                Step::LoadEdge => drop(cluster.load_edge()),
                Step::Beat => cluster.beat(),
                Step::Break(from, to) if from != to => cluster.connect(device(from), device(to)),
                Step::Break(..) => {}
                Step::HandOver(from, to) => {
                    cluster.group(from).hand_over(device(to));
                    cluster.run(device(from));
                }
                Step::Leave(n) => {
                    leaving.insert(n);
                    cluster.group(n).leave();
                    cluster.run(device(n));
                }
                Step::Hang(n, hangs) => cluster.hang(n, hangs),
                Step::Isolate(n) => cluster.isolate(n),
                Step::Heal => cluster.heal(),
                Step::Pass(hundredths) => cluster.tick_all(Duration::from_millis(10 * hundredths)),
                Step::Load(n) => drop(cluster.load(device(n))),
                Step::Restart { n, kept } => {
                    leaving.remove(&n);
                    cluster.restart(n, kept);
                    cluster.reconnect(n);
                }
            }
            let good = cluster.answered.iter().filter(|(_, answer)| answer.is_ok()).map(|(request, _)| *request);
            acknowledged.extend(good);
        }
        for n in leaving {
            cluster.restart(n, usize::MAX);
        }
        (0..copies).for_each(|n| cluster.hang(n, false));
        cluster.heal();
        cluster.pass(Duration::from_secs(15));
        if cluster.config.in_sync.len() < copies as usize {
            // A copy that was slow stays away for half a minute.
            cluster.pass(Duration::from_secs(30));
        }
        prop_assert_eq!(cluster.config.in_sync.len(), copies as usize, "everybody comes back: {:?}", cluster.config);
        prop_assert_eq!(cluster.state(cluster.primary()), GroupState::Active);
        let committed = cluster.committed(cluster.primary());
        cluster.beat();
        for n in 0..copies {
            prop_assert_eq!(cluster.committed(n), committed);
            prop_assert_eq!(cluster.map(n), cluster.map(0), "copy {}", n);
        }
        let applied: BTreeSet<_> = cluster.history.values().collect();
        prop_assert_eq!(applied.len(), cluster.history.len(), "applied twice: {:?}", cluster.history);
        let lost = acknowledged.iter().find(|request| !applied.contains(&(SESSION, **request)));
        prop_assert!(lost.is_none(), "{:?} was acknowledged and is lost", lost);
    }
}
