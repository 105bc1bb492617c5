//! What all segments together say, before any block is looked at: how far the log and each group are, which layers have
//! ended, which writes are known to have been committed.

use super::segment::{FoundSegment, Head, LogReader};
use super::settings::RebuildSettings;
use crate::cx::log_position;
use crate::groups::Requests;
use crate::log::format::{BatchHeader, Entries, EntryView, Kind};
use crate::tools::ReadDevice;
use azekura_base::{LayerId, PgId, RequestId, SessionId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A layer is merged into the one on top of it, and that one into another, at most so often: a longer row is a circle.
const MERGES_MAX: usize = 1 << 20;

/// A crash cut off what was on its way to so many segments of moved blocks at most: the one that was open, and those
/// that the batches in flight had filled.
const CUT_SEGMENTS: usize = 5;

/// When a record was written: the generation of its segment, and its place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Age {
    pub generation: u64,
    pub position: u64,
}

/// An epoch that began: the writes before it and after `keep` were dropped.
#[derive(Debug, Clone, Copy)]
struct Cut {
    age: Age,
    epoch: u64,
    keep: u64,
}

/// What the log says of a group.
#[derive(Debug, Default)]
pub(super) struct GroupSeen {
    pub epoch: u64,
    /// The highest commit point that a record tells.
    pub committed: u64,
    /// The same of the writes of each epoch.
    by_epoch: BTreeMap<u64, u64>,
    /// The last write of each epoch.
    ends: BTreeMap<u64, u64>,
    cuts: Vec<Cut>,
    /// Who asked for the writes of each epoch; of groups whose copies count as they are.
    requests: BTreeMap<u64, Requests>,
    pub note_version: u64,
    pub note: Bytes,
    /// When what the device held of it was last given up.
    forgotten: Option<Age>,
    latest: Age,
}

impl GroupSeen {
    /// All that the device holds of it has been given up, and nothing has come since.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten.is_some_and(|age| age >= self.latest)
    }

    /// A record is from before the group was given up.
    pub fn is_over(&self, age: Age) -> bool {
        self.forgotten.is_some_and(|forgotten| age <= forgotten)
    }

    /// Write `sequence` of `epoch` was committed for certain: a primary gives each place of its epoch to one write, and
    /// a later record of that epoch says that it was committed up to there.
    pub fn has_committed(&self, epoch: u64, sequence: u64) -> bool {
        self.by_epoch.get(&epoch).is_some_and(|committed| *committed >= sequence)
    }

    /// Write `sequence` of `epoch` was dropped for certain.
    pub fn has_dropped(&self, age: Age, epoch: u64, sequence: u64) -> bool {
        !self.has_committed(epoch, sequence)
            && self.cuts.iter().any(|cut| cut.age > age && cut.epoch >= epoch && sequence > cut.keep)
    }

    /// The last place of which something is here: that of the last write, or a later commit point.
    pub fn end(&self) -> u64 {
        self.committed.max(self.ends.get(&self.epoch).copied().unwrap_or(0))
    }

    /// Who asked for the last epoch's writes: none of them was dropped.
    pub fn requests(&self) -> Requests {
        self.requests.get(&self.epoch).cloned().unwrap_or_default()
    }

    fn add(&mut self, age: Age, entry: &EntryView<'_>, is_accepted: bool) {
        let head = &entry.head;
        if is_accepted && matches!(entry.kind, Kind::Write | Kind::WriteZero) {
            let requests = self.requests.entry(head.epoch).or_default();
            requests.committed(SessionId(head.session), RequestId(head.request));
        }
        match entry.kind {
            Kind::Write | Kind::WriteZero => {
                self.epoch = self.epoch.max(head.epoch);
                self.committed = self.committed.max(head.commit);
                raise(&mut self.by_epoch, head.epoch, head.commit);
                raise(&mut self.ends, head.epoch, head.sequence);
            }
            Kind::WriteAgain
            | Kind::Relocate
            | Kind::Moved
            | Kind::Repair
            | Kind::RepairZero
            | Kind::RepairLost
            | Kind::Mark => self.committed = self.committed.max(head.commit),
            Kind::Epoch => {
                let jump = head.count != 0;
                self.epoch = self.epoch.max(head.epoch);
                self.committed = self.committed.max(head.commit).max(head.sequence);
                let keep = if jump { head.sequence } else { head.commit };
                self.cuts.push(Cut { age, epoch: head.epoch, keep });
            }
            Kind::Note if head.sequence > self.note_version || self.note.is_empty() => {
                (self.note_version, self.note) = (head.sequence, Bytes::copy_from_slice(entry.note()));
            }
            Kind::ForgetGroup => {
                self.forgotten = self.forgotten.max(Some(age));
                return;
            }
            Kind::Note | Kind::Complete | Kind::Relocated | Kind::DropLayer | Kind::MergeLayer => {}
        }
        self.latest = self.latest.max(age);
    }
}

