//! Data keys of encrypted volumes: drawn when one is made, unwrapped when the configuration names them
//! (docs/decisions/0038-encrypted-volumes.md).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura_base::{KeyGeneration, KeyId, SecretText};
use azekura_cipher::{Keyring, VolumeKey};
use azekura_meta::time::now_rfc3339;
use azekura_model::{CSI_PROVIDER, DataKeyRecord, MetaError, Model, Unknown, WrappedKey};
use azekura_secrets::{DataKey, KekMark, KeyPlace, KeyProvider, PROVIDER_WAIT, version_of};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

mod asking;
mod by_secret;
mod for_clone;
mod known_kek;
mod lacking;
mod rewrap;

pub use by_secret::NotOpened;
use by_secret::{Brought, Making};
pub(crate) use rewrap::Part;

/// How long whoever has the key is waited for: a little longer than it waits for a network itself.
const ANSWER_WAIT: Duration = PROVIDER_WAIT.saturating_add(Duration::from_secs(1));
/// How long a change of the configuration waits for keys that it names: those of a file and of a sound server are there
/// by then. It goes on without them, and they are told when they come.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// How long it takes at most to tell which keys a provider has: less than a node is waited for that is asked for that.
const KEKS_WAIT: Duration = Duration::from_secs(1);
/// Keys that were not to be had are asked for again after this time.
pub const KEYS_RETRY: Duration = Duration::from_secs(5);

/// What a node without a provider says.
const NO_PROVIDER: &str = "it was started without --key-file, --vault and --kmip, which name who has the key that \
                           opens it";
/// What is said of a key until its provider answers for the first time.
const ASKED: &str = "its key was asked for, and is not there yet";
/// What is said of a generation when the node still has the one that had its number before.
const FORMER: &str = "the node has not read of it yet";

/// What is said of a key that is wrapped with its volume's own secret.
const WAITS_FOR_SECRET: &str = "it waits for its secret: it opens when CSI stages or publishes it again, or with 'azekura \
                                volume unlock'";

/// Data keys as their records have them.
type Wrapped = Vec<(KeyId, WrappedKey)>;
/// A generation of a data key, as long as it is there: its number is given again later.
type KeyName = (KeyId, KeyGeneration);
/// One key for ever: a generation, and its check value, which stays when it is wrapped anew and which no other has.
type OneKey = (KeyId, KeyGeneration, String);
/// Generations of data keys, or why they are missing.
type Opened = BTreeMap<OneKey, Result<Arc<VolumeKey>, String>>;

/// The data keys of a node. Cheap to clone.
#[derive(Clone)]
pub struct DataKeys {
    providers: Arc<Providers>,
    state: Arc<Mutex<State>>,
    arrived: Arc<Notify>,
    /// What the data plane has been told last.
    passed: watch::Sender<Arc<Keyring>>,
    /// Who makes keys of secrets.
    making: Making,
}

/// Who has the keys (KEKs) that wrap data keys.
#[derive(Default)]
struct Providers {
    all: Vec<Arc<dyn KeyProvider>>,
    /// The one of them that wraps new ones.
    wraps: Option<Arc<dyn KeyProvider>>,
}

impl Providers {
    /// The one that wrapped a data key.
    fn of(&self, generation: &WrappedKey) -> Result<Arc<dyn KeyProvider>, String> {
        let found = self.all.iter().find(|provider| provider.name() == generation.provider);
        found.cloned().ok_or_else(|| match (self.all.is_empty(), &*generation.provider) {
            (_, CSI_PROVIDER) => WAITS_FOR_SECRET.to_owned(),
            (true, _) => NO_PROVIDER.to_owned(),
            (_, "file") => "its key is wrapped by 'file', and the node was started without --key-file".to_owned(),
            (_, name @ ("vault" | "kmip")) => {
                format!("its key is wrapped by '{name}', and the node was started without --{name}")
            }
            (_, name) => format!("its key is wrapped by '{name}', which this version does not know"),
        })
    }
}

#[derive(Default)]
struct State {
    /// All that is known, as the data plane is told.
    ring: Arc<Keyring>,
    /// The same, by generation.
    opened: Opened,
    /// What providers have answered since.
    found: Opened,
    /// By provider.
    asked: BTreeMap<&'static str, Asked>,
    /// Keys that wait for a secret, or have had it.
    brought: BTreeMap<KeyId, Brought>,
}

impl State {
    /// Whether something is not served here that should be, since this key is missing for that reason.
    fn needs(&self, key: KeyId, why: &str) -> bool {
        why != WAITS_FOR_SECRET || self.brought.get(&key).is_some_and(Brought::is_used)
    }
}

/// What is known of a provider.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// When keys that are missing were last asked for.
    tried: Option<Instant>,
    /// It has not answered yet, or a thread still waits for it: nothing else is asked.
    is_busy: bool,
    /// Its last answer took longer than a change of the configuration is to wait.
    is_slow: bool,
}

