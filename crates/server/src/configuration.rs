//! How a node comes to its cluster's configuration: which servers it asks, what they and it are known by, and a machine
//! that has to become a node before it is let in.

use crate::args::NodeArgs;
use crate::bridge::link;
use crate::disk::data_folder::DataFolder;
use crate::disk::identity::node_key;
use crate::disk::seen::read_copy;
use crate::joining;
use anyhow::{Context, Result, ensure};
use azekura_api::JoinCluster;
use azekura_base::PeerKey;
use azekura_control::Doors;
use azekura_meta::MetaClient;
use azekura_meta::client::{Admission, ClusterTls, KnownServers, Servers, admission};
use azekura_meta::server::{EmbeddedServer, ServerTls};
use azekura_model::history::Copied;
use azekura_model::{EtcdError, Key, MetaError, Model, NodeRecord};
use azekura_transport::https::Https;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long one attempt to reach the configuration server lasts before people are told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves the configuration, if the node is to.
pub(crate) async fn serve(args: &NodeArgs, folder: &DataFolder, doors: &Doors) -> Result<Option<EmbeddedServer>> {
    let Some(address) = args.serve_config else { return Ok(None) };
    let database = folder.config_database();
    let server = if args.config_over_tls() {
        EmbeddedServer::start_secured(&database, address, ServerTls::new(doors.https(), doors.key().name()?)).await
    } else {
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "the configuration is served without TLS on {address}: whoever reaches that owns the cluster \
                 (docs/operations/configuration-security.md)"
            );
        }
        EmbeddedServer::start(&database, address).await
    };
    server.map(Some).context("can't serve the configuration (--serve-config)")
}

/// The servers that a node asks, and by what it knows them.
pub(crate) struct Configuration {
    servers: Servers,
    known: watch::Sender<Arc<KnownServers>>,
    /// Keys that count whatever the configuration says: the node's own, and one that was given.
    given: BTreeSet<PeerKey>,
}

impl Configuration {
    /// By the node's options.
    ///
    /// # Errors
    /// When there is nothing to know the servers by.
    pub(crate) fn of(
        args: &NodeArgs,
        folder: &DataFolder,
        doors: &Doors,
        server: Option<&EmbeddedServer>,
    ) -> Result<Configuration> {
        let endpoints = match server {
            Some(server) if args.config.is_empty() => {
                let scheme = if args.config_over_tls() { "https" } else { "http" };
                vec![format!("{scheme}://{}", server.address())]
            }
            _ => args.config.clone(),
        };
        let mut servers = args.config_servers.servers(endpoints);
        let own = doors.key().name()?;
        let given: BTreeSet<PeerKey> = args.config_servers.config_fingerprint.into_iter().chain([own]).collect();
        let known = watch::Sender::default();
        if args.config_servers.are_the_clusters(&servers.endpoints) {
            let copied = keys_of_copy(folder.path());
            let first = copied.is_empty() && !args.config_over_tls();
            let authority = match &args.token_file {
                Some(file) if first => joining::authority(file)?,
                _ => None,
            };
            let keys: BTreeSet<PeerKey> = copied.union(&given).copied().collect();
            ensure!(
                keys.len() > 1 || authority.is_some() || args.config_over_tls(),
                "https:// without --config-ca is a node's --serve-config, and there is nothing to know it by: a machine that \
                 is to become a node needs --join and --token-file; a node without a copy of the configuration \
                 --config-fingerprint; etcd --config-ca"
            );
            known.send_replace(Arc::new(KnownServers { keys, authority }));
            servers.cluster = Some(ClusterTls::new(doors.https(), own, known.subscribe()));
        }
        Ok(Configuration { servers, known, given })
    }