fn raise(highest: &mut BTreeMap<u64, u64>, of: u64, to: u64) {
    let known = highest.entry(of).or_default();
    *known = to.max(*known);
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Of all segments that hold something.
    pub heads: Vec<Head>,
    /// The highest generation.
    pub newest: u64,
    /// The highest incarnation of any batch.
    pub incarnation: u64,
    /// Sequence and checksum of the last batch of the chain.
    pub last: (u64, u32),
    /// Segments of the chain without a summary that fits.
    pub partial: BTreeSet<u32>,
    /// Segments of moved blocks that were perhaps being filled when the log ended.
    pub young: BTreeSet<u32>,
    /// Segments of moved blocks that were perhaps being filled when a life of the store ended, whichever.
    pub cut: BTreeSet<u32>,
    pub groups: BTreeMap<PgId, GroupSeen>,
    /// Records that name blocks, and those blocks.
    pub records: u64,
    pub blocks: u64,
    dropped: BTreeSet<LayerId>,
    merged: BTreeMap<LayerId, LayerId>,
}

impl Survey {
    /// Reads the first header of each segment. `progress` is told how many have been read.
    pub fn heads<D: ReadDevice>(reader: &LogReader<D>, mut progress: impl FnMut(u32)) -> Survey {
        let mut survey = Survey::default();
        for segment in 0..reader.segments {
            progress(segment);
            if let Some(head) = reader.head(segment) {
                survey.newest = survey.newest.max(head.header.generation);
                survey.incarnation = survey.incarnation.max(head.header.incarnation);
                survey.heads.push(head);
            }
        }
        survey.leave_out_given_up(reader);
        survey.note_cut();
        survey
    }

    /// The last segments of moved blocks that each incarnation opened.
    fn note_cut(&mut self) {
        let mut lives: BTreeMap<u64, Vec<(u64, u32)>> = BTreeMap::new();
        for Head { segment, header, .. } in self.heads.iter().filter(|head| head.apart) {
            lives.entry(header.incarnation).or_default().push((header.generation, *segment));
        }
        for opened in lives.values_mut() {
            opened.sort_unstable_by(|one, other| other.cmp(one));
            // Of those that were opened in one generation it is not known which was the last.
            let first = opened.get(CUT_SEGMENTS - 1).map_or(0, |(generation, _)| *generation);
            let last = opened.iter().take_while(|(generation, _)| *generation >= first);
            self.cut.extend(last.map(|(_, segment)| *segment));
        }
    }

