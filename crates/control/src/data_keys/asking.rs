//! Keys that the configuration names are asked for. One provider that is away, or slow, holds up nobody: not the
//! configuration, nor those whose keys others have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use azekura_base::KeyId;
use azekura_cipher::{Keyring, VolumeKey, VolumeKeys};
use azekura_model::{DataKeyRecord, Model, WrappedKey};
use azekura_secrets::{KeyProvider, UNWRAPS_MAX};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{
    ANSWER_WAIT, ASKED, Brought, DataKeys, FIRST_WAIT, INTERRUPTED, KEYS_RETRY, OneKey, Opened, State,
    WAITS_FOR_SECRET, Wrapped, late, number, one_key, open,
};

/// Those that are told in a line of the log at most.
const TOLD_MAX: usize = 8;

impl DataKeys {
    /// Asks for the keys that a model has and that are not known, and forgets those that it has no more. Gives all of
    /// them, if anything has changed. What takes longer than a moment is told by [`DataKeys::arrived`].
    pub async fn follow(&self, model: &Model) -> Option<Arc<Keyring>> {
        let asked = self.ask(model);
        let answered = async {
            for task in asked {
                let _ = task.await;
            }
        };
        let _ = timeout(FIRST_WAIT, answered).await;
        self.gather(model)
    }

    /// Waits until a provider has answered: [`DataKeys::follow`] may have news.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Asks for what is missing; gives what is worth waiting for.
    fn ask(&self, model: &Model) -> Vec<JoinHandle<()>> {
        let state = &mut *self.state();
        let is_known =
            |name: &OneKey| [&state.opened, &state.found].iter().any(|keys| matches!(keys.get(name), Some(Ok(_))));
        let mut missing: BTreeMap<&'static str, (Arc<dyn KeyProvider>, Wrapped)> = BTreeMap::new();
        let all = model.data_keys.iter().flat_map(|(id, record)| record.generations.iter().map(|key| (*id, key)));
        for (id, generation) in all.filter(|(id, key)| !is_known(&one_key(*id, key))) {
            let Ok(provider) = self.providers.of(generation) else { continue };
            let of = missing.entry(provider.name()).or_insert_with(|| (provider, Vec::new()));
            of.1.push((id, generation.clone()));
        }
        let mut tasks = Vec::new();
        for (name, (provider, mut records)) in missing {
            let asked = state.asked.entry(name).or_default();
            if asked.is_busy {
                continue;
            }
            if asked.tried.is_none_or(|tried| tried.elapsed() >= KEYS_RETRY) {
                asked.tried = Some(Instant::now());
            } else {
                // Of the others it was said lately that they are not to be had.
                records.retain(|record| {
                    let said = state.found.get(&name_of(record)).or_else(|| state.opened.get(&name_of(record)));
                    said.is_none_or(|said| said.as_ref().is_err_and(|why| why == ASKED))
                });
            }
            if records.is_empty() {
                continue;
            }
            asked.is_busy = true;
            let is_slow = asked.is_slow;
            let cluster = number(model);
            let task = tokio::spawn(self.clone().unwrap(provider, cluster, records));
            if !is_slow {
                tasks.push(task);
            }
        }
        tasks
    }

    /// Has a provider unwrap these, and keeps what comes of it.
    async fn unwrap(self, provider: Arc<dyn KeyProvider>, cluster: Result<u128, &'static str>, records: Wrapped) {
        let (begun, name) = (Instant::now(), provider.name());
        let mut batches = records.chunks(UNWRAPS_MAX);
        let mut failed = None;
        for batch in batches.by_ref() {
            match self.unwrap_batch(&provider, cluster, batch).await {
                Ok(keys) => self.state().found.extend(keys),
                Err(why) => {
                    self.state().found.extend(batch.iter().map(|record| (name_of(record), Err(why.clone()))));
                    failed = Some(why);
                    break;
                }
            }
        }
        // Who did not answer once is not asked for the rest.
        if let Some(why) = failed {
            self.state().found.extend(batches.flatten().map(|record| (name_of(record), Err(why.clone()))));
        }
        let mut state = self.state();
        let asked = state.asked.entry(name).or_default();
        (asked.is_busy, asked.is_slow) = (false, begun.elapsed() > FIRST_WAIT);
        drop(state);
        self.arrived.notify_one();
    }

