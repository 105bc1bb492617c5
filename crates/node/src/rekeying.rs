//! Volumes whose blocks get another key, chunk by chunk (docs/decisions/0038-encrypted-volumes.md, rotation of the data
//! key). The gateway does a chunk ([`azekura_gateway::Gateway::rekey`]); here is which is next, of which volume.
//!
//! Nothing of this is kept anywhere: what has been done is seen in the blocks, and a chunk without anything to do costs
//! a look at the map. So a pass that was interrupted begins anew.

mod steps;

use azekura_base::{CHUNK_SIZE, ChunkIndex, Generation, KeyGeneration, RekeyProgress, RekeyWish, VolumeId};
use azekura_gateway::Rekeyed;
use std::collections::BTreeMap;
use std::time::Duration;

/// What these requests carry in the place of an attachment: none ends that. They change nothing that clients see, so
/// nobody has to be kept from making them, whoever has the volume.
const ATTACHMENT: Generation = Generation(u64::MAX);
/// Volumes that are passed through at once.
const RUNNING_MAX: usize = 4;
/// Blocks of one request: so much stands between a client's write and its primary, at most, for each volume.
const BLOCKS_MAX: u32 = 32;
/// A chunk that could not be done is tried again after this time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// A chunk of which somebody has written to all blocks that were to be done, likewise.
const OVERTAKEN_PAUSE: Duration = Duration::from_millis(20);

/// One volume that is passed through.
#[derive(Debug)]
struct Pass {
    progress: RekeyProgress,
    /// The gateway has been asked for a chunk, under this number.
    asked: Option<u64>,
    /// It is not to be asked before.
    not_before: Duration,
    /// Nor before the node knows the configuration up to here: it could look at another head than the wish means.
    revision: u64,
}

impl Pass {
    fn new(wish: RekeyWish, revision: u64) -> Pass {
        let of = wish.size.div_ceil(CHUNK_SIZE as u64) as u32;
        let progress = RekeyProgress { wish, chunks: 0, of, moved: 0 };
        Pass { progress, asked: None, not_before: Duration::ZERO, revision }
    }
}

/// The volumes that are, or were, passed through. See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Rekeying {
    passes: BTreeMap<VolumeId, Pass>,
    /// Chunks that have been asked for: each has its number. A pass that has begun anew doesn't take an answer to what
    /// was asked for the one before.
    asked: u64,
}

impl Rekeying {
    /// These volumes are to be passed through, and no others: the configuration of this revision says so. A pass goes
    /// on whose wish has not changed.
    fn follow(&mut self, wishes: &BTreeMap<VolumeId, RekeyWish>, revision: u64) {
        self.passes.retain(|volume, pass| wishes.get(volume) == Some(&pass.progress.wish));
        for (volume, wish) in wishes {
            self.passes.entry(*volume).or_insert_with(|| Pass::new(*wish, revision));
        }
    }

    /// The next chunk that is to be asked for, and under which number, by a node that knows the configuration up to
    /// `known`.
    fn next_chunk(&mut self, now: Duration, known: u64) -> Option<(u64, VolumeId, ChunkIndex, KeyGeneration)> {
        let mut open = self.passes.iter_mut().filter(|(_, pass)| !pass.progress.is_done()).take(RUNNING_MAX);
        let (volume, pass) =
            open.find(|(_, pass)| pass.asked.is_none() && now >= pass.not_before && known >= pass.revision)?;
        self.asked += 1;
        let number = self.asked;
        #[cfg(feature = "sabotage")]
        let number = if crate::sabotage::takes_any_answer() { volume.0 } else { number };
        pass.asked = Some(number);
        Some((number, *volume, ChunkIndex(pass.progress.chunks), pass.progress.wish.key))
    }

    /// What was asked for under this number is done, as far as it could be; `None`: it could not.
    pub(crate) fn answered(&mut self, number: u64, done: Option<Rekeyed>, now: Duration) {
        let Some(pass) = self.passes.values_mut().find(|pass| pass.asked == Some(number)) else { return };
        pass.asked = None;
        let Some(Rekeyed { moved, left }) = done else {
            pass.not_before = now + RETRY_PAUSE;
            return;
        };
        pass.progress.moved += u64::from(moved);
        match (left, moved) {
            (0, _) => pass.progress.chunks += 1,
            (_, 0) => pass.not_before = now + OVERTAKEN_PAUSE,
            _ => {}
        }
    }

    /// When the next chunk can be asked for, if one waits for time to pass.
    pub(crate) fn next(&self) -> Option<Duration> {
        let open = self.passes.values().filter(|pass| !pass.progress.is_done()).take(RUNNING_MAX);
        open.filter(|pass| pass.asked.is_none()).map(|pass| pass.not_before).min()
    }

    /// How far each volume is.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (VolumeId, RekeyProgress)> + '_ {
        self.passes.iter().map(|(volume, pass)| (*volume, pass.progress))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    fn wish(chunks: u64) -> RekeyWish {
        let key = KeyGeneration::FIRST.next();
        RekeyWish { reverts: 0, key, since: 7, size: chunks * CHUNK_SIZE as u64 - 1 }
    }

