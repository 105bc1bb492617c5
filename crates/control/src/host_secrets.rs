//! Secrets of hosts, which they prove by CHAP or DH-HMAC-CHAP: sealed when a host is let in, opened where it may come
//! to (docs/decisions/0053-hosts.md).
//!
//! Both take both sides to know the secret itself. In the configuration it is sealed, by a key that is made of that of
//! the cluster's authority, which all nodes have and the configuration has not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azekura_base::{ChapSecret, ChapSecrets, GrantId};
use azekura_model::transitions::authorities::newest_authority;
use azekura_model::{ChapRecord, HostRecord, Model};
use azekura_secrets::SealingKey;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::authorities::Authorities;

/// Pause before secrets are tried again that could not be opened.
const RETRY: Duration = Duration::from_secs(3);

/// What sealing keys are derived for.
const PURPOSE: &str = "host secrets";

/// The secrets of hosts that this node can ask for them; of others, why it can't.
pub type OpenedSecrets = BTreeMap<GrantId, Result<Arc<ChapSecrets>, String>>;

/// Whose secret one is: it opens for nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The initiator proves it.
    Initiator,
    /// The target does.
    Target,
}

/// Where a secret belongs: the cluster, the grant, and who proves it.
fn place(model: &Model, grant: GrantId, side: Side) -> Result<Vec<u8>, String> {
    let cluster = model.cluster.as_ref().and_then(|cluster| cluster.number()).ok_or("the cluster is not known yet")?;
    let side = match side {
        Side::Initiator => "initiator",
        Side::Target => "target",
    };
    Ok(format!("azekura host secret {cluster:032x} {grant} {side}").into_bytes())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Seals a secret by the newest authority's key.
///
/// # Errors
/// When this node does not have that, or the system no randomness.
pub(crate) fn seal(
    authorities: &Authorities,
    model: &Model,
    grant: GrantId,
    side: Side,
    secret: &ChapSecret,
) -> Result<ChapRecord, String> {
    let newest = newest_authority(model).ok_or("the cluster has no certificate authority yet")?;
    let key = authorities.derived(model, newest, PURPOSE)?.ok_or("this node does not have the authority's key yet")?;
    let sealed =
        SealingKey::new(&key).map_err(text)?.seal(&place(model, grant, side)?, &secret.secret).map_err(text)?;
    Ok(ChapRecord { user: secret.user.clone(), sealed: format!("{}:{sealed}", newest.number) })
}

/// Keeps the secrets of all hosts open.
struct HostSecrets {
    authorities: Authorities,
    opened: watch::Sender<Arc<OpenedSecrets>>,
}

/// Keys that seal, by the authority's number.
type Keys = BTreeMap<u32, Result<Arc<SealingKey>, String>>;

/// Opens what the configuration has, whenever that changes, as long as somebody wants to know.
pub(crate) fn follow(authorities: Authorities) -> watch::Receiver<Arc<OpenedSecrets>> {
    let (opened, receiver) = watch::channel(Arc::default());
    let secrets = HostSecrets { authorities, opened };
    tokio::spawn(async move {
        tokio::select! {
            () = secrets.opened.closed() => {}
            () = secrets.run() => {}
        }
    });
    receiver
}

impl HostSecrets {
    async fn run(&self) {
        let mut models = self.authorities.models();
        // What has been opened, by what it was opened from.
        let mut known: BTreeMap<GrantId, (HostRecord, Arc<ChapSecrets>)> = BTreeMap::new();
        loop {
            let model = models.borrow_and_update().clone();
            let (mut opened, mut keys) = (OpenedSecrets::new(), Keys::new());
            for (id, grant) in model.grants.iter() {
                let Some(host) = grant.host.as_ref().filter(|host| host.chap.is_some()) else { continue };
                let secrets = match known.get(id) {
                    Some((record, secrets)) if record == host => Ok(Arc::clone(secrets)),
                    _ => self.open(&model, *id, host, &mut keys).await.map(Arc::new),
                };
                if let Ok(secrets) = &secrets {
                    known.insert(*id, (host.clone(), Arc::clone(secrets)));
                }
                opened.insert(*id, secrets);
            }
            known.retain(|id, _| opened.contains_key(id));
            let is_whole = opened.values().all(Result::is_ok);
            self.tell(&model, opened);
            // A failure is not tried again because something else has changed.
            if !is_whole {
                tokio::time::sleep(RETRY).await;
            } else if models.changed().await.is_err() {
                return;
            }
        }
    }

    fn tell(&self, model: &Model, opened: OpenedSecrets) {
        self.opened.send_if_modified(|before| {
            if **before == opened {
                return false;
            }
            for (id, secrets) in &opened {
                if let Err(why) = secrets
                    && before.get(id) != Some(secrets)
                {
                    let name = model.grants.get(id).map(|grant| grant.name.clone()).unwrap_or_default();
                    tracing::warn!("host {name} is not let in here, for want of its secret: {why}; trying again");
                }
            }
            *before = Arc::new(opened);
            true
        });
    }

    async fn open(
        &self,
        model: &Model,
        id: GrantId,
        host: &HostRecord,
        keys: &mut Keys,
    ) -> Result<ChapSecrets, String> {
        let chap = host.chap.as_ref().ok_or("it has none")?;
        let initiator = self.open_one(model, id, Side::Initiator, chap, keys).await?;
        let target = match &host.mutual {
            Some(mutual) => Some(self.open_one(model, id, Side::Target, mutual, keys).await?),
            None => None,
        };
        Ok(ChapSecrets { initiator, target })
    }

    async fn open_one(
        &self,
        model: &Model,
        id: GrantId,
        side: Side,
        record: &ChapRecord,
        keys: &mut Keys,
    ) -> Result<ChapSecret, String> {
        let (number, sealed) = record.sealed.split_once(':').ok_or("its record names no authority")?;
        let number: u32 = number.parse().map_err(|_| "its record names no authority".to_owned())?;
        let key = match keys.get(&number) {
            Some(key) => key.clone(),
            None => {
                let key = self.key(model, number).await;
                keys.insert(number, key.clone());
                key
            }
        }?;
        let secret: Zeroizing<Vec<u8>> = key.open(&place(model, id, side)?, sealed).map_err(text)?;
        Ok(ChapSecret { user: record.user.clone(), secret: Arc::new(secret) })
    }

    /// The key that is made of an authority's, which other nodes are asked for if it is not here.
    async fn key(&self, model: &Model, number: u32) -> Result<Arc<SealingKey>, String> {
        let record =
            model.authorities.get(&number).ok_or_else(|| format!("there is no authority {number} any more"))?;
        let key = match self.authorities.derived(model, record, PURPOSE)? {
            Some(key) => key,
            None => self.authorities.fetch_derived(model, record, PURPOSE).await?,
        };
        SealingKey::new(&key).map(Arc::new).map_err(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::{ClusterRecord, GrantRecord, Versioned};

    /// docs/formats/grants.md says how this record's secrets are sealed.
    #[test]
    fn the_documents_secrets_open_in_their_places_alone() {
        let grant: GrantRecord =
            serde_json::from_str(include_str!("../../model/tests/golden/grant-host.json")).unwrap();
        let cluster = r#"{"id":"0123456789abcdef0123456789abcdef","name":"c","created":""}"#;
        let record: ClusterRecord = serde_json::from_str(cluster).unwrap();
        let cluster = Some(Arc::new(Versioned { record, mod_revision: 1 }));
        let mut model = Model { cluster, ..Model::default() };
        let (host, id) = (grant.host.unwrap(), GrantId(0x0123_4567_89ab_cdef));
        let key = SealingKey::new(&[7; 32]).unwrap();
        let open = |record: &ChapRecord, id, side| {
            key.open(&place(&model, id, side).unwrap(), record.sealed.strip_prefix("1:").unwrap())
        };
        let (chap, mutual) = (host.chap.unwrap(), host.mutual.unwrap());
        assert_eq!(&**open(&chap, id, Side::Initiator).unwrap(), b"twelve bytes");
        assert_eq!(&**open(&mutual, id, Side::Target).unwrap(), b"other secret");
        assert!(open(&chap, id, Side::Target).is_err() && open(&mutual, id, Side::Initiator).is_err());
        assert!(open(&chap, GrantId(1), Side::Initiator).is_err(), "another grant's");
        model.cluster = None;
        assert!(place(&model, id, Side::Initiator).is_err());
    }
}
