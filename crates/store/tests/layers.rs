//! What two layers show differently, and what the end of one would give back.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, ChunkIndex, CompareLayers, DifferingBlocks, LayerId, MeasureLayer, PgId,
};
use azekura_store::{Repair, Report};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const GROUPS: u32 = 2;
const CHUNKS: u32 = 6;
const BLOCKS: u16 = 24;
/// In the place of a layer: nothing to compare with.
const NOTHING: u64 = 0;

fn group_of(chunk: u32) -> u32 {
    chunk % GROUPS + 1
}

/// Blocks that differ, by chunk and block: whether there is data after.
type Found = BTreeMap<(u32, u16), bool>;

/// Compares two layers, so many chunks at a time.
fn compare(rig: &mut Rig, from: u64, to: u64, limit: u32) -> Found {
    let (from, to) = ((from != NOTHING).then_some(LayerId(from)), LayerId(to));
    let mut found = Found::new();
    for pg in 1..=GROUPS {
        let (pg, end) = (PgId(pg), ChunkIndex(CHUNKS));
        let mut first = ChunkIndex(0);
        loop {
            rig.store.compare_layers(5, CompareLayers { revision: 0, pg, from, to, first, end, limit });
            rig.settle();
            let report = rig.reports.iter().position(|report| matches!(report, Report::Differences { token: 5, .. }));
            let Some(Report::Differences { result, .. }) = report.map(|index| rig.reports.remove(index)) else {
                panic!("no answer")
            };
            let page = result.unwrap();
            assert!(page.chunks.len() <= limit as usize);
            for (chunk, runs) in page.chunks {
                assert!(chunk >= first.0 && page.next.is_none_or(|next| chunk < next) && group_of(chunk) == pg.0);
                for DifferingBlocks(block, count, data) in runs {
                    found.extend((block..block + count).map(|block| ((chunk, block), data)));
                }
            }
            match page.next {
                Some(next) => {
                    assert!(next > first.0 && next < end.0);
                    first = ChunkIndex(next);
                }
                None => break,
            }
        }
    }
    found
}

/// What the end of a layer would give back, in pages of about so many leaves.
fn measure(rig: &mut Rig, layer: u64, merged_into: Option<u64>, leaves_max: u32) -> u64 {
    let (mut blocks, mut from) = (0, ChunkIndex(0));
    loop {
        let (device, layer, merged_into) = (IDENTITY.device, LayerId(layer), merged_into.map(LayerId));
        rig.store.measure_layer(6, MeasureLayer { revision: 0, device, layer, merged_into, from, leaves_max });
        rig.settle();
        let report = rig.reports.iter().position(|report| matches!(report, Report::Measured { token: 6, .. }));
        let Some(Report::Measured { result, .. }) = report.map(|index| rig.reports.remove(index)) else {
            panic!("no answer")
        };
        let page = result.unwrap();
        blocks += page.bytes / BLOCK_SIZE as u64;
        match page.next {
            Some(next) => {
                assert!(next > from.0);
                from = ChunkIndex(next);
            }
            None => return blocks,
        }
    }
}

fn live_blocks(rig: &mut Rig) -> u64 {
    rig.settle_map();
    rig.store.space().live / BLOCK_SIZE as u64
}

/// Lets a job come to its end.
fn until_gone(rig: &mut Rig, layer: u64) {
    let gone = Report::LayerGone { layer: LayerId(layer) };
    for second in 1..200 {
        rig.store.tick(Duration::from_secs(second * 40));
        rig.checkpoint();
        if let Some(index) = rig.reports.iter().position(|report| *report == gone) {
            rig.reports.remove(index);
            return;
        }
    }
    panic!("layer {layer} is never gone: {}", rig.store.describe());
}

