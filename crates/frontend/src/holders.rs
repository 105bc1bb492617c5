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

use azekura_base::{Generation, Shard, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which attachment of which volume.
pub type Attachment = (VolumeId, Generation);

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
    /// Attach the volume of this name to the process; [`Holders::attached`] answers.
    Attach(String),
    /// Give an attachment back; [`Holders::given_back`] answers.
    GiveBack(String, Generation),
    /// Tell a shard that it holds an attachment of the volume that it wants, or why not.
    Tell(Shard, String, Result<Attachment, String>),
    /// Tell a shard that what it has let go is none of its business any more.
    TellLeft(Shard, String),
}

/// One volume.
#[derive(Debug, Default)]
struct Volume {
    /// What the process has, as far as it knows.
    attachment: Option<Attachment>,
    holders: BTreeSet<Shard>,
    wanting: BTreeSet<Shard>,
    /// It is being attached or given back.
    busy: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Holders {
    volumes: BTreeMap<String, Volume>,
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
    pub fn wanted(&mut self, shard: Shard, name: &str) {
        let volume = self.volumes.entry(name.to_owned()).or_default();
        volume.holders.remove(&shard);
        volume.wanting.insert(shard);
        self.go_on(name);
    }

    /// A shard does not use an attachment any more.
    pub fn idle(&mut self, shard: Shard, name: &str, attachment: Generation) {
        self.let_go(shard, name, attachment);
        self.errands.push_back(Errand::TellLeft(shard, name.to_owned()));
        self.go_on(name);
    }

    /// A shard has found that an attachment of its has ended: there is nothing to give back.
    pub fn ended(&mut self, shard: Shard, name: &str, attachment: Generation) {
        if let Some(volume) = self.let_go(shard, name, attachment)
            && volume.holders.is_empty()
        {
            volume.attachment = None;
        }
        self.go_on(name);
    }

    /// The volume, if that attachment of it is the present one.
    fn let_go(&mut self, shard: Shard, name: &str, attachment: Generation) -> Option<&mut Volume> {
        let is_it = |volume: &&mut Volume| volume.attachment.is_some_and(|(_, present)| present == attachment);
        let volume = self.volumes.get_mut(name).filter(is_it)?;
        volume.holders.remove(&shard).then_some(volume)
    }

    /// The volume of a name is attached to the process, or is not.
    pub fn attached(&mut self, name: &str, outcome: Result<Attachment, Refusal>) {
        let volume = self.volumes.entry(name.to_owned()).or_default();
        volume.busy = false;
        let has = outcome.as_ref().map_or_else(|refusal| refusal.attached, |attachment| Some(*attachment));
        if has.is_some() && has != volume.attachment {
            volume.attachment = has;
            volume.holders.clear();
        }
        let wanting = std::mem::take(&mut volume.wanting);
        if outcome.is_ok() {
            volume.holders.extend(&wanting);
        }
        let answer = outcome.map_err(|refusal| refusal.why);
        self.errands.extend(wanting.into_iter().map(|shard| Errand::Tell(shard, name.to_owned(), answer.clone())));
        self.go_on(name);
    }

    /// The attachment of a volume is given back.
    pub fn given_back(&mut self, name: &str) {
        if let Some(volume) = self.volumes.get_mut(name) {
            volume.busy = false;
            volume.attachment = None;
        }
        self.go_on(name);
    }

    /// Does one thing a volume at a time.
    fn go_on(&mut self, name: &str) {
        let Some(volume) = self.volumes.get_mut(name).filter(|volume| !volume.busy) else { return };
        if !volume.wanting.is_empty() {
            volume.busy = true;
            self.errands.push_back(Errand::Attach(name.to_owned()));
        } else if volume.holders.is_empty() {
            match volume.attachment {
                Some((_, attachment)) => {
                    volume.busy = true;
                    self.errands.push_back(Errand::GiveBack(name.to_owned(), attachment));
                }
                None => drop(self.volumes.remove(name)),
            }
        }
    }
}

#[cfg(test)]
#[path = "holders_tests.rs"]
mod tests;
