//! Which attachments of volumes stand, as far as this node knows: from the configuration, or because another node has
//! said so sooner.

use azekura_base::{Generation, VolumeId};
use std::collections::BTreeMap;

/// A volume's attachments as of one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// Raised at every change.
    pub generation: Generation,
    /// Those that stand, each named by the generation that it began in.
    pub standing: Vec<Generation>,
}

impl Attachments {
    /// True when an attachment was there by this generation, if ever, and is not any more.
    #[must_use]
    pub fn ended(&self, attachment: Generation) -> bool {
        attachment <= self.generation && !self.standing.contains(&attachment)
    }
}

/// The newest that is known of every volume.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    known: BTreeMap<VolumeId, Attachments>,
}

impl Fences {
    /// True when requests of this attachment are to be refused (0009).
    pub(crate) fn refuse(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.known.get(&volume).is_some_and(|known| known.ended(attachment))
    }

    /// Learns of a volume's attachments. True when that is news.
    pub(crate) fn learn(&mut self, volume: VolumeId, attachments: &Attachments) -> bool {
        let known = self.known.entry(volume).or_default();
        let news = attachments.generation > known.generation;
        if news {
            known.clone_from(attachments);
        }
        news
    }

    /// Learns what the configuration says; volumes that it says nothing of any more, after `before`, are deleted.
    pub(crate) fn follow(
        &mut self,
        before: &BTreeMap<VolumeId, Attachments>,
        now: &BTreeMap<VolumeId, Attachments>,
    ) -> bool {
        for deleted in before.keys().filter(|volume| !now.contains_key(volume)) {
            self.known.remove(deleted);
        }
        let changed = now.iter().filter(|(volume, attachments)| before.get(volume) != Some(attachments));
        changed.fold(false, |news, (volume, attachments)| self.learn(*volume, attachments) || news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachments(generation: u64, standing: &[u64]) -> Attachments {
        Attachments { generation: Generation(generation), standing: standing.iter().copied().map(Generation).collect() }
    }

    #[test]
    fn older_news_changes_nothing() {
        let mut fences = Fences::default();
        let volume = VolumeId(1);
        assert!(!fences.refuse(volume, Generation(0)), "nothing is known");
        assert!(fences.learn(volume, &attachments(5, &[3, 5])));
        assert!(!fences.learn(volume, &attachments(4, &[4])));
        assert!(fences.refuse(volume, Generation(4)) && fences.refuse(volume, Generation(0)));
        assert!(!fences.refuse(volume, Generation(3)) && !fences.refuse(volume, Generation(6)));
        assert!(!fences.refuse(VolumeId(2), Generation(4)), "another volume");
    }

    #[test]
    fn what_a_message_has_told_outlives_an_older_configuration() {
        let mut fences = Fences::default();
        let volume = VolumeId(1);
        let old = BTreeMap::from([(volume, attachments(4, &[4]))]);
        fences.follow(&BTreeMap::new(), &old);
        fences.learn(volume, &attachments(5, &[5]));
        assert!(!fences.follow(&old, &old));
        assert!(fences.refuse(volume, Generation(4)));
        fences.follow(&old, &BTreeMap::new());
        assert!(!fences.refuse(volume, Generation(4)), "the volume is deleted");
    }
}