/// What a provider has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderKeks {
    /// Its name.
    pub provider: &'static str,
    /// Its keys, the newest last; or why they are not known.
    pub keks: Result<Vec<KekMark>, String>,
}

impl DataKeys {
    /// None yet; they will be wrapped and unwrapped by `provider`.
    #[must_use]
    pub fn new(provider: Option<Arc<dyn KeyProvider>>) -> DataKeys {
        DataKeys::wrapped_by(provider.clone(), provider.into_iter().collect())
    }

    /// None yet; new ones will be wrapped by `wraps`, which is one of `all`, and each unwrapped by the one of `all`
    /// that wrapped it.
    #[must_use]
    pub fn wrapped_by(wraps: Option<Arc<dyn KeyProvider>>, all: Vec<Arc<dyn KeyProvider>>) -> DataKeys {
        DataKeys {
            providers: Arc::new(Providers { all, wraps }),
            state: Arc::default(),
            arrived: Arc::default(),
            passed: watch::Sender::default(),
            making: Making::default(),
        }
    }

    /// Tells of providers that can't be used now, as soon as that is known. It is no error: the node has copies of
    /// others' volumes.
    pub fn look(&self) {
        for provider in &self.providers.all {
            let provider = Arc::clone(provider);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = provider.keks(0) {
                    tracing::warn!("encrypted volumes are not served here: {error}");
                }
            });
        }
    }

    /// The provider that wraps new ones.
    fn wraps(&self) -> Result<Arc<dyn KeyProvider>, String> {
        self.providers.wraps.clone().ok_or_else(|| NO_PROVIDER.to_owned())
    }

    /// The name of the provider that wraps new ones.
    #[must_use]
    pub fn wraps_by(&self) -> Option<&'static str> {
        self.providers.wraps.as_ref().map(|provider| provider.name())
    }

    /// A new one, wrapped: with this secret, or by the provider that wraps new ones.
    ///
    /// # Errors
    /// When there is no provider, or it can't; or when the secret is none.
    pub async fn draw(&self, model: &Model, secret: Option<&SecretText>) -> Result<DataKeyRecord, MetaError> {
        let refused = |reason: String| MetaError::NotEncrypted { reason };
        let cluster = number(model).map_err(|why| refused(why.to_owned()))?;
        let id = new_id().map_err(refused)?;
        let place = KeyPlace { cluster, key: id };
        let (provider, wrapped, check) = match secret {
            Some(secret) => self.draw_by_secret(place, secret).await.map_err(|why| refused(why.to_string()))?,
            None => self.draw_by_provider(model, place).await.map_err(refused)?,
        };
        let generations = vec![wrapped_now((provider, wrapped, check))];
        Ok(DataKeyRecord { id, generations, writing: None, unknown: Unknown::default() })
    }

    /// Another generation of a data key, wrapped by the provider that wraps new ones. Its number is given when it is
    /// added.
    ///
    /// # Errors
    /// When there is no provider, or it can't.
    pub async fn draw_next(&self, model: &Model, key: KeyId) -> Result<WrappedKey, MetaError> {
        let refused = |reason: String| MetaError::NotRotated { reason };
        let cluster = number(model).map_err(|why| refused(why.to_owned()))?;
        Ok(wrapped_now(self.draw_by_provider(model, KeyPlace { cluster, key }).await.map_err(refused)?))
    }

    /// The provider, what it has wrapped, and the check value.
    async fn draw_by_provider(&self, model: &Model, place: KeyPlace) -> Result<(&'static str, String, String), String> {
        let provider = self.wraps().map_err(|why| format!("this node can't encrypt: {why}"))?;
        let asked = Arc::clone(&provider);
        let wrapped = within(ANSWER_WAIT, move || {
            let key = DataKey::draw().map_err(|error| error.to_string())?;
            let check = key.check(place.key);
            let wrapped = wrap(&*asked, place, &key, &check)?;
            Ok((wrapped, check))
        });
        let (wrapped, check) = wrapped.await?;
        let name = provider.name();
        self.expect_known_kek(model, &provider, version_of(name, &wrapped)).await?;
        Ok((name, wrapped, check))
    }

    /// Of each provider, its keys.
    ///
    /// # Errors
    /// When there is no provider, or the cluster's record is not there.
    pub async fn keks(&self, model: &Model) -> Result<Vec<ProviderKeks>, String> {
        if self.providers.all.is_empty() {
            return Err(NO_PROVIDER.to_owned());
        }
        let cluster = number(model)?;
        let of = |provider: &Arc<dyn KeyProvider>| {
            let (name, provider) = (provider.name(), Arc::clone(provider));
            let keks = within(KEKS_WAIT, move || provider.keks(cluster).map_err(|error| error.to_string()));
            tokio::spawn(async move { ProviderKeks { provider: name, keks: keks.await } })
        };
        // All are asked at once.
        let asked: Vec<_> = self.providers.all.iter().map(of).collect();
        let mut all = Vec::new();
        for one in asked {
            all.push(one.await.map_err(|_| INTERRUPTED.to_owned())?);
        }
        Ok(all)
    }

    /// True while keys are missing that somebody can be asked for: again after [`KEYS_RETRY`].
    #[must_use]
    pub fn any_missing(&self) -> bool {
        self.state().opened.values().any(|key| key.as_ref().is_err_and(|why| why != WAITS_FOR_SECRET))
    }

    /// Why a generation of a data key is missing, if it was asked for, or if another one that had its number before is
    /// there.
    #[must_use]
    pub fn why_not_opened(&self, key: KeyId, generation: &WrappedKey) -> Option<String> {
        let state = self.state();
        match state.opened.get(&one_key(key, generation)) {
            Some(opened) => opened.as_ref().err().cloned(),
            None => {
                let is_former = |(id, number, _): &OneKey| (*id, *number) == (key, generation.number);
                state.opened.keys().any(is_former).then(|| FORMER.to_owned())
            }
        }
    }

    /// Why a key is missing that is needed here.
    #[must_use]
    pub fn why_missing(&self, key: KeyId) -> Option<String> {
        let state = self.state();
        let why = state.ring.get(&key)?.as_ref().err()?;
        state.needs(key, why).then(|| why.clone())
    }

    /// The keys that are missing although they are needed, and why: all but those that wait for a secret of volumes
    /// that nobody uses here.
    #[must_use]
    pub fn needed(&self) -> BTreeMap<KeyId, String> {
        let state = self.state();
        let missing = state.ring.iter().filter_map(|(id, key)| Some((*id, key.as_ref().err()?)));
        missing.filter(|(id, why)| state.needs(*id, why)).map(|(id, why)| (id, why.clone())).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a new data key.
fn new_id() -> Result<KeyId, String> {
    getrandom::u64().map(KeyId).map_err(|error| format!("the system gives no random numbers: {error}"))
}

/// A data key that was drawn now: the provider, what it has wrapped, and the check value.
fn wrapped_now((provider, wrapped, check): (&str, String, String)) -> WrappedKey {
    let (number, provider, created) = (KeyGeneration::FIRST, provider.to_owned(), now_rfc3339());
    WrappedKey { number, provider, wrapped, check, created, unknown: Unknown::default() }
}

/// What tells a generation from all others, also from those that had its number before or will have it.
fn one_key(id: KeyId, generation: &WrappedKey) -> OneKey {
    (id, generation.number, generation.check.clone())
}

/// The cluster's.
fn number(model: &Model) -> Result<u128, &'static str> {
    model.cluster.as_ref().and_then(|cluster| cluster.number()).ok_or("the cluster's record is not there")
}