    /// Connects, however long that takes. A `machine` that a server does not know is made a node first, with its token.
    ///
    /// # Errors
    /// When an option is of no use, or the cluster does not take the machine in.
    pub(crate) async fn connect(&self, args: &NodeArgs, machine: Option<&JoinCluster>) -> Result<MetaClient> {
        let mut machine = machine.filter(|_| args.join.is_some());
        loop {
            match self.try_connect(args, &mut machine).await? {
                Ok(client) => {
                    // Ends with the client.
                    tokio::spawn(link::tell(client.watch_link()));
                    return Ok(client);
                }
                Err(error @ MetaError::Etcd(EtcdError::Unreachable { .. })) => {
                    tracing::warn!("waiting for the configuration server: {error}; is it running, is --config right?");
                }
                // Whoever mends that in etcd need not start the node again.
                Err(error @ MetaError::Etcd(EtcdError::Denied { .. })) => {
                    tracing::warn!("waiting for the configuration server: {error}");
                    tokio::time::sleep(PATIENCE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn try_connect(
        &self,
        args: &NodeArgs,
        machine: &mut Option<&JoinCluster>,
    ) -> Result<Result<MetaClient, MetaError>> {
        if let Some(joining) = *machine {
            match admission(&self.servers).await {
                Ok(Admission::Known) => {}
                Ok(Admission::Unknown) => {
                    joining::ask(args, joining).await?;
                    *machine = None;
                }
                Err(error) => {
                    tokio::time::sleep(PATIENCE).await;
                    return Ok(Err(error.into()));
                }
            }
        }
        Ok(MetaClient::connect_within(self.servers.clone(), PATIENCE).await)
    }

    /// From now on the nodes that are in the configuration are those that may serve it; ends with the client.
    pub(crate) fn follow(self, client: &MetaClient) {
        if self.servers.cluster.is_none() {
            return;
        }
        let mut models = client.watch_model();
        let Configuration { known, given, .. } = self;
        tokio::spawn(async move {
            loop {
                let keys = keys_in(&models.borrow_and_update()).chain(given.iter().copied()).collect();
                let next = KnownServers { keys, authority: None };
                known.send_if_modified(|now| {
                    let is_new = **now != next;
                    if is_new {
                        *now = Arc::new(next);
                    }
                    is_new
                });
                if models.changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

fn keys_in(model: &Model) -> impl Iterator<Item = PeerKey> {
    let nodes = model.nodes.values().filter(|node| !node.removed);
    nodes.flat_map(|node| node.keys.iter().flatten().copied())
}

/// The keys of all nodes in the copy of the configuration that a data folder has. Without one there are none.
fn keys_of_copy(folder: &Path) -> BTreeSet<PeerKey> {
    match read_copy(folder) {
        Ok(copy) => copy.as_ref().map(keys_copied).unwrap_or_default(),
        Err(error) => {
            tracing::warn!("{error:#}; the node does without the copy");
            BTreeSet::new()
        }
    }
}

fn keys_copied(copy: &Copied) -> BTreeSet<PeerKey> {
    let nodes = copy.keys.iter().filter(|(name, _)| matches!(Key::parse(name.as_bytes()), Some(Key::Node(_))));
    let records = nodes.filter_map(|(_, key)| serde_json::from_value::<NodeRecord>(key.value.clone()).ok());
    records.filter(|node| !node.removed).flat_map(|node| node.keys.unwrap_or_default()).collect()
}

/// The configuration servers of a cluster, asked in the name of the node with this data folder.
///
/// # Errors
/// When the folder has no key that can be used.
pub fn as_node(folder: &Path, mut servers: Servers, fingerprint: Option<PeerKey>) -> Result<Servers> {
    ensure!(folder.join("identity/node.key").exists(), "{} has no node's key (identity/node.key)", folder.display());
    let key = node_key(folder)?;
    let own = key.name()?;
    let mut keys = keys_of_copy(folder);
    keys.extend(fingerprint.into_iter().chain([own]));
    // Nobody sends: what is known stays what it is.
    let (_, known) = watch::channel(Arc::new(KnownServers { keys, authority: None }));
    servers.cluster = Some(ClusterTls::new(&Https::new(&key)?, own, known));
    Ok(servers)
}
