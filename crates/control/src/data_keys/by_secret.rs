//! Data keys that are wrapped with a secret of their volume's own, which CSI or somebody else brings
//! (docs/decisions/0038-encrypted-volumes.md).
//!
//! Nobody can be asked for such a key. A node has it from when the secret was brought to it until the volume is given
//! back, and the secret itself not longer than the key is made of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azekura_base::{KeyId, NodeId, SecretText};
use azekura_cipher::Keyring;
use azekura_model::{CSI_PROVIDER, Model, WrappedKey, Wrapping};
use azekura_secrets::{DataKey, KeyPlace, SecretsError, VolumeSecret};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{DataKeys, INTERRUPTED, number, one_key};

/// Secrets that wait to be made keys of, at most. Each takes some tenths of a second.
const WAITING_MAX: usize = 16;
/// How long the data plane may take to know of a key.
const PASSED_WAIT: Duration = Duration::from_secs(5);
/// After this time it is told once more.
const PASSED_PAUSE: Duration = Duration::from_millis(500);

/// Whoever makes keys of secrets, one at a time: each takes a processor and 64 MiB.
#[derive(Clone)]
pub(super) struct Making {
    pub(super) one: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Making {
    fn default() -> Making {
        Making { one: Arc::new(Semaphore::new(1)), waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }
}

/// Why a secret opens nothing, or wraps nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// It is the wrong one, or none; or the volume has no use for one.
    Refused(String),
    /// Not now.
    Busy(String),
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (NotOpened::Refused(why) | NotOpened::Busy(why)) = self;
        f.write_str(why)
    }
}

impl From<SecretsError> for NotOpened {
    fn from(error: SecretsError) -> NotOpened {
        match error {
            SecretsError::NoRandomness => NotOpened::Busy(error.to_string()),
            error => NotOpened::Refused(error.to_string()),
        }
    }
}

/// How a node uses a volume with such a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// A volume with the key is attached here.
    is_used: bool,
    /// One was attached here until it was detached by name, since the secret was brought.
    was_pinned: bool,
}

impl Brought {
    /// Somebody uses a volume with the key at this node, or may.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// The node is to forget the key.
    pub(super) fn is_given_back(&self) -> bool {
        self.was_pinned && !self.is_used
    }
}

impl DataKeys {
    /// A new data key, wrapped with a secret: the provider, what wraps, and the check value.
    pub(super) async fn draw_by_secret(
        &self,
        place: KeyPlace,
        secret: &SecretText,
    ) -> Result<(&'static str, String, String), NotOpened> {
        self.make(secret, move |secret| {
            let key = DataKey::draw()?;
            Ok((VolumeSecret::PROVIDER, secret.wrap(place, &key)?, key.check(place.key)))
        })
        .await
    }

    /// Whether a secret opens this key, which nobody has for that.
    ///
    /// # Errors
    /// When it does not.
    pub async fn try_secret(&self, model: &Model, key: KeyId, secret: &SecretText) -> Result<(), NotOpened> {
        self.open_by_secret(model, key, secret).await.map(|_| ())
    }

    /// Opens a key, and has the data plane of this node know it.
    ///
    /// # Errors
    /// When the secret does not open it, or the data plane is not told in time.
    pub async fn unlock(&self, model: &Model, key: KeyId, secret: &SecretText) -> Result<(), NotOpened> {
        let name = one_key(key, &generation(model, key)?);
        let opened = self.open_by_secret(model, key, secret).await?.cipher().map(Arc::new);
        let opened = opened.ok_or_else(|| refused("both halves of the volume's key are the same"))?;
        let mut passed = self.passed.subscribe();
        let until = Instant::now() + PASSED_WAIT;
        while Instant::now() < until {
            {
                let mut state = self.state();
                state.brought.insert(key, Brought::default());
                state.found.insert(name.clone(), Ok(Arc::clone(&opened)));
            }
            self.arrived.notify_one();
            let is_there = passed.wait_for(|ring| matches!(ring.get(&key), Some(Ok(_))));
            if matches!(timeout(PASSED_PAUSE, is_there).await, Ok(Ok(_))) {
                return Ok(());
            }
            // Whoever follows the configuration was behind, and did not know of such a key.
        }
        let why = format!("the data plane has not taken the key within {} s: try again", PASSED_WAIT.as_secs());
        Err(NotOpened::Busy(why))
    }

