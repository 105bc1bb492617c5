//! Cuts: new heads are put into the places of some volumes' at one instant, and what were their heads become snapshots.
//! The steps are those of docs/decisions/0011-snapshots.md: the configuration says so, all groups stop, the
//! configuration says that it is done.

mod steps;

use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::kernel::time::Stamp;
use azekura_base::LayerId;
use azekura_model::SnapshotOrigin;
use azekura_model::transitions::cuts::{Cut, VolumeCut};
use azekura_node::ClusterView;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long groups may take to freeze.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tokens of freezes begin here, those of fences below.
const TOKENS: u64 = 1 << 32;
/// Tokens that each cut has.
const TOKENS_PER_CUT: u64 = 64;

/// One volume of a cut.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) volume: String,
    /// The name of the snapshot, behind the volume's.
    pub(crate) name: String,
    /// The snapshot that the volume goes back to.
    pub(crate) back_to: Option<String>,
}

impl Wish {
    /// A snapshot of the present.
    pub(crate) fn snapshot(volume: &str, name: &str) -> Wish {
        Wish { volume: volume.into(), name: name.into(), back_to: None }
    }

    /// What the control plane is asked for.
    fn to_cut(&self) -> VolumeCut {
        let of_volume = |name: &String| name.split_once('@').map_or_else(|| name.clone(), |(_, name)| name.to_owned());
        VolumeCut {
            back_to: self.back_to.as_ref().map(of_volume),
            unattached: self.back_to.is_some(),
            ..VolumeCut::snapshot(&self.volume, &self.name, SnapshotOrigin::Person)
        }
    }

    /// The whole name of the snapshot.
    pub(crate) fn full_name(&self) -> String {
        format!("{}@{}", self.volume, self.name)
    }
}

/// A cut under way.
pub(crate) struct UnderWay {
    from: Life,
    wishes: Vec<Wish>,
    cut: Cut,
    pub(crate) asked: Stamp,
    /// Volumes whose groups have not all stopped.
    left: usize,
}

/// A cut that is finished.
pub(crate) struct Done {
    pub(crate) wishes: Vec<Wish>,
    pub(crate) asked: Stamp,
    pub(crate) answered: Stamp,
    /// The revision that says so.
    pub(crate) revision: u64,
}

/// All cuts.
pub(crate) struct Cuts {
    /// Draws what happens to volumes and their snapshots.
    pub(crate) random: Random,
    pub(crate) under_way: BTreeMap<u64, UnderWay>,
    begun: u64,
    /// Heads that reverts have made, and the heads before them, for a lie.
    reverted: BTreeMap<LayerId, LayerId>,
}

impl Cuts {
    pub(crate) fn new(random: Random) -> Cuts {
        Cuts { random, under_way: BTreeMap::new(), begun: 0, reverted: BTreeMap::new() }
    }

    /// None is under way.
    pub(crate) fn idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Makes a view say that reverts have changed nothing.
    pub(crate) fn unrevert(&self, view: &mut ClusterView) {
        for (head, before) in &self.reverted {
            if let Some(parent) = view.parents.get_mut(head) {
                *parent = *before;
            }
        }
    }
}