/// Wraps a data key, and proves that it opens again.
fn wrap(provider: &dyn KeyProvider, place: KeyPlace, key: &DataKey, check: &str) -> Result<String, String> {
    let wrapped = provider.wrap(place, key).map_err(|error| error.to_string())?;
    let opened = provider.unwrap(&[(place, &wrapped)]).map_err(|error| error.to_string())?;
    let opened = opened.into_iter().next().ok_or("nothing came back of what was wrapped")?;
    let opened = opened.map_err(|error| format!("what was wrapped does not open: {error}"))?;
    let is_same = opened.has_check(place.key, check);
    is_same.then_some(wrapped).ok_or_else(|| format!("what '{}' has wrapped opens as another key", provider.name()))
}

/// The keys of records, which this provider has wrapped, opened and compared with their check values.
///
/// # Errors
/// When the provider can't open any.
fn open(
    provider: &dyn KeyProvider,
    cluster: u128,
    records: &[(KeyId, WrappedKey)],
) -> Result<Vec<Result<DataKey, String>>, String> {
    let place = |id: KeyId| KeyPlace { cluster, key: id };
    let wrapped: Vec<_> = records.iter().map(|(id, generation)| (place(*id), generation.wrapped.as_str())).collect();
    let opened = provider.unwrap(&wrapped).map_err(|error| error.to_string())?;
    if opened.len() != records.len() {
        return Err(format!("'{}' has opened more or fewer keys than it was asked for", provider.name()));
    }
    let proven = |(opened, (id, generation)): (Result<DataKey, _>, &(KeyId, WrappedKey))| {
        let key = opened.map_err(|error: azekura_secrets::SecretsError| error.to_string())?;
        let is_it = key.has_check(*id, &generation.check);
        is_it
            .then_some(key)
            .ok_or_else(|| "what was unwrapped is not the volume's key: its check value is another one".to_owned())
    };
    Ok(opened.into_iter().zip(records).map(proven).collect())
}

/// What is said when a thread has died.
const INTERRUPTED: &str = "the work with the key was interrupted";

/// What a provider does, on a thread that may wait.
async fn within<T: Send + 'static>(
    longest: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match timeout(longest, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(INTERRUPTED.to_owned()),
        Err(_) => Err(late(longest)),
    }
}

/// What is said of a provider that does not answer.
fn late(longest: Duration) -> String {
    format!("whoever has the key did not answer within {} s", longest.as_secs())
}

#[cfg(test)]
mod by_secret_tests;
#[cfg(test)]
mod tests;
