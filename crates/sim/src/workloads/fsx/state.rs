//! The client, and the model, at a moment.

use super::model::{Image, Past, Sectors};
use crate::cluster::cuts::Done;
use crate::cluster::front::Line;
use crate::kernel::random::Random;
use crate::plan::{Mode, Plan};
use crate::workloads::contents::SECTOR_SIZE;
use azekura_base::{NodeId, VolumeId};
use azekura_gateway::Outcome;
use azekura_node::ClusterView;
use std::collections::BTreeMap;

/// A snapshot.
pub(super) struct Kept {
    pub(super) image: Image,
    /// The revision that it is there since.
    pub(super) since: u64,
}

/// A cut that the client has asked for.
pub(super) struct Cutting {
    pub(super) id: u64,
    /// What the volumes were, and what was done since.
    pub(super) past: Past,
    /// It has ended: with the snapshots, and the number of changes that were begun before.
    pub(super) over: Option<Option<(Done, usize)>>,
}

impl Cutting {
    /// A change is begun. Gives its place.
    pub(super) fn note(&mut self, volume: &str, sectors: Sectors) -> usize {
        self.past.changes.push((volume.into(), sectors));
        self.past.changes.len() - 1
    }

    /// A change has come to an unknown end, and this is what it has changed.
    pub(super) fn correct(&mut self, place: usize, sectors: Sectors) {
        self.past.changes[place].1 = sectors;
    }
}

/// A volume, and how the client has it.
pub(super) struct Volume {
    pub(super) id: VolumeId,
    pub(super) image: Image,
    /// The client's connection.
    pub(super) held: Option<Line>,
    /// A connection has ended with requests under way, or may have: whoever had the volume is kept out before it is
    /// used again.
    pub(super) abandoned: bool,
    /// The revision that a gateway has to know before it may be used.
    pub(super) since: u64,
}

impl Volume {
    pub(super) fn new(id: VolumeId, image: Image, since: u64) -> Volume {
        Volume { id, image, held: None, abandoned: false, since }
    }
}

/// How a request has ended.
#[derive(Debug)]
pub(super) enum End {
    Answered(Outcome),
    /// The connection has ended, and with it the answer.
    Lost,
}

/// What is under way.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) names: u64,
    /// The request, and its end.
    pub(super) request: Option<(u64, Option<End>)>,
}

impl Requests {
    pub(super) fn has_ended(&self) -> bool {
        self.request.as_ref().is_none_or(|(_, end)| end.is_some())
    }

    pub(super) fn end(&mut self, token: u64, how: End) {
        if let Some((name, end @ None)) = &mut self.request
            && *name == token
        {
            *end = Some(how);
        }
    }
}

/// Whoever has a deleted volume open.
#[derive(Clone, Copy)]
pub(super) struct Stray {
    pub(super) line: Line,
    /// What has the name now has so many sectors at least.
    pub(super) sectors: u64,
    /// Requests so far.
    pub(super) asked: u64,
}

/// The client, and the model.
pub(crate) struct Fsx {
    pub(crate) on: bool,
    pub(super) random: Random,
    pub(super) volumes: BTreeMap<String, Volume>,
    /// By their whole names.
    pub(super) snapshots: BTreeMap<String, Kept>,
    pub(super) requests: Requests,
    pub(super) cutting: Option<Cutting>,
    /// The only node that snapshots are read through.
    pub(super) reader: Option<NodeId>,
    /// Whoever has a volume open that is deleted, and sectors of what has its name now.
    pub(super) stray: Option<Stray>,
    /// Operations so far.
    pub(super) steps: u64,
    pub(super) named: u64,
}

impl Fsx {
    pub(crate) fn new(plan: &Plan, view: &ClusterView, random: Random) -> Fsx {
        let on = plan.mode == Mode::Fsx;
        let volumes = view.volumes.values().filter(|_| on);
        let volumes = volumes.map(|volume| {
            let image = Image::new(volume.size / SECTOR_SIZE as u64);
            (volume.name.clone(), Volume::new(volume.id, image, view.revision))
        });
        Fsx {
            on,
            random,
            volumes: volumes.collect(),
            snapshots: BTreeMap::new(),
            requests: Requests::default(),
            cutting: None,
            reader: None,
            stray: None,
            steps: 0,
            named: 0,
        }
    }

    /// Operations so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// A name that nothing has had.
    pub(super) fn new_name(&mut self, kind: &str) -> String {
        self.named += 1;
        format!("{kind}{}", self.named)
    }
}