    fn of(volumes: &[(u64, RekeyWish)]) -> BTreeMap<VolumeId, RekeyWish> {
        volumes.iter().map(|(id, wish)| (VolumeId(*id), *wish)).collect()
    }

    fn chunk(rekeying: &mut Rekeying) -> Option<(u64, u32)> {
        rekeying.next_chunk(NOW, 9).map(|(_, volume, chunk, _)| (volume.0, chunk.0))
    }

    /// The answer to what was asked for last.
    fn answer(rekeying: &mut Rekeying, done: Option<Rekeyed>) {
        rekeying.answered(rekeying.asked, done, NOW);
    }

    /// Else a chunk would count as passed through that was looked at for another key, or in another head.
    #[test]
    fn an_answer_for_the_pass_before_is_none_for_this_one() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&of(&[(1, wish(2))]), 9);
        assert_eq!(chunk(&mut rekeying), Some((1, 0)));
        let former = rekeying.asked;
        rekeying.follow(&of(&[(1, RekeyWish { since: 8, ..wish(2) })]), 9);
        assert_eq!(chunk(&mut rekeying), Some((1, 0)));
        rekeying.answered(former, Some(Rekeyed::default()), NOW);
        assert_eq!(chunk(&mut rekeying), None, "it is under way still");
        answer(&mut rekeying, Some(Rekeyed::default()));
        assert_eq!(chunk(&mut rekeying), Some((1, 1)));
    }

    #[test]
    fn each_chunk_is_asked_for_until_nothing_of_it_is_left() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&of(&[(1, wish(2))]), 9);
        let done = |moved, left| Some(Rekeyed { moved, left });
        assert_eq!((chunk(&mut rekeying), chunk(&mut rekeying)), (Some((1, 0)), None), "one at a time");
        answer(&mut rekeying, done(32, 7));
        assert_eq!(chunk(&mut rekeying), Some((1, 0)), "some are left");
        answer(&mut rekeying, done(7, 0));
        assert_eq!(chunk(&mut rekeying), Some((1, 1)));
        assert!(!rekeying.progress().next().unwrap().1.is_done());
        answer(&mut rekeying, done(0, 0));
        assert_eq!((chunk(&mut rekeying), rekeying.next()), (None, None));
        let progress = RekeyProgress { wish: wish(2), chunks: 2, of: 2, moved: 39 };
        assert_eq!(rekeying.progress().collect::<Vec<_>>(), [(VolumeId(1), progress)]);
        assert!(progress.is_done());
    }

    #[test]
    fn what_failed_or_was_overtaken_waits_a_little() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&of(&[(1, wish(1))]), 9);
        for (result, pause) in [(None, RETRY_PAUSE), (Some(Rekeyed { moved: 0, left: 4 }), OVERTAKEN_PAUSE)] {
            assert!(rekeying.next_chunk(NOW + RETRY_PAUSE, 9).is_some());
            answer(&mut rekeying, result);
            assert_eq!((chunk(&mut rekeying), rekeying.next()), (None, Some(NOW + pause)));
        }
    }

    #[test]
    fn after_a_revert_it_begins_anew_and_what_is_not_wished_ends() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&of(&[(1, wish(9)), (2, wish(9))]), 9);
        assert_eq!(chunk(&mut rekeying), Some((1, 0)));
        answer(&mut rekeying, Some(Rekeyed::default()));
        rekeying.follow(&of(&[(1, wish(9))]), 9);
        assert_eq!(chunk(&mut rekeying), Some((1, 1)), "the same wish goes on");
        rekeying.follow(&of(&[(1, RekeyWish { since: 8, ..wish(9) })]), 9);
        answer(&mut rekeying, Some(Rekeyed::default()));
        assert_eq!(chunk(&mut rekeying), Some((1, 0)), "another rotation to the same number");
        rekeying.follow(&of(&[(1, RekeyWish { reverts: 1, ..wish(9) })]), 9);
        answer(&mut rekeying, Some(Rekeyed::default()));
        assert_eq!(chunk(&mut rekeying), Some((1, 0)));
    }

    /// Until then the node may take a head for the volume's that shows something else.
    #[test]
    fn nothing_is_asked_before_the_node_knows_what_the_wish_is_of() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&of(&[(1, wish(9))]), 10);
        assert_eq!(chunk(&mut rekeying), None);
        rekeying.follow(&of(&[(1, wish(9))]), 11);
        assert!(rekeying.next_chunk(NOW, 10).is_some(), "the same wish, said again");
    }

    #[test]
    fn few_volumes_are_passed_through_at_once() {
        let mut rekeying = Rekeying::default();
        rekeying.follow(&(0..9).map(|id| (VolumeId(id), wish(1))).collect(), 9);
        let first: Vec<_> = std::iter::from_fn(|| chunk(&mut rekeying)).map(|(volume, _)| volume).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        rekeying.answered(3, Some(Rekeyed::default()), NOW);
        assert_eq!(chunk(&mut rekeying), Some((4, 0)));
    }
}
