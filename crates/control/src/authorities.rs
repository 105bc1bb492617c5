//! The node's certificate: signed by the cluster's newest authority, made anew in time, and changed when another
//! authority takes over (docs/decisions/0037-who-may.md).
//!
//! An authority's key is in the data folders of all nodes and never in the configuration, so a stolen backup of the
//! configuration signs nothing. Whoever lacks the key asks nodes that have it, over HTTPS: both ends know each other by
//! the keys in their records.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use azekura_api::AuthorityQuery;
use azekura_api::endpoint::NodeAuthority;
use azekura_base::NodeId;
use azekura_meta::MetaClient;
use azekura_meta::time::{now_rfc3339, unix_seconds};
use azekura_model::transitions::authorities::newest_authority;
use azekura_model::{AuthorityRecord, Endpoint, Model, Unknown};
use azekura_transport::NodeKey;
use azekura_transport::https::{Authority, Chain, Https, POINT_BYTES, Reached};

use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::api::peers::{self, Peer};
use crate::doors::Doors;

/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(3);
/// The clock is looked at so often.
const INTERVAL: Duration = Duration::from_secs(600);
/// Longest wait for another node's answer.
const PEER_WAIT: Duration = Duration::from_secs(2);
/// So many former authorities are still vouched for.
const FORMER_MAX: usize = 4;

/// Files of the node that nobody else may read.
pub trait Secrets: Debug + Send + Sync {
    /// What a file has; `None`: it is not there.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// Replaces a file, durably.
    ///
    /// # Errors
    /// What the system says; the former file stays, or the new one is there.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;
}

/// Where certificates come from. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    meta: MetaClient,
    node: NodeId,
    key: Arc<NodeKey>,
    pub(crate) https: Https,
    secrets: Arc<dyn Secrets>,
    /// By which it is asked, beside addresses.
    pub(crate) names: Vec<String>,
}

fn file(number: u32) -> String {
    format!("authority-{number}.pem")
}

/// The name that an authority's certificate has.
fn title(model: &Model, number: u32) -> Result<String, String> {
    let cluster = model.cluster.as_ref().ok_or("the cluster is not known yet")?;
    Ok(format!("Azekura {} {number}", cluster.id))
}