#[test]
fn what_was_written_in_between_and_no_more() {
    let mut rig = Rig::format(&tiny());
    for (layer, parent) in [(11, 10), (12, 11), (13, 11)] {
        rig.store.set_parent(LayerId(layer), LayerId(parent));
    }
    rig.write(1, 10, 0, 0, filled(1, 6), 6);
    rig.write(2, 10, 1, 0, filled(2, 6), 6);
    rig.write(1, 11, 0, 2, filled(3, 2), 2);
    rig.write(1, 11, 2, 5, Body::Zero, 1);
    rig.checkpoint();
    rig.write(2, 12, 1, 1, Body::Zero, 1);
    rig.write(1, 12, 0, 3, filled(4, 1), 1);
    rig.write(2, 13, 3, 7, filled(5, 1), 1);
    let at = |blocks: &[(u32, u16, bool)]| -> Found { blocks.iter().map(|(c, b, data)| ((*c, *b), *data)).collect() };
    for limit in [1, 2, 100] {
        assert_eq!(compare(&mut rig, 10, 10, limit), at(&[]));
        assert_eq!(compare(&mut rig, 10, 11, limit), at(&[(0, 2, true), (0, 3, true)]));
        assert_eq!(compare(&mut rig, 11, 12, limit), at(&[(0, 3, true), (1, 1, false)]));
        let two = [(0, 2, true), (0, 3, true), (1, 1, false)];
        assert_eq!(compare(&mut rig, 10, 12, limit), at(&two));
        // Another branch, and backwards.
        assert_eq!(compare(&mut rig, 12, 13, limit), at(&[(0, 3, true), (1, 1, true), (3, 7, true)]));
        assert_eq!(compare(&mut rig, 13, 12, limit), at(&[(0, 3, true), (1, 1, false), (3, 7, false)]));
        // All that a layer shows; what was trimmed in it is not there.
        assert_eq!([12, 99].map(|layer| compare(&mut rig, NOTHING, layer, limit).len()), [11, 0]);
    }
}

#[test]
fn writes_that_are_committed_and_wait_for_a_leaf_are_seen() {
    let mut rig = Rig::format(&tiny());
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.write(1, 10, 0, 0, filled(1, 6), 6);
    rig.checkpoint();
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open_with(&tiny(), disk, map, |store| store.set_parent(LayerId(11), LayerId(10))).unwrap();
    let write = rig.next_write(1, 11, 0, 2, filled(2, 1), 1);
    let sequence = write.header.sequence;
    rig.store.append(1, write);
    rig.store.pump();
    rig.take_effects();
    rig.finish_write(0);
    // The leaf of the layer below has been asked for and does not come before the question.
    rig.store.commit(PgId(1), sequence);
    rig.take_effects();
    assert_eq!(compare(&mut rig, 10, 11, 100), Found::from([((0, 2), true)]));
}

