//! Data keys of encrypted volumes: drawn when one is made, unwrapped when the configuration names them
//! (docs/decisions/0038-encrypted-volumes.md).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura_base::KeyId;
use azekura_cipher::Keyring;
use azekura_meta::time::now_rfc3339;
use azekura_model::{DataKeyRecord, KeyGeneration, MetaError, Model, Unknown};
use azekura_secrets::{DataKey, KekMark, KeyPlace, KeyProvider};
use tokio::time::{Instant, timeout};

/// How long a provider may take for all that it is asked at once.
const PROVIDER_WAIT: Duration = Duration::from_secs(5);
/// Keys that were not to be had are asked for again after this time.
pub const KEYS_RETRY: Duration = Duration::from_secs(5);

/// What a node without a provider says.
const NO_PROVIDER: &str = "it was started without --key-file, which names the file with the key that opens it";

/// What wraps a data key, and what would anew; or why that can't be made.
pub type Rewrapped = Result<(String, String), String>;

/// The data keys of a node. Cheap to clone.
#[derive(Clone)]
pub struct DataKeys {
    provider: Option<Arc<dyn KeyProvider>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    ring: Arc<Keyring>,
    /// When keys that are missing were last asked for.
    tried: Option<Instant>,
}

impl DataKeys {
    /// None yet; they will be unwrapped by `provider`.
    #[must_use]
    pub fn new(provider: Option<Arc<dyn KeyProvider>>) -> DataKeys {
        DataKeys { provider, state: Arc::default() }
    }

    /// A new one, wrapped.
    ///
    /// # Errors
    /// When there is no provider, or it can't.
    pub async fn draw(&self, model: &Model) -> Result<DataKeyRecord, MetaError> {
        let refused = |reason: String| MetaError::NotEncrypted { reason };
        let provider =
            self.provider.clone().ok_or_else(|| refused(format!("this node can't encrypt: {NO_PROVIDER}")))?;
        let cluster = number(model).map_err(|why| refused(why.to_owned()))?;
        let number =
            getrandom::u64().map_err(|error| refused(format!("the system gives no random numbers: {error}")))?;
        let id = KeyId(number);
        let wrapped = within(move || {
            let key = DataKey::draw().map_err(|error| error.to_string())?;
            let wrapped = provider.wrap(KeyPlace { cluster, key: id }, &key).map_err(|error| error.to_string())?;
            Ok((provider.name(), wrapped, key.check(id)))
        });
        let (provider, wrapped, check) = wrapped.await.map_err(refused)?;
        let unknown = Unknown::default();
        let (provider, created) = (provider.to_owned(), now_rfc3339());
        let generation = KeyGeneration { number: 0, provider, wrapped, check, created, unknown: unknown.clone() };
        Ok(DataKeyRecord { id, generations: vec![generation], unknown })
    }

    /// Unwraps the keys that a model has and that are not known, and forgets those that it has no more. Gives all of
    /// them, if anything has changed.
    pub async fn follow(&self, model: &Model) -> Option<Arc<Keyring>> {
        let (before, retry) = {
            let state = self.state();
            (Arc::clone(&state.ring), state.tried.is_none_or(|tried| tried.elapsed() >= KEYS_RETRY))
        };
        let mut ring = Keyring::new();
        let mut open: Vec<DataKeyRecord> = Vec::new();
        for (id, record) in model.data_keys.iter() {
            match before.get(id) {
                Some(Err(_)) if retry => open.push(record.record.clone()),
                Some(known) => drop(ring.insert(*id, known.clone())),
                None => open.push(record.record.clone()),
            }
        }
        if open.is_empty() && ring.len() == before.len() {
            return None;
        }
        if !open.is_empty() {
            self.state().tried = Some(Instant::now());
            ring.extend(self.unwrap(open, model).await);
        }
        for (id, key) in &ring {
            if let (Err(why), false) = (key, before.contains_key(id)) {
                tracing::warn!("encrypted volumes with the data key {id} are not served here: {why}");
            }
        }
        let ring = Arc::new(ring);
        self.state().ring = Arc::clone(&ring);
        Some(ring)
    }

