//! Copies are brought to layers that others lie on, layers are merged, a part of the leaves is saved, and power goes:
//! each layer shows what it did.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{BlockIndex, BlockRange, ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{Options, Repair, Report, Store};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;
use std::time::Duration;

const PG: u32 = 1;
const CHUNKS: u32 = 2;
const BLOCKS: u16 = 4;
const LAYERS_MAX: usize = 8;

fn options() -> Options {
    Options { checkpoint_leaves_max: 1, ..tiny() }
}

#[derive(Debug, Clone)]
enum Step {
    /// A client writes to the newest layer.
    Write {
        chunk: u32,
        block: u16,
        count: u16,
    },
    /// Another copy brings blocks of the layer of this place among all.
    Bring {
        layer: usize,
        chunk: u32,
        block: u16,
        count: u16,
    },
    /// A new layer on the newest, or on that of this place.
    Layer(Option<usize>),
    /// The layer of this place, of those that can be, is merged.
    Merge(usize),
    /// One leaf is saved, and those that have to be saved with it.
    Save,
    /// So many writes elsewhere: the cleaner moves what lies in the oldest segments.
    GoRound(u16),
    /// Jobs may do a part of their work.
    Work,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let range =
        || (0..CHUNKS, 0..BLOCKS).prop_flat_map(|(chunk, block)| (Just(chunk), Just(block), 1..=BLOCKS - block));
    prop_oneof![
        4 => range().prop_map(|(chunk, block, count)| Step::Write { chunk, block, count }),
        4 => (any::<usize>(), range())
            .prop_map(|(layer, (chunk, block, count))| Step::Bring { layer, chunk, block, count }),
        3 => prop_oneof![3 => Just(None), 1 => any::<usize>().prop_map(Some)].prop_map(Step::Layer),
        3 => any::<usize>().prop_map(Step::Merge),
        4 => Just(Step::Save),
        1 => (1..80_u16).prop_map(Step::GoRound),
        2 => Just(Step::Work),
        1 => Just(Step::Crash),
    ]
}

type Place = (u32, u16);

/// A layer, as it should be.
#[derive(Debug, Clone, Default)]
struct Layer {
    parent: Option<u64>,
    /// What was written there, or brought.
    own: BTreeMap<Place, u64>,
    /// It is being merged into its child: nobody reads it any more.
    merged_into: Option<u64>,
}

struct World {
    rig: Rig,
    layers: BTreeMap<u64, Layer>,
    newest: u64,
    next: u64,
    value: u64,
    sequence: Sequence,
    now: Duration,
}

impl World {
    fn new() -> World {
        let layers = BTreeMap::from([(10, Layer::default())]);
        let rig = Rig::format(&options());
        World { rig, layers, newest: 10, next: 10, value: 0, sequence: Sequence::ZERO, now: Duration::ZERO }
    }

    fn tell(layers: &BTreeMap<u64, Layer>, store: &mut Store) {
        for (id, layer) in layers {
            match layer.parent {
                Some(parent) => store.set_parent(LayerId(*id), LayerId(parent)),
                None => store.clear_parent(LayerId(*id)),
            }
        }
    }

    fn children(&self, layer: u64) -> Vec<u64> {
        self.layers.iter().filter(|(_, child)| child.parent == Some(layer)).map(|(id, _)| *id).collect()
    }

    /// Layers that somebody may read.
    fn read(&self) -> Vec<u64> {
        self.layers.iter().filter(|(_, layer)| layer.merged_into.is_none()).map(|(id, _)| *id).collect()
    }

    fn shown(&self, layer: u64, place: Place) -> Option<u64> {
        let parent = |id: &u64| self.layers[id].parent;
        std::iter::successors(Some(layer), parent).find_map(|id| self.layers[&id].own.get(&place).copied())
    }

    /// New content for blocks of a layer.
    fn put(&mut self, layer: u64, chunk: u32, block: u16, count: u16) -> azekura_base::Body {
        self.value += 1;
        let value = self.value;
        let own = &mut self.layers.get_mut(&layer).unwrap().own;
        // `filled` numbers its blocks.
        own.extend((0..count).map(|index| ((chunk, block + index), value << 8 | u64::from(index))));
        filled(value, count)
    }