    async fn unwrap_batch(
        &self,
        provider: &Arc<dyn KeyProvider>,
        cluster: Result<u128, &'static str>,
        batch: &[(KeyId, WrappedKey)],
    ) -> Result<Opened, String> {
        let (provider, cluster, records) = (Arc::clone(provider), cluster?, batch.to_vec());
        let mut work = tokio::task::spawn_blocking(move || {
            let keys = open(&*provider, cluster, &records)?;
            let cipher = |key: Result<azekura_secrets::DataKey, String>| {
                let cipher = key?.cipher().map(Arc::new);
                cipher.ok_or_else(|| "both halves of the volume's key are the same".to_owned())
            };
            Ok(records.iter().map(name_of).zip(keys.into_iter().map(cipher)).collect())
        });
        if let Ok(done) = timeout(ANSWER_WAIT, &mut work).await {
            return done.unwrap_or_else(|_| Err(INTERRUPTED.to_owned()));
        }
        // It is told now, but nothing is asked again before the thread is back: there is never more than one.
        let why = late(ANSWER_WAIT);
        self.state().found.extend(batch.iter().map(|record| (name_of(record), Err(why.clone()))));
        self.arrived.notify_one();
        work.await.unwrap_or(Err(why))
    }

    /// What is known of a model's keys, if that is something else than before.
    fn gather(&self, model: &Model) -> Option<Arc<Keyring>> {
        let state = &mut *self.state();
        let mut opened = Opened::new();
        for (id, record) in model.data_keys.iter() {
            opened.extend(record.generations.iter().map(|key| (one_key(*id, key), self.known(state, *id, key))));
        }
        state.opened = opened;
        state.found.clear();
        let keys = model.data_keys.iter().map(|(id, record)| (*id, together(&state.opened, record).map(Arc::new)));
        let ring: Keyring = keys.collect();
        let before = std::mem::replace(&mut state.ring, Arc::new(ring));
        let ring = Arc::clone(&state.ring);
        tell(&before, &ring);
        let same = |one: &Result<Arc<VolumeKeys>, String>, two: &Result<Arc<VolumeKeys>, String>| match (one, two) {
            (Ok(one), Ok(two)) => one.is_same(two),
            (Err(one), Err(two)) => one == two,
            _ => false,
        };
        let is_same =
            before.len() == ring.len() && ring.iter().all(|(id, key)| before.get(id).is_some_and(|was| same(was, key)));
        (!is_same).then_some(ring)
    }

    fn known(&self, state: &State, id: KeyId, generation: &WrappedKey) -> Result<Arc<VolumeKey>, String> {
        let is_given_back = state.brought.get(&id).is_some_and(Brought::is_given_back);
        let name = one_key(id, generation);
        let said = [state.found.get(&name), state.opened.get(&name).filter(|_| !is_given_back)];
        if let Some(Ok(key)) = said.iter().flatten().find(|said| said.is_ok()) {
            return Ok(Arc::clone(key));
        }
        self.providers.of(generation)?;
        said.into_iter().flatten().next().cloned().unwrap_or_else(|| Err(ASKED.to_owned()))
    }
}

/// All generations of a data key: without one of them some blocks could not be read. That is not so of one that is not
/// written with anywhere yet: it may still be missing.
fn together(opened: &Opened, record: &DataKeyRecord) -> Result<VolumeKeys, String> {
    let writing = record.current().ok_or("its record has no key that is written with")?.number;
    let mut keys = Vec::with_capacity(record.generations.len());
    let mut is_to_come = false;
    for generation in &record.generations {
        match opened.get(&one_key(record.id, generation)) {
            Some(Ok(key)) => keys.push((generation.number, Arc::clone(key))),
            _ if is_to_come => break,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(ASKED.to_owned()),
        }
        is_to_come |= generation.number == writing;
    }
    VolumeKeys::new(keys, writing).ok_or_else(|| "its record has a generation twice".to_owned())
}

fn name_of((id, generation): &(KeyId, WrappedKey)) -> OneKey {
    one_key(*id, generation)
}

/// Tells of keys that were there, or asked for, and are missing now.
fn tell(before: &Keyring, now: &Keyring) {
    let mut missing: BTreeMap<&str, BTreeSet<KeyId>> = BTreeMap::new();
    for (id, key) in now {
        let Err(why) = key else { continue };
        let is_known = |was: &Result<_, String>| was.as_ref().is_err_and(|was| was != ASKED);
        // That a volume waits for its secret is as it should be where nobody uses it.
        let is_told = why != ASKED && why != WAITS_FOR_SECRET;
        if is_told && !before.get(id).is_some_and(is_known) {
            missing.entry(why).or_default().insert(*id);
        }
    }
    for (why, ids) in missing {
        let mut names: Vec<String> = ids.iter().take(TOLD_MAX).map(ToString::to_string).collect();
        if ids.len() > TOLD_MAX {
            names.push(format!("{} more", ids.len() - TOLD_MAX));
        }
        tracing::warn!("encrypted volumes with the data key {} are not served here: {why}", names.join(", "));
    }
}
