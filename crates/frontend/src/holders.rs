//! Which shards of a process hold its attachments. A volume is attached to the process, and each shard has clients of
//! its own: the process gives an attachment back when no shard holds it any more.
//!
//! A shard says that it *wants* a volume, is told that it *holds* an attachment of it, and says that it is *idle*: its
//! last client and request of that attachment are gone, and it begins none before it is told again that it holds one.
//! So a shard that is told counts as a holder from the moment when it is told until it has said that it is idle, and
//! nobody has to be asked to let go. What shards say is heard in order, and so is what each of them is told; between
//! two shards there is no order.
//!
//! | state of a volume | on | next |
//! |---|---|---|
//! | absent | a shard wants it | attaching |
//! | attaching | attached | held by all who want it; idle, if nobody does |
//! | attaching | refused | as before, without those who want it |
//! | held | a shard wants it | attaching: it may have ended meanwhile, and be another one by now |
//! | held | the last holder is idle | detaching |
//! | held | the last holder says that it has ended | absent |
//! | detaching | given back, and a shard wants it by now; nobody does | attaching; absent |
//!
//! A later attachment ends the former one: who held that holds nothing.
//!
//! Where the process has an attachment to read, a shard may want it *to write* (0048). Then another one takes its
//! place, which nobody holds yet: it *lingers* for a while, since the host comes again.

use crate::attachment::{Attachment, VolumeUse};
use azekura_base::{Generation, Shard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Why a volume is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For people.
    pub why: String,
    /// The process has this attachment all the same.
    pub attached: Option<Attachment>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Attach a volume to the process, and if so, to write; [`Holders::attached`] answers.
    Attach(VolumeUse, bool),
    /// Give an attachment back; [`Holders::given_back`] answers.
    GiveBack(VolumeUse, Generation),
    /// Tell a shard that it holds an attachment of the volume that it wants, or why not.
    Tell(Shard, VolumeUse, Result<Attachment, String>),
    /// After a while, say that it is over: [`Holders::has_lingered`].
    Linger(VolumeUse),
    /// Tell a shard that what it has let go is none of its business any more.
    TellLeft(Shard, VolumeUse),
}

/// One volume.
#[derive(Debug, Default)]
struct Volume {
    /// What the process has, as far as it knows.
    attachment: Option<Attachment>,
    holders: BTreeSet<Shard>,
    wanting: BTreeSet<Shard>,
    /// A shard wants it to write.
    to_write: bool,
    /// It is being attached or given back.
    busy: bool,
    /// It is being attached to write.
    writing: bool,
    /// How often it has to be said that it has lingered for long enough.
    lingers: usize,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Holders {
    volumes: BTreeMap<VolumeUse, Volume>,
    errands: VecDeque<Errand>,
}

impl Holders {
    /// The next thing to do.
    pub fn next_errand(&mut self) -> Option<Errand> {
        self.errands.pop_front()
    }

    /// True when the process has nothing, and nobody wants anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// A shard wants a volume, and so holds no attachment of it.
    pub fn wanted(&mut self, shard: Shard, which: &VolumeUse) {
        let volume = self.volumes.entry(which.clone()).or_default();
        volume.holders.remove(&shard);
        volume.wanting.insert(shard);
        self.go_on(which);
    }

    /// A shard has a write for what the process has to read.
    pub fn wanted_to_write(&mut self, which: &VolumeUse) {
        self.volumes.entry(which.clone()).or_default().to_write = true;
        self.go_on(which);
    }

    /// The host has had its time to come again.
    pub fn has_lingered(&mut self, which: &VolumeUse) {
        if let Some(volume) = self.volumes.get_mut(which) {
            volume.lingers = volume.lingers.saturating_sub(1);
        }
        self.go_on(which);
    }

    /// A shard does not use an attachment any more.
    pub fn idle(&mut self, shard: Shard, which: &VolumeUse, attachment: Generation) {
        self.let_go(shard, which, attachment);
        self.errands.push_back(Errand::TellLeft(shard, which.clone()));
        self.go_on(which);
    }

    /// A shard has found that an attachment of its has ended: there is nothing to give back.
    pub fn ended(&mut self, shard: Shard, which: &VolumeUse, attachment: Generation) {
        if let Some(volume) = self.let_go(shard, which, attachment)
            && volume.holders.is_empty()
        {
            volume.attachment = None;
        }
        self.go_on(which);
    }

    /// The volume, if that attachment of it is the present one.
    fn let_go(&mut self, shard: Shard, which: &VolumeUse, attachment: Generation) -> Option<&mut Volume> {
        let is_it = |volume: &&mut Volume| volume.attachment.is_some_and(|present| present.generation == attachment);
        let volume = self.volumes.get_mut(which).filter(is_it)?;
        volume.holders.remove(&shard).then_some(volume)
    }

    /// The volume of a name is attached to the process, or is not.
    pub fn attached(&mut self, which: &VolumeUse, outcome: Result<Attachment, Refusal>) {
        let volume = self.volumes.entry(which.clone()).or_default();
        volume.busy = false;
        let has = outcome.as_ref().map_or_else(|refusal| refusal.attached, |attachment| Some(*attachment));
        let names = |one: Option<Attachment>| one.map(|one| (one.volume, one.generation));
        if has.is_some() && names(has) != names(volume.attachment) {
            volume.holders.clear();
        }
        volume.attachment = has.or(volume.attachment);
        if volume.writing && has.is_some() {
            volume.lingers += 1;
            self.errands.push_back(Errand::Linger(which.clone()));
        }
        let wanting = std::mem::take(&mut volume.wanting);
        if outcome.is_ok() {
            volume.holders.extend(&wanting);
        }
        let answer = outcome.map_err(|refusal| refusal.why);
        self.errands.extend(wanting.into_iter().map(|shard| Errand::Tell(shard, which.clone(), answer.clone())));
        self.go_on(which);
    }

    /// The attachment of a volume is given back.
    pub fn given_back(&mut self, which: &VolumeUse) {
        if let Some(volume) = self.volumes.get_mut(which) {
            volume.busy = false;
            volume.attachment = None;
        }
        self.go_on(which);
    }

    /// Does one thing a volume at a time.
    fn go_on(&mut self, which: &VolumeUse) {
        let Some(volume) = self.volumes.get_mut(which).filter(|volume| !volume.busy) else { return };
        if !volume.wanting.is_empty() || volume.to_write {
            (volume.busy, volume.writing) = (true, std::mem::take(&mut volume.to_write));
            self.errands.push_back(Errand::Attach(which.clone(), volume.writing));
        } else if volume.holders.is_empty() && volume.lingers == 0 {
            match volume.attachment {
                Some(attachment) => {
                    volume.busy = true;
                    self.errands.push_back(Errand::GiveBack(which.clone(), attachment.generation));
                }
                None => drop(self.volumes.remove(which)),
            }
        }
    }
}

#[cfg(test)]
#[path = "holders_tests.rs"]
mod tests;