    async fn unwrap(&self, records: Vec<DataKeyRecord>, model: &Model) -> Keyring {
        let all_for = |why: &str| records.iter().map(|record| (record.id, Err(why.to_owned()))).collect();
        let Some(provider) = self.provider.clone() else { return all_for(NO_PROVIDER) };
        let cluster = match number(model) {
            Ok(cluster) => cluster,
            Err(why) => return all_for(why),
        };
        let asked = records.clone();
        let opened = within(move || Ok(asked.iter().map(|key| (key.id, open(&*provider, cluster, key))).collect()));
        opened.await.unwrap_or_else(|why| all_for(&why))
    }

    /// The provider's keys.
    ///
    /// # Errors
    /// When there is no provider, or they are not to be had.
    pub async fn keks(&self, model: &Model) -> Result<Vec<KekMark>, String> {
        let provider = self.provider.clone().ok_or(NO_PROVIDER)?;
        let cluster = number(model)?;
        within(move || provider.keks(cluster).map_err(|error| error.to_string())).await
    }

    /// The version of the provider's key that wraps a data key; `None`: another provider's, or it can't be read.
    #[must_use]
    pub fn version_of(&self, record: &DataKeyRecord) -> Option<u32> {
        let (provider, generation) = (self.provider.as_ref()?, record.current()?);
        (generation.provider == provider.name()).then(|| provider.version(&generation.wrapped).ok())?
    }

    /// Of the data keys that are not wrapped with the provider's newest key, so many at most: what wraps each, and what
    /// would wrap it then, or why that can't be made. Each was opened and compared with its check value before.
    ///
    /// # Errors
    /// When there is no provider, or it does not answer.
    pub async fn rewrap(&self, model: &Model, most: usize) -> Result<Vec<(KeyId, Rewrapped)>, String> {
        let provider = self.provider.clone().ok_or(NO_PROVIDER)?;
        let cluster = number(model)?;
        let newest = self.keks(model).await?.last().map(|kek| kek.version);
        let older = model.data_keys.values().filter(|record| self.version_of(record) != newest);
        let older: Vec<DataKeyRecord> = older.take(most).map(|record| record.record.clone()).collect();
        let anew = move |record: &DataKeyRecord| {
            open(&*provider, cluster, record)?;
            let from = record.current().map(|generation| generation.wrapped.clone()).unwrap_or_default();
            let place = KeyPlace { cluster, key: record.id };
            let to = provider.rewrap(place, &from).map_err(|error| error.to_string())?;
            Ok((from.clone(), to.unwrap_or(from)))
        };
        within(move || Ok(older.iter().map(|record| (record.id, anew(record))).collect())).await
    }

    /// True while keys are missing: they are to be asked for again after [`KEYS_RETRY`].
    #[must_use]
    pub fn any_missing(&self) -> bool {
        self.state().ring.values().any(Result::is_err)
    }

    /// The keys that are missing, and why.
    #[must_use]
    pub fn missing(&self) -> BTreeMap<KeyId, String> {
        let missing = |(id, key): (&KeyId, &Result<_, String>)| Some((*id, key.as_ref().err()?.clone()));
        self.state().ring.iter().filter_map(missing).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cluster's.
fn number(model: &Model) -> Result<u128, &'static str> {
    model.cluster.as_ref().and_then(|cluster| cluster.number()).ok_or("the cluster's record is not there")
}

/// A record's key, opened and compared with its check value.
fn open(
    provider: &dyn KeyProvider,
    cluster: u128,
    record: &DataKeyRecord,
) -> Result<Arc<azekura_cipher::VolumeKey>, String> {
    let generation = record.current().ok_or("its record has no key")?;
    if generation.provider != provider.name() {
        return Err(format!("its key is wrapped by '{}', which this node has not", generation.provider));
    }
    let place = KeyPlace { cluster, key: record.id };
    let key = provider.unwrap(place, &generation.wrapped).map_err(|error| error.to_string())?;
    if !key.has_check(record.id, &generation.check) {
        return Err("what was unwrapped is not the volume's key: its check value is another one".to_owned());
    }
    key.cipher().map(Arc::new).ok_or_else(|| "both halves of the volume's key are the same".to_owned())
}

/// What a provider does, on a thread that may wait.
async fn within<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    match timeout(PROVIDER_WAIT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err("the work with the key was interrupted".to_owned()),
        Err(_) => Err(format!("whoever has the key did not answer within {} s", PROVIDER_WAIT.as_secs())),
    }
}

#[cfg(test)]
mod tests;