    fn act(&mut self, step: &Step) {
        match *step {
            Step::Write { chunk, block, count } => {
                let layer = self.newest;
                let body = self.put(layer, chunk, block, count);
                self.rig.write(PG, layer, chunk, block, body, count);
                self.sequence = self.rig.store.group(PgId(PG)).committed;
            }
            Step::Bring { layer, chunk, block, count } => {
                let all = self.read();
                let layer = all[layer % all.len()];
                let body = self.put(layer, chunk, block, count);
                let range =
                    BlockRange { layer: LayerId(layer), chunk: ChunkIndex(chunk), first: BlockIndex(block), count };
                self.rig.store.append(8, Repair { pg: PgId(PG), sequence: self.sequence, range, body });
                self.rig.settle();
            }
            Step::Layer(on) if self.layers.len() < LAYERS_MAX => {
                let all = self.read();
                let parent = on.map_or(self.newest, |place| all[place % all.len()]);
                self.next += 1;
                self.newest = self.next;
                self.layers.insert(self.newest, Layer { parent: Some(parent), ..Layer::default() });
                World::tell(&self.layers, &mut self.rig.store);
            }
            Step::Layer(_) => {}
            Step::Merge(place) => self.merge(place),
            Step::Save => self.rig.checkpoint(),
            Step::GoRound(writes) => {
                for _ in 0..writes {
                    self.rig.write(PG, self.newest, CHUNKS, 0, filled(0, 12), 12);
                }
                self.sequence = self.rig.store.group(PgId(PG)).committed;
            }
            Step::Work => {
                self.now += Duration::from_secs(40);
                self.rig.store.tick(self.now);
                self.rig.settle();
            }
            Step::Crash => self.crash(),
        }
        self.hear();
    }

    fn merge(&mut self, place: usize) {
        // Not into a layer that ends itself.
        let able = |id: &u64| matches!(self.children(*id)[..], [child] if self.layers[&child].merged_into.is_none());
        let able: Vec<u64> = self.read().into_iter().filter(able).collect();
        let Some(layer) = (!able.is_empty()).then(|| able[place % able.len()]) else { return };
        let into = self.children(layer)[0];
        self.layers.get_mut(&layer).unwrap().merged_into = Some(into);
        self.rig.store.merge_layer(layer, LayerId(layer), LayerId(into));
        self.rig.settle();
    }

    /// Layers that are gone leave the tree.
    fn hear(&mut self) {
        for report in std::mem::take(&mut self.rig.reports) {
            let Report::LayerGone { layer } = report else { continue };
            let Some(Layer { parent, own, merged_into: Some(into) }) = self.layers.remove(&layer.0) else { continue };
            let child = self.layers.get_mut(&into).unwrap();
            child.parent = parent;
            for (place, value) in own {
                child.own.entry(place).or_insert(value);
            }
        }
        World::tell(&self.layers, &mut self.rig.store);
    }

    fn crash(&mut self) {
        let rig = std::mem::replace(&mut self.rig, Rig::format(&options()));
        let (disk, map) = rig.crash(|_, _| false);
        let layers = self.layers.clone();
        self.rig = Rig::open_with(&options(), disk, map, move |store| World::tell(&layers, store)).unwrap();
        self.now = Duration::ZERO;
        // What was committed is known to the store again from the others.
        self.rig.store.commit(PgId(PG), self.sequence);
        self.rig.settle();
        self.check();
        for (id, layer) in self.layers.clone() {
            if let Some(into) = layer.merged_into {
                self.rig.store.merge_layer(id, LayerId(id), LayerId(into));
                self.rig.settle();
            }
        }
    }

    fn check(&mut self) {
        for layer in self.read() {
            for chunk in 0..CHUNKS {
                let read = self.rig.read(PG, layer, chunk, 0, BLOCKS).unwrap();
                for (block, bytes) in (0..).zip(read.chunks(azekura_base::BLOCK_SIZE)) {
                    let expected = self.shown(layer, (chunk, block)).map_or_else(
                        || vec![0; bytes.len()],
                        |value| {
                            let (value, index) = (value >> 8, (value & 0xff) as usize);
                            let run = bytes_of(&filled(value, BLOCKS), BLOCKS);
                            run[index * bytes.len()..][..bytes.len()].to_vec()
                        },
                    );
                    assert!(bytes == expected, "layer {layer}, chunk {chunk}, block {block}");
                }
            }
        }
        self.rig.check_accounts();
    }
}

/// The same histories in every run; PROPTEST_CASES in the environment asks for so many fresh ones.
fn config() -> ProptestConfig {
    let fresh = std::env::var("PROPTEST_CASES").ok().and_then(|value| value.parse().ok());
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: fresh.unwrap_or(400),
        failure_persistence: None,
        rng_seed: if fresh.is_some() { default.rng_seed } else { RngSeed::Fixed(1) },
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_layer_shows_what_it_did(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        for step in &steps {
            world.act(step);
        }
        world.check();
        world.crash();
    }
}