#[test]
fn a_layer_tells_what_its_end_gives_back() {
    let mut rig = Rig::format(&tiny());
    rig.store.set_parent(LayerId(11), LayerId(10));
    rig.store.set_parent(LayerId(12), LayerId(11));
    for chunk in 0..4 {
        rig.write(1, 10, chunk, 0, filled(1, 6), 6);
    }
    rig.write(1, 11, 1, 0, filled(2, 2), 2);
    rig.write(1, 11, 2, 5, Body::Zero, 1);
    rig.checkpoint();
    rig.write(1, 12, 3, 0, filled(3, 1), 1);
    for leaves_max in [1, 3, 100] {
        assert_eq!(measure(&mut rig, 10, Some(11), leaves_max), 3);
        // As if the one in between were gone as well.
        assert_eq!(measure(&mut rig, 10, Some(12), leaves_max), 4);
        assert_eq!(measure(&mut rig, 10, None, leaves_max), 24);
        assert_eq!(measure(&mut rig, 11, Some(12), leaves_max), 0);
        assert_eq!(measure(&mut rig, 12, None, leaves_max), 1);
    }
    assert_eq!(rig.store.layers().map(|(_, blocks)| blocks).collect::<Vec<_>>(), [24, 2, 1]);
    let before: Vec<_> = (0..4).map(|chunk| rig.read(1, 11, chunk, 0, 8).unwrap()).collect();
    rig.store.merge_layer(6, LayerId(10), LayerId(11));
    rig.settle();
    assert_eq!(live_blocks(&mut rig), 24 + 2 + 1 - 3);
    let parents = |store: &mut azekura_store::Store| {
        store.set_parent(LayerId(11), LayerId(10));
        store.set_parent(LayerId(12), LayerId(11));
    };
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open_with(&tiny(), disk, map, parents).unwrap();
    let after: Vec<_> = (0..4).map(|chunk| rig.read(1, 11, chunk, 0, 8).unwrap()).collect();
    assert!(before == after);
    rig.check_accounts();
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        chunk: u32,
        first: u16,
        count: u16,
        value: u64,
    },
    /// A new head on the present one.
    Snapshot,
    /// A new head on the layer of this place among all that there are.
    Revert(usize),
    /// The one of this place, of those that can be, is merged.
    Merge(usize),
    Checkpoint,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..CHUNKS, 0..BLOCKS, 1..8_u16, prop_oneof![1 => Just(0_u64), 3 => 1..1000_u64])
        .prop_map(|(chunk, first, count, value)| Step::Write { chunk, first, count: count.min(BLOCKS - first), value });
    prop_oneof![
        8 => write,
        3 => Just(Step::Snapshot),
        1 => any::<usize>().prop_map(Step::Revert),
        2 => any::<usize>().prop_map(Step::Merge),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

/// The layers that there are.
struct Tree {
    parents: BTreeMap<u64, Option<u64>>,
    head: u64,
    next: u64,
}

impl Tree {
    fn children(&self, layer: u64) -> Vec<u64> {
        self.parents.iter().filter(|(_, parent)| **parent == Some(layer)).map(|(child, _)| *child).collect()
    }

    fn tell(&self, store: &mut azekura_store::Store) {
        for (layer, parent) in &self.parents {
            match parent {
                Some(parent) => store.set_parent(LayerId(*layer), LayerId(*parent)),
                None => store.clear_parent(LayerId(*layer)),
            }
        }
    }

    fn new_head(&mut self, on: u64, store: &mut azekura_store::Store) {
        self.next += 1;
        self.head = self.next;
        self.parents.insert(self.head, Some(on));
        self.tell(store);
    }
}

fn reopen(rig: Rig, tree: &Tree) -> Rig {
    let (disk, map) = rig.crash(|_, _| false);
    Rig::open_with(&tiny(), disk, map, |store| tree.tell(store)).unwrap()
}

fn contents(rig: &mut Rig, layer: u64) -> BTreeMap<(u32, u16), Vec<u8>> {
    let mut blocks = BTreeMap::new();
    for chunk in 0..CHUNKS {
        let bytes = rig.read(group_of(chunk), layer, chunk, 0, BLOCKS).unwrap();
        blocks.extend((0..BLOCKS).zip(bytes.chunks(BLOCK_SIZE)).map(|(block, b)| ((chunk, block), b.to_vec())));
    }
    blocks
}

/// For all pairs of layers, every block that differs is found, and what is found is told rightly. `exact`: nothing else
/// is.
fn check(rig: &mut Rig, tree: &Tree, limit: u32, touched: Option<&BTreeSet<(u64, u32, u16)>>) {
    let layers: Vec<u64> = tree.parents.keys().copied().collect();
    let shown: BTreeMap<u64, _> = layers.iter().map(|layer| (*layer, contents(rig, *layer))).collect();
    for (layer, blocks) in &shown {
        let data = blocks.iter().filter(|(_, bytes)| !azekura_base::is_zero(bytes));
        let data: Found = data.map(|(place, _)| (*place, true)).collect();
        assert_eq!(compare(rig, NOTHING, *layer, limit), data, "the data of {layer}");
    }
    for from in &layers {
        for to in &layers {
            let found = compare(rig, *from, *to, limit);
            for (place, after) in &shown[to] {
                let listed = found.get(place);
                assert!(listed.is_some() || shown[from][place] == *after, "{from} to {to}: {place:?} is missing");
                let zeros = azekura_base::is_zero(after);
                assert!(listed.is_none_or(|data| *data != zeros), "{from} to {to}: {place:?} is listed wrongly");
                let written = |layer: &u64| touched.is_none_or(|touched| touched.contains(&(*layer, place.0, place.1)));
                assert!(listed.is_none() || layers.iter().any(written), "{place:?} was never written");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn comparisons_and_measurements_are_right_whatever_happened(
        steps in prop::collection::vec(step(), 1..40),
        limit in 1..5_u32,
        leaves_max in 1..5_u32,
    ) {
        let mut rig = Rig::format(&tiny());
        let mut tree = Tree { parents: BTreeMap::from([(10, None)]), head: 10, next: 10 };
        let mut touched = BTreeSet::new();
        for step in steps {
            match step {
                Step::Write { chunk, first, count, value } => {
                    let body = if value == 0 { Body::Zero } else { filled(value, count) };
                    rig.write(group_of(chunk), tree.head, chunk, first, body, count);
                    touched.extend((first..first + count).map(|block| (tree.head, chunk, block)));
                }
                Step::Snapshot if tree.parents.len() < 8 => tree.new_head(tree.head, &mut rig.store),
                Step::Revert(place) if tree.parents.len() < 8 => {
                    let layers: Vec<u64> = tree.parents.keys().copied().collect();
                    let on = layers[place % layers.len()];
                    tree.new_head(on, &mut rig.store);
                }
                Step::Snapshot | Step::Revert(_) => {}
                Step::Merge(place) => {
                    let single: Vec<u64> =
                        tree.parents.keys().copied().filter(|layer| tree.children(*layer).len() == 1).collect();
                    if let Some(layer) = (!single.is_empty()).then(|| single[place % single.len()]) {
                        let into = tree.children(layer)[0];
                        let told = measure(&mut rig, layer, Some(into), leaves_max);
                        let before = live_blocks(&mut rig);
                        rig.store.merge_layer(7, LayerId(layer), LayerId(into));
                        until_gone(&mut rig, layer);
                        prop_assert_eq!(before - live_blocks(&mut rig), told, "the end of layer {}", layer);
                        let below = tree.parents.remove(&layer).flatten();
                        tree.parents.insert(into, below);
                        tree.tell(&mut rig.store);
                        let moved: Vec<_> = touched.iter().filter(|(of, _, _)| *of == layer).copied().collect();
                        touched.extend(moved.into_iter().map(|(_, chunk, block)| (into, chunk, block)));
                    }
                }
                Step::Checkpoint => rig.checkpoint(),
                Step::Reopen => {
                    rig.checkpoint();
                    rig = reopen(rig, &tree);
                    // What was committed is known to the store again with the next write.
                }
            }
        }
        check(&mut rig, &tree, limit, Some(&touched));
        rig.check_accounts();
    }

    /// A copy that was brought up to date may hold by itself what others inherit: it says too much then, and nothing
    /// too little.
    #[test]
    fn a_copy_that_was_brought_up_to_date_leaves_nothing_out(
        steps in prop::collection::vec(step(), 1..30),
        limit in 1..5_u32,
    ) {
        let mut tree = Tree { parents: BTreeMap::from([(10, None)]), head: 10, next: 10 };
        let (mut source, mut target) = (Rig::format(&tiny()), Rig::format(&tiny()));
        for step in steps {
            match step {
                Step::Write { chunk, first, count, value } => {
                    let body = if value == 0 { Body::Zero } else { filled(value, count) };
                    source.write(group_of(chunk), tree.head, chunk, first, body, count);
                }
                Step::Snapshot | Step::Revert(_) if tree.parents.len() < 6 => {
                    tree.new_head(tree.head, &mut source.store);
                    tree.tell(&mut target.store);
                }
                _ => {}
            }
        }
        // Block by block from the oldest layer on, each as it shows there.
        for pg in 1..=GROUPS {
            let upto = source.store.group(PgId(pg)).committed;
            target.store.rejoin(1, PgId(pg), epoch(9), upto);
            for layer in tree.parents.keys().copied().collect::<Vec<_>>() {
                for ((chunk, block), bytes) in contents(&mut source, layer).into_iter().filter(|((c, _), _)| group_of(*c) == pg) {
                    if target.read(pg, layer, chunk, block, 1).unwrap() == bytes {
                        continue;
                    }
                    let zero = azekura_base::is_zero(&bytes);
                    let body = if zero { Body::Zero } else { held(&bytes) };
                    let (layer, chunk, first) = (LayerId(layer), ChunkIndex(chunk), BlockIndex(block));
                    target.store.append(2, Repair { pg: PgId(pg), sequence: upto, range: BlockRange { layer, chunk, first, count: 1 }, body });
                    target.settle();
                }
            }
        }
        check(&mut target, &tree, limit, None);
    }
}

#[test]
fn merges_that_wait_for_each_other_end_on_a_device_that_rests() {
    let mut rig = Rig::format(&tiny());
    for (layer, parent) in [(10, None), (11, Some(10)), (12, Some(11)), (13, Some(12))] {
        if let Some(parent) = parent {
            rig.store.set_parent(LayerId(layer), LayerId(parent));
        }
        rig.write(1, layer, 1, 0, filled(layer, 2), 2);
    }
    rig.checkpoint();
    rig.reports.clear();
    rig.store.merge_layer(1, LayerId(10), LayerId(11));
    // This checkpoint has the record of the first, and none has those of the others, which wait for it.
    rig.checkpoint();
    rig.store.merge_layer(2, LayerId(11), LayerId(12));
    rig.store.merge_layer(3, LayerId(12), LayerId(13));
    rig.settle();
    for second in 1..600 {
        rig.store.tick(Duration::from_secs(second));
        rig.settle();
        if rig.store.checkpoint_due() {
            rig.checkpoint();
        }
        for report in std::mem::take(&mut rig.reports) {
            let Report::LayerGone { layer } = report else { panic!("{report:?}") };
            // As the configuration has it then.
            rig.store.clear_parent(LayerId(layer.0 + 1));
        }
    }
    assert_eq!(rig.store.layers().map(|(layer, _)| layer).collect::<Vec<_>>(), [LayerId(13)]);
    assert_eq!(rig.read(1, 13, 1, 0, 2).unwrap(), bytes_of(&filled(13, 2), 2));
    rig.check_accounts();
}

#[test]
fn a_copy_is_not_inherited_past_a_layer_that_has_the_block() {
    let parents = |store: &mut azekura_store::Store| {
        for layer in 11..=13 {
            store.set_parent(LayerId(layer), LayerId(layer - 1));
        }
    };
    let mut rig = Rig::format(&tiny());
    parents(&mut rig.store);
    // The same chunk: block 0 is zeros in all layers; 1 is data in layer 11 and zeros in layer 12 again; 2 is layer
    // 11's.
    rig.write(1, 11, 1, 1, filled(1, 2), 2);
    rig.write(1, 12, 1, 1, Body::Zero, 1);
    rig.write(1, 13, 1, 9, filled(3, 1), 1);
    rig.checkpoint();
    let (pg, chunk, sequence) = (PgId(1), ChunkIndex(1), sequence(3));
    let copy = Repair {
        pg,
        sequence,
        range: BlockRange { layer: LayerId(10), chunk, first: BlockIndex(0), count: 3 },
        body: filled(7, 3),
    };
    rig.store.append(8, copy);
    rig.settle();
    let block = |value, index: usize, count| {
        bytes_of(&filled(value, count), count)[index * BLOCK_SIZE..][..BLOCK_SIZE].to_vec()
    };
    let zeros = vec![0; BLOCK_SIZE];
    let copied = |index| block(7, index, 3);
    let expected = |rig: &mut Rig| {
        let holds = |rig: &mut Rig, layer: u64, blocks: [Vec<u8>; 3]| {
            assert!(rig.read(1, layer, 1, 0, 3).unwrap() == blocks.concat(), "layer {layer}");
        };
        holds(rig, 10, [copied(0), copied(1), copied(2)]);
        let (first, second) = (block(1, 0, 2), block(1, 1, 2));
        holds(rig, 11, [copied(0), first, second.clone()]);
        for layer in [12, 13] {
            holds(rig, layer, [copied(0), zeros.clone(), second.clone()]);
        }
        rig.check_accounts();
    };
    expected(&mut rig);
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open_with(&tiny(), disk, map, parents).unwrap();
    expected(&mut rig);
}

/// A copy reaches a layer and all that lie on it; then the layer is merged into its child. Whichever of the leaves are
/// saved when the power goes, nobody loses the copy.
#[test]
fn a_merge_after_a_copy_is_not_saved_without_what_lies_below() {
    let parents = |store: &mut azekura_store::Store| {
        for layer in 12..=14 {
            store.set_parent(LayerId(layer), LayerId(layer - 1));
        }
    };
    let options = azekura_store::Options { checkpoint_leaves_max: 1, ..tiny() };
    let (pg, chunk) = (PgId(1), ChunkIndex(1));
    for (order, saves) in
        [[12, 13, 14], [13, 12, 14], [14, 13, 12]].iter().flat_map(|order| (0..4).map(move |n| (order, n)))
    {
        let mut rig = Rig::format(&options);
        parents(&mut rig.store);
        // The leaves are there, in this order, and saved.
        for layer in order {
            rig.write(1, *layer, 1, 9, filled(*layer, 1), 1);
        }
        (0..order.len()).for_each(|_| rig.checkpoint());
        let range = BlockRange { layer: LayerId(11), chunk, first: BlockIndex(0), count: 2 };
        rig.store.append(8, Repair { pg, sequence: sequence(3), range, body: filled(7, 2) });
        rig.settle();
        rig.store.merge_layer(1, LayerId(11), LayerId(12));
        rig.settle();
        (0..saves).for_each(|_| rig.checkpoint());
        let (disk, map) = rig.crash(|_, _| false);
        let mut rig = Rig::open_with(&options, disk, map, parents).unwrap();
        for layer in 12..=14 {
            let read = rig.read(1, layer, 1, 0, 2).unwrap();
            assert!(read == bytes_of(&filled(7, 2), 2), "layer {layer}, leaves made as {order:?}, {saves} saved");
        }
        rig.check_accounts();
    }
}