    /// A crash may have left whole segments behind a batch that was torn: the log went on without them, in other
    /// segments of the same generations or not that far yet.
    fn leave_out_given_up<D: ReadDevice>(&mut self, reader: &LogReader<D>) {
        let mut incarnations: BTreeMap<u64, u64> = BTreeMap::new();
        for head in self.heads.iter().filter(|head| !head.apart) {
            raise(&mut incarnations, head.header.generation, head.header.incarnation);
        }
        let stands = |head: &Head| incarnations.get(&head.header.generation) == Some(&head.header.incarnation);
        self.heads.retain(|head| head.apart || stands(head));
        let chain = self.heads.iter().filter(|head| !head.apart && head.is_young(self.newest));
        let mut young: Vec<Head> = chain.copied().collect();
        young.sort_by_key(|head| head.header.generation);
        // The batch with which the one before ended; `None` where it did not end with a summary that fits.
        let (mut before, mut given_up): (Option<(u64, Option<u32>)>, BTreeSet<u32>) = (None, BTreeSet::new());
        for head in young {
            let found = reader.contents(&head, self.newest);
            let BatchHeader { generation, sequence, previous, .. } = head.header;
            let is_next = before.is_some_and(|(last, _)| last.checked_add(1) == Some(generation));
            let follows = !is_next || before.is_some_and(|(_, crc)| crc == Some(previous));
            // What was on stable storage is never given up.
            if follows || found.durable >= sequence.saturating_sub(1) {
                before = Some((generation, found.is_whole.then_some(found.last.crc)));
            } else {
                given_up.insert(head.segment);
            }
        }
        self.heads.retain(|head| !given_up.contains(&head.segment));
    }

    /// Takes a segment into account.
    pub fn add(&mut self, settings: &RebuildSettings, found: &FoundSegment) {
        self.incarnation = self.incarnation.max(found.last.incarnation);
        match (found.is_whole, found.head.apart) {
            (true, _) => {}
            (false, true) => drop(self.young.insert(found.head.segment)),
            (false, false) => drop(self.partial.insert(found.head.segment)),
        }
        if !found.head.apart && found.last.sequence >= self.last.0 {
            self.last = (found.last.sequence, found.last.crc);
        }
        for batch in &found.batches {
            for (index, entry) in Entries::new(&batch.entries).enumerate() {
                if entry.kind.has_range() {
                    self.records += 1;
                    self.blocks += u64::from(entry.head.count);
                }
                let position = log_position(batch.sequence, index);
                let age = Age { generation: found.generation(), position };
                self.add_entry(settings, age, &entry, found.head.apart);
            }
        }
    }

    fn add_entry(&mut self, settings: &RebuildSettings, age: Age, entry: &EntryView<'_>, apart: bool) {
        let pg = entry.pg();
        match entry.kind {
            // It has no place in the log.
            _ if apart => drop(self.groups.entry(pg).or_default()),
            Kind::DropLayer => drop(self.dropped.insert(entry.layer())),
            Kind::MergeLayer => drop(self.merged.insert(entry.layer(), LayerId(entry.head.session))),
            _ => self.groups.entry(pg).or_default().add(age, entry, settings.accepted.contains(&pg)),
        }
    }

    /// The layer that has what `layer` had, by now. `None`: nobody reads it any more.
    pub fn heir(&self, settings: &RebuildSettings, mut layer: LayerId) -> Option<LayerId> {
        let layers = &settings.layers;
        for _ in 0..MERGES_MAX {
            if self.dropped.contains(&layer) {
                return None;
            }
            match self.merged.get(&layer).or_else(|| layers.merging.get(&layer)) {
                Some(into) => layer = *into,
                None => return (layers.living.contains(&layer) || layer > layers.newest).then_some(layer),
            }
        }
        None
    }

    /// The layer that `layer` lies on, of those that are not merged into it.
    pub fn parent(&self, settings: &RebuildSettings, layer: LayerId) -> Option<LayerId> {
        let mut below = *settings.layers.parents.get(&layer)?;
        for _ in 0..MERGES_MAX {
            match self.heir(settings, below) {
                Some(heir) if heir != layer => return Some(heir),
                _ => below = *settings.layers.parents.get(&below)?,
            }
        }
        None
    }
}