fn now() -> i64 {
    i64::try_from(unix_seconds()).unwrap_or(i64::MAX)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Authorities {
    pub(crate) fn new(meta: MetaClient, node: NodeId, doors: &Doors) -> Authorities {
        let (key, https, secrets) = (Arc::clone(&doors.key), doors.https.clone(), Arc::clone(&doors.secrets));
        Authorities { meta, node, key, https, secrets, names: doors.names.clone() }
    }

    /// The same on somebody's behalf.
    pub(crate) fn acting(&self, meta: &MetaClient) -> Authorities {
        Authorities { meta: meta.clone(), ..self.clone() }
    }

    /// What the node's certificate is to say.
    fn reached(&self, model: &Model) -> Result<Reached, String> {
        let record = model.nodes.get(&self.node).ok_or("this node's record is not known yet")?;
        // Clients of volumes look for the address that they have dialled.
        let clients = record.endpoints.iter().filter(|endpoint| endpoint.protocol == Endpoint::NBDS);
        let clients = clients.filter_map(|endpoint| Some(endpoint.address.parse::<SocketAddr>().ok()?.ip()));
        let own = [record.api_address.ip(), record.data_address.ip()].into_iter().chain(clients);
        let own = own.filter(|ip| !ip.is_unspecified());
        let mut addresses: Vec<IpAddr> = own.chain([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let names = self.names.iter().cloned().chain(["localhost".to_owned()]).collect();
        Ok(Reached { name: record.name.clone(), names, addresses })
    }

    /// Keeps the node's certificate as it should be; ends with its task.
    pub(crate) async fn run(self) {
        let mut models = self.meta.watch_model();
        let mut shown: Option<(u32, Chain)> = None;
        let mut told = String::new();
        loop {
            let model = models.borrow_and_update().clone();
            let newest = newest_authority(&model).map(|authority| authority.number);
            let stands = shown.as_ref().is_some_and(|(number, chain)| newest == Some(*number) && !chain.is_due(now()));
            let mut pause = INTERVAL;
            if !stands {
                match self.sign(&model).await {
                    Ok((number, chain)) => {
                        self.https.show(&chain);
                        shown = Some((number, chain));
                        told.clear();
                    }
                    Err(problem) => {
                        if told != problem {
                            tracing::warn!(
                                "the API's certificate is not signed by the cluster's authority: {problem}; \
                                 trying again"
                            );
                            told = problem;
                        }
                        pause = FAILURE_PAUSE;
                    }
                }
            }
            // A failure is not tried again because something else has changed.
            if pause == FAILURE_PAUSE {
                tokio::time::sleep(pause).await;
            } else if matches!(tokio::time::timeout(pause, models.changed()).await, Ok(Err(_))) {
                return;
            }
        }
    }

    /// A certificate by the newest authority; makes the first one.
    async fn sign(&self, model: &Model) -> Result<(u32, Chain), String> {
        let reached = self.reached(model)?;
        let record = match newest_authority(model) {
            Some(record) => record.clone(),
            None => self.make(model, 1, Vouched::Not, &reached.name).await?,
        };
        let authority = match self.kept(model, &record)? {
            Some(authority) => authority,
            None => self.fetch(model, &record).await?,
        };
        let mut before: Vec<String> = Vec::new();
        for authority in model.authorities.values() {
            match &authority.signed_by_previous {
                Some(signed) => before.push(signed.clone()),
                // Nobody trusts it for the sake of one before.
                None => before.clear(),
            }
        }
        before.drain(..before.len().saturating_sub(FORMER_MAX));
        Ok((record.number, authority.sign(&self.key, &reached, &before, now()).map_err(text)?))
    }

    /// Makes an authority. Its key is on this node before anybody hears of the authority.
    async fn make(
        &self,
        model: &Model,
        number: u32,
        vouched: Vouched<'_>,
        by: &str,
    ) -> Result<AuthorityRecord, String> {
        let title = title(model, number)?;
        // One that the configuration has forgotten, because it was restored from a backup, is taken again.
        let own = match vouched {
            Vouched::Anew => None,
            Vouched::Not | Vouched::By(_) => self.secrets.read(&file(number)).map_err(text)?,
        };
        let authority = match own.and_then(|own| Authority::from_pem(&title, &own).ok()) {
            Some(authority) => authority,
            None => {
                let made = Authority::make(&title, now()).map_err(text)?;
                self.secrets.write(&file(number), &made.secret_pem()).map_err(text)?;
                made
            }
        };
        let signed_by_previous = match vouched {
            Vouched::By(previous) => Some(previous.vouch_for(&authority, now())).transpose(),
            Vouched::Not | Vouched::Anew => Ok(None),
        };
        let record = AuthorityRecord {
            number,
            certificate: authority.pem().to_owned(),
            signed_by_previous: signed_by_previous.map_err(text)?,
            created: now_rfc3339(),
            by: by.to_owned(),
            unknown: Unknown::default(),
        };
        let made = self.meta.create_authority(&record).await.map_err(text)?;
        if made == record {
            tracing::info!("certificate authority {number} ({}) was made by {by}", authority.fingerprint());
        }
        Ok(made)
    }

    /// The authority with its key, if this node has it. A file that is damaged, or another one's, is as good as none.
    fn kept(&self, model: &Model, record: &AuthorityRecord) -> Result<Option<Authority>, String> {
        let name = file(record.number);
        let own = self.secrets.read(&name).map_err(|error| format!("can't read identity/{name}: {error}"))?;
        let title = title(model, record.number)?;
        let authority = own.and_then(|own| Authority::from_pem(&title, &own).ok());
        Ok(authority.filter(|authority| authority.pem() == record.certificate))
    }

    /// Asks the other nodes for the authority's key.
    async fn fetch(&self, model: &Model, record: &AuthorityRecord) -> Result<Authority, String> {
        let mut problem = "no other node gives signs of life".to_owned();
        for node in model.nodes.values().filter(|node| node.id != self.node && model.alive.contains_key(&node.id)) {
            let query = AuthorityQuery { number: record.number };
            let told = match Peer::of(node) {
                Ok(peer) => peers::get_within::<NodeAuthority>(&peer, &self.https, &query, PEER_WAIT).await,
                Err(reason) => Err(reason),
            };
            let read = told.and_then(|told| {
                let authority = Authority::from_pem(&title(model, record.number)?, &told.pem).map_err(text)?;
                (authority.pem() == record.certificate).then_some(authority).ok_or("it has another one".to_owned())
            });
            match read {
                Ok(authority) => {
                    self.secrets.write(&file(record.number), &authority.secret_pem()).map_err(text)?;
                    return Ok(authority);
                }
                Err(reason) => problem = format!("node {}: {reason}", node.name),
            }
        }
        Err(format!("authority {}'s key is not on this node, and nobody gave it: {problem}", record.number))
    }

    /// A key that is made of an authority's for a purpose, if this node has that.
    pub(crate) fn derived(
        &self,
        model: &Model,
        record: &AuthorityRecord,
        purpose: &str,
    ) -> Result<Option<Zeroizing<[u8; 32]>>, String> {
        let kept = self.kept(model, record)?;
        kept.map(|authority| authority.derive(purpose).map(Zeroizing::new).map_err(text)).transpose()
    }

    /// The same, where another node has it.
    pub(crate) async fn fetch_derived(
        &self,
        model: &Model,
        record: &AuthorityRecord,
        purpose: &str,
    ) -> Result<Zeroizing<[u8; 32]>, String> {
        let authority = self.fetch(model, record).await?;
        authority.derive(purpose).map(Zeroizing::new).map_err(text)
    }

    /// The configuration, whenever it changes.
    pub(crate) fn models(&self) -> watch::Receiver<Arc<Model>> {
        self.meta.watch_model()
    }

    /// An authority takes the place of the newest one; gives it.
    pub(crate) async fn replace(&self, by: &str) -> Result<AuthorityRecord, Replaced> {
        let model = self.meta.model();
        let newest = newest_authority(&model).ok_or(Replaced::NotYet)?;
        let previous = self.kept(&model, newest).map_err(Replaced::Failed)?.ok_or(Replaced::NoKey)?;
        let made = self.make(&model, newest.number + 1, Vouched::By(&previous), by).await;
        made.map_err(Replaced::Failed)
    }

    /// The same, but nobody vouches for the next one: somebody has the key of the one before who is not trusted any
    /// more.
    pub(crate) async fn replace_alone(&self, by: &str) -> Result<AuthorityRecord, String> {
        let model = self.meta.model();
        let newest = newest_authority(&model).ok_or("the cluster has none yet")?;
        let made = self.make(&model, newest.number + 1, Vouched::Anew, by).await?;
        // Another node may have made one with this number at the same time, and that one is vouched for.
        match &made.signed_by_previous {
            None => Ok(made),
            Some(_) => Err(format!("somebody has made authority {} at the same time", made.number)),
        }
    }

    /// A certificate for a client's public key, by the newest authority, in PEM.
    pub(crate) fn sign_client(&self, name: &str, point: [u8; POINT_BYTES]) -> Result<String, Replaced> {
        let model = self.meta.model();
        let newest = newest_authority(&model).ok_or(Replaced::NotYet)?;
        let authority = self.kept(&model, newest).map_err(Replaced::Failed)?.ok_or(Replaced::NoKey)?;
        authority.sign_client(name, point, now()).map_err(|error| Replaced::Failed(text(error)))
    }

    /// An authority with its key, in PEM, if this node has it.
    pub(crate) fn secret(&self, number: u32) -> Option<String> {
        let model = self.meta.model();
        let record = model.authorities.get(&number)?;
        let kept = self.kept(&model, record).inspect_err(|problem| tracing::warn!("{problem}"));
        Some(kept.ok()??.secret_pem())
    }
}

/// Whether an authority is trusted for the sake of the one before.
#[derive(Clone, Copy)]
enum Vouched<'a> {
    /// There is none before.
    Not,
    /// It is vouched for.
    By(&'a Authority),
    /// It must not be, and its key must be a new one.
    Anew,
}

/// Why no authority has taken the place of another one, or signed something.
#[derive(Clone, Debug)]
pub(crate) enum Replaced {
    /// There is none yet.
    NotYet,
    /// This node does not have the key that would have to vouch for the next one.
    NoKey,
    Failed(String),
}
