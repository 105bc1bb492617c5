//! What a group's record tells of its scrubs.

use azekura_base::{DeviceId, LayerId};
use serde::{Deserialize, Serialize};

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Bad blocks that a group's record names; further ones are counted only, and the nodes' logs name all of them.
pub const FOUND_BLOCKS_MAX: usize = 16;

/// When a group was scrubbed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubRecord {
    /// Scrubs that read every block of every copy.
    pub deep: ScrubTimes,
    /// Scrubs that compare the copies' maps. A deep one counts as one of these, too.
    pub light: ScrubTimes,
    /// When the group was made, which counts as scrubs that have ended then; 0 in records of before this was noted.
    #[serde(skip_serializing_if = "is_zero")]
    pub made: u64,
    /// Bad blocks that readers have met since the last deep scrub.
    #[serde(skip_serializing_if = "is_zero")]
    pub met: u64,
    /// The newest bad blocks, found by scrubs and by readers; [`FOUND_BLOCKS_MAX`] at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FoundBlockRecord>,
}

/// What was wrong with a block of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockFlaw {
    /// It could not be read: it failed its checksum, or is known to be lost.
    Damaged,
    /// It could be read, and was not what the primary's copy has.
    Differs,
}

/// A bad block that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBlockRecord {
    /// The volume, or `VOLUME@SNAPSHOT`; nothing when neither has a layer of its own that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The layer.
    pub layer: LayerId,
    /// Where it is, bytes from the start of the volume.
    pub offset_bytes: u64,
    /// The copy that it was bad on.
    pub device: DeviceId,
    /// What was wrong with it.
    pub flaw: BlockFlaw,
    /// It was written anew from another copy.
    pub mended: bool,
    /// When it was found, seconds since 1970.
    pub at: u64,
}

impl std::fmt::Display for FoundBlockRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.volume {
            Some(volume) => write!(f, "volume {volume}")?,
            None => write!(f, "layer {}", self.layer)?,
        }
        let flaw = match self.flaw {
            BlockFlaw::Damaged => "damaged",
            BlockFlaw::Differs => "not what the primary has",
        };
        let outcome = if self.mended { "written anew" } else { "no good copy was found" };
        write!(f, ", byte {}: {flaw} on device {}, {outcome}", self.offset_bytes, self.device)
    }
}

impl ScrubRecord {
    /// The deep and the light scrubs as they really were: none has ended when the group was made.
    #[must_use]
    pub fn really(&self) -> (ScrubTimes, ScrubTimes) {
        let real = |times: ScrubTimes| if times.done <= self.made { ScrubTimes { done: 0, ..times } } else { times };
        (real(self.deep), real(self.light))
    }

    /// Notes bad blocks; the newest stay.
    pub fn note_found(&mut self, found: impl IntoIterator<Item = FoundBlockRecord>) {
        self.found.extend(found);
        let old = self.found.len().saturating_sub(FOUND_BLOCKS_MAX);
        self.found.drain(..old);
    }
}

/// Scrubs of one kind. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubTimes {
    /// When somebody last asked for one.
    pub wanted: u64,
    /// When one last ended, or the group was made.
    pub done: u64,
    /// Blocks that were damaged or differed between copies, also those that were mended, and chunks that could not be
    /// read, at that time.
    pub findings: u64,
}

impl ScrubTimes {
    /// A scrub has ended at this time, which was begun when `wanted` was `answers`: it counts for who has asked until
    /// then, even if this clock is behind, and not for who has asked since, even if this clock is ahead. When that
    /// scrub was found due one had last ended at `since`: if another has been noted meanwhile, both were for the same
    /// question, and what the former has mended the latter did not find.
    pub fn ended(&mut self, at: u64, answers: u64, since: u64, findings: u64) {
        let at = if self.wanted > answers { at.min(self.wanted - 1) } else { at.max(self.wanted) };
        let former = if self.done > since { self.findings } else { 0 };
        (self.done, self.findings) = (at.max(self.done), former.saturating_add(findings));
    }
}

#[cfg(test)]
mod tests {
    use super::{ScrubRecord, ScrubTimes};

    #[test]
    fn a_group_was_not_scrubbed_when_it_was_made() {
        let at = |done| ScrubTimes { done, ..ScrubTimes::default() };
        let new = ScrubRecord { deep: at(50), light: at(50), made: 50, ..ScrubRecord::default() };
        assert_eq!((new.really().0.done, new.really().1.done), (0, 0));
        let scrubbed = ScrubRecord { light: at(51), ..new.clone() };
        assert_eq!((scrubbed.really().0.done, scrubbed.really().1.done), (0, 51));
        let old: ScrubRecord = serde_json::from_str(r#"{ "deep": { "done": 50 }, "light": { "done": 60 } }"#).unwrap();
        assert_eq!((old.really().0.done, old.really().1.done), (50, 60), "nobody knows when it was made");
        assert!(!serde_json::to_string(&old).unwrap().contains("made"));
    }

    #[test]
    fn a_scrub_counts_for_those_who_asked_before_it_began() {
        let after = |wanted, done, (at, answers)| {
            let mut times = ScrubTimes { wanted, done, findings: 1 };
            times.ended(at, answers, done, 3);
            assert_eq!(times.findings, 3);
            times.done
        };
        assert_eq!(after(0, 50, (100, 0)), 100, "nobody has asked");
        assert_eq!(after(90, 50, (100, 90)), 100);
        assert_eq!(after(110, 50, (100, 110)), 110, "the clock of this node is behind");
        assert_eq!(after(95, 50, (100, 90)), 94, "somebody has asked while it was under way");
        assert_eq!(after(95, 50, (94, 0)), 94);
        assert_eq!(after(95, 50, (40, 0)), 50, "what was known stays");
    }

    #[test]
    fn a_scrub_that_was_begun_twice_keeps_what_the_first_has_found() {
        let mut times = ScrubTimes { wanted: 90, done: 50, findings: 7 };
        times.ended(100, 90, 50, 1);
        times.ended(101, 90, 50, 0);
        assert_eq!((times.done, times.findings), (101, 1));
        times.ended(200, 90, 101, 0);
        assert_eq!((times.done, times.findings), (200, 0), "this one was due anew");
    }
}
