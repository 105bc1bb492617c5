//! What a transition reads, and what it comes to.
//!
//! A transition is a pure function of [`Records`]. It does not know beforehand which keys it needs: a volume's record
//! names its layers. So it asks for keys as it goes. One that was not read yet stops it with [`Halt::Read`]; whoever
//! runs it reads the key and calls it again.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::{Bounds, Condition, Key, KeyValue, Kind, MetaError, Model, Txn};

/// Keys as they were read, each with the revision of its last change; `None`: the key was not there.
pub type Gathered = BTreeMap<String, Option<KeyValue>>;

/// What a transition reads.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    model: &'a Model,
    /// `None`: all keys are as the model has them.
    read: Option<&'a Gathered>,
    uncertain: bool,
    /// Of volumes outside, no transition comes to anything.
    bounds: &'a Bounds,
}

/// Why a transition did not come to an end.
#[derive(Clone, Debug)]
pub enum Halt {
    /// These keys are to be read, as of one revision.
    Read(Vec<String>),
    /// A model is needed that holds every change up to this revision.
    Wait(i64),
    /// It is refused.
    Refused(MetaError),
}

impl From<MetaError> for Halt {
    fn from(error: MetaError) -> Halt {
        Halt::Refused(error)
    }
}

/// What a transition comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// Nothing is to be changed: what was wanted is so since this revision, at the latest.
    Done(T, i64),
    /// This change brings it about; if a condition does not hold, the transition is to be tried again.
    Run(Txn, T),
    /// Something is in the way that will be over soon: the transition is to be tried again.
    Again,
}

/// What a transition gives.
pub type Outcome<T> = Result<Step<T>, Halt>;

impl<'a> Records<'a> {
    /// Everything as a model has it. When the model is not the newest, the conditions of what comes of it do not hold.
    #[must_use]
    pub fn known(model: &'a Model) -> Records<'a> {
        Records { model, read: None, uncertain: false, bounds: &Bounds::All }
    }

    /// What was read, and a model that may be older. `uncertain`: an earlier attempt at the same transition may have
    /// been executed.
    #[must_use]
    pub fn gathered(model: &'a Model, read: &'a Gathered, uncertain: bool) -> Records<'a> {
        Records { model, read: Some(read), uncertain, bounds: &Bounds::All }
    }

    /// The same for somebody who has to do with these volumes alone: for him there are no others, whether there are or
    /// not, and whatever a transition wants with one is refused.
    #[must_use]
    pub fn within(self, bounds: &'a Bounds) -> Records<'a> {
        Records { bounds, ..self }
    }

    /// An earlier attempt may have been executed.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// The model that is known, however old it is.
    #[must_use]
    pub fn known_model(&self) -> &'a Model {
        self.model
    }

    /// A model that holds every change up to `revision`.
    ///
    /// # Errors
    /// When the known one does not.
    pub fn model(&self, revision: i64) -> Result<&'a Model, Halt> {
        if self.read.is_none() || self.model.revision >= revision { Ok(self.model) } else { Err(Halt::Wait(revision)) }
    }

    /// A key.
    ///
    /// # Errors
    /// When it was not read yet.
    pub fn find(&self, key: &Key<'_>) -> Result<Found, Halt> {
        let [found] = self.find_all([key])?;
        Ok(found)
    }

    /// Keys as of one revision.
    ///
    /// # Errors
    /// When one was not read yet.
    pub fn find_all<const N: usize>(&self, keys: [&Key<'_>; N]) -> Result<[Found; N], Halt> {
        let found = self.look_up(keys.iter().map(ToString::to_string).collect())?;
        Ok(found.try_into().expect("each key has its answer"))
    }

    /// The same for any number of keys.
    ///
    /// # Errors
    /// When one was not read yet.
    pub fn find_each(&self, keys: &[Key<'_>]) -> Result<Vec<Found>, Halt> {
        self.look_up(keys.iter().map(ToString::to_string).collect())
    }

    /// A change that was made from a model, as a transition: it happens once, and not when something has changed since
    /// that its conditions name. Gives whether it happens.
    ///
    /// # Errors
    /// When a key that a condition names was not read yet.
    pub fn unless_overtaken(&self, txn: Txn) -> Outcome<bool> {
        let found = self.look_up(txn.conditions().iter().map(|(key, _)| key.clone()).collect())?;
        let mut conditions = found.iter().zip(txn.conditions());
        if conditions.all(|(found, (_, condition))| found.condition() == *condition) {
            return Ok(Step::Run(txn, true));
        }
        Ok(Step::Done(false, found.iter().map(Found::mod_revision).max().unwrap_or(0)))
    }

    fn look_up(&self, names: Vec<String>) -> Result<Vec<Found>, Halt> {
        if *self.bounds != Bounds::All {
            names.iter().try_for_each(|name| check_bounds(self.bounds, name))?;
        }
        let Some(read) = self.read else {
            return Ok(names.into_iter().map(|key| Found { kv: self.model.key_value(&key), key }).collect());
        };
        let open: Vec<String> = names.iter().filter(|name| !read.contains_key(*name)).cloned().collect();
        if !open.is_empty() {
            return Err(Halt::Read(open));
        }
        Ok(names.into_iter().map(|key| Found { kv: read[&key].clone(), key }).collect())
    }
}

/// Refuses a volume, a target or a project outside.
///
/// # Errors
/// As if it were not there.
pub fn check_bounds(bounds: &Bounds, key: &str) -> Result<(), MetaError> {
    let (kind, name) = match Key::parse(key.as_bytes()) {
        Some(Key::Volume(name)) if !bounds.sees(name) => (Kind::Volume, name),
        Some(Key::Target(name)) if !bounds.sees(name) => (Kind::Target, name),
        Some(Key::Project(name)) if !bounds.has(name) => (Kind::Project, name),
        _ => return Ok(()),
    };
    Err(MetaError::NotFound { kind, name: name.to_owned() })
}

/// A key as it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub key: String,
    /// What it has; `None`: it is not there.
    pub kv: Option<KeyValue>,
}

impl Found {
    /// How it must be for nothing to have changed.
    #[must_use]
    pub fn condition(&self) -> Condition {
        Condition::of(self.kv.as_ref())
    }

    /// A revision from which on it is as it was found: that of its last change, or 0, before all changes, if it is not
    /// there.
    #[must_use]
    pub fn mod_revision(&self) -> i64 {
        self.kv.as_ref().map_or(0, |kv| kv.mod_revision)
    }

    /// Its record; `None`: it is not there.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn record<T: DeserializeOwned>(&self) -> Result<Option<T>, MetaError> {
        let Some(kv) = &self.kv else { return Ok(None) };
        serde_json::from_slice(&kv.value)
            .map(Some)
            .map_err(|error| MetaError::Broken { key: self.key.clone(), reason: error.to_string() })
    }

    /// The next id of a counter.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn next_id(&self) -> Result<u64, MetaError> {
        Ok(self.record::<u64>()?.unwrap_or(1))
    }
}

impl Txn {
    /// Only if a key is still as it was found.
    pub fn when_as(self, found: &Found) -> Txn {
        self.when(&found.key, found.condition())
    }
}