    /// What wraps a key now, and what would wrap it with another secret. `None`: that one wraps it already.
    ///
    /// # Errors
    /// When the secret does not open it, or the other one can't be one.
    pub async fn change_secret(
        &self,
        model: &Model,
        key: KeyId,
        secret: &SecretText,
        new: &SecretText,
    ) -> Result<Option<(Wrapping, Wrapping)>, NotOpened> {
        let generation = generation(model, key)?;
        let opened = match self.open_by_secret(model, key, secret).await {
            Ok(opened) => opened,
            // An attempt whose answer was lost.
            Err(error) => return self.try_secret(model, key, new).await.map(|()| None).map_err(|_| error),
        };
        let place = place(model, key)?;
        let wrapped = self.make(new, move |new| Ok(new.wrap(place, &opened)?)).await?;
        let to = Wrapping { provider: CSI_PROVIDER.to_owned(), wrapped };
        Ok(Some((generation.wrapping(), to)))
    }

    /// The data plane knows these.
    pub fn passed_on(&self, ring: &Arc<Keyring>) {
        self.passed.send_replace(Arc::clone(ring));
    }

    /// Forgets keys whose volumes were given back at this node, at the next [`DataKeys::follow`]. A client that comes
    /// by itself and goes does not give anything back: it may come again.
    pub fn give_back(&self, model: &Model, here: NodeId) {
        let (mut used, mut pinned) = (BTreeSet::new(), BTreeSet::new());
        let by_secret = |key: &KeyId| {
            model
                .data_keys
                .get(key)
                .is_some_and(|record| record.current().is_some_and(|generation| generation.provider == CSI_PROVIDER))
        };
        for volume in model.volumes.values() {
            let (Some(key), Some(record)) = (volume.key.filter(by_secret), model.attachments.get(&volume.id)) else {
                continue;
            };
            let mut mine = record.attachments.iter().filter(|entry| entry.node == here).peekable();
            used.extend(mine.peek().map(|_| key));
            pinned.extend(mine.any(|entry| entry.pinned).then_some(key));
        }
        let state = &mut *self.state();
        let before = std::mem::take(&mut state.brought);
        let one = |id: &KeyId| {
            let was_pinned = before.get(id).is_some_and(|was| was.was_pinned) || pinned.contains(id);
            (*id, Brought { is_used: used.contains(id), was_pinned })
        };
        state.brought = model.data_keys.keys().filter(|id| by_secret(id)).map(one).collect();
    }

    /// The data key that a secret opens, compared with its check value.
    async fn open_by_secret(&self, model: &Model, key: KeyId, secret: &SecretText) -> Result<DataKey, NotOpened> {
        let (generation, place) = (generation(model, key)?, place(model, key)?);
        self.make(secret, move |secret| {
            let opened = secret.unwrap(place, &generation.wrapped)?;
            let is_it = opened.has_check(key, &generation.check);
            is_it
                .then_some(opened)
                .ok_or_else(|| refused("what was unwrapped is not the volume's key: its check value is another one"))
        })
        .await
    }

    /// Does something with a secret on a thread that may wait, where no other is worked with.
    async fn make<T: Send + 'static>(
        &self,
        secret: &SecretText,
        work: impl FnOnce(VolumeSecret) -> Result<T, NotOpened> + Send + 'static,
    ) -> Result<T, NotOpened> {
        let secret = VolumeSecret::read(secret.reveal())?;
        let busy = || NotOpened::Busy(format!("{WAITING_MAX} other secrets are tried on this node: try again"));
        let _place = self.making.waiting.try_acquire().map_err(|_| busy())?;
        let turn = Arc::clone(&self.making.one).acquire_owned().await.map_err(|_| busy())?;
        let done = tokio::task::spawn_blocking(move || {
            // Also when nobody waits for it any more.
            let _turn = turn;
            work(secret)
        });
        done.await.unwrap_or_else(|_| Err(NotOpened::Busy(INTERRUPTED.to_owned())))
    }
}

fn refused(why: &str) -> NotOpened {
    NotOpened::Refused(why.to_owned())
}

fn place(model: &Model, key: KeyId) -> Result<KeyPlace, NotOpened> {
    let cluster = number(model).map_err(|why| NotOpened::Busy(why.to_owned()))?;
    Ok(KeyPlace { cluster, key })
}

/// What a secret is to open.
fn generation(model: &Model, key: KeyId) -> Result<WrappedKey, NotOpened> {
    let record = model.data_keys.get(&key).ok_or_else(|| refused("the record of the volume's key is not there"))?;
    let generation = record.current().ok_or_else(|| refused("the record of the volume's key has no key"))?;
    if generation.provider != CSI_PROVIDER {
        let why = format!("its key is wrapped by '{}', and not with a secret of its own", generation.provider);
        return Err(NotOpened::Refused(why));
    }
    Ok(generation.clone())
}
