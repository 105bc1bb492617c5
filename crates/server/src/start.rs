//! Starting and stopping a node.

use crate::args::{NodeArgs, SHARDS_MAX};
use crate::bridge::attachments::{Keeper, Plane};
use crate::bridge::following::Following;
use crate::bridge::holdings;
use crate::bridge::reports;
use crate::bridge::scrubs::{self, Intervals};
use crate::bridge::statistics::{Failures, Statistics};
use crate::checks::{self, client_memory, node_name};
use crate::configuration::{self, Configuration};
use crate::disk::data_folder::{DataFolder, Known, NewDevices};
use crate::disk::device::Limits;
use crate::disk::disks;
use crate::disk::identity::{IdentityFolder, node_key};
use crate::disk::memory::map_bytes;
use crate::disk::seen::{self, Memory};
use crate::driver::commands::Command;
use crate::driver::dataplane::Membership;
use crate::driver::messages::{Handle, Handles, Reports};
use crate::joining;
use crate::listeners::ClientListener;
use crate::opening::{Opened, Opener};
use crate::shards::Shards;
use crate::vhost_sockets::VhostSockets;
use anyhow::{Context, Result, anyhow, ensure};
use azekura_api::JoinCluster;
use azekura_base::{Endpoint, NodeId, Shard, Transport};
use azekura_control::{Attacher, Doors};
use azekura_frontend::ClientLimits;
use azekura_meta::MetaClient;
use azekura_meta::cluster::NodeSpec;
use azekura_model::transitions::alive::LIFE_TTL_SECONDS;
use azekura_model::{ClusterRecord, Kind, MetaError, SettingsRecord};
use azekura_node::Identity;
use azekura_transport::Credentials;
use std::num::{NonZeroU8, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Longest time for handing over to other nodes before the process ends.
const LEAVE_PATIENCE: Duration = Duration::from_millis(1500);
/// Pause between two looks whether that is done.
const LEAVE_STEP: Duration = Duration::from_millis(10);
/// Signs of life of a process that has ended are gone by then.
const FORMER_PATIENCE: Duration = Duration::from_secs(2 * LIFE_TTL_SECONDS as u64 + 2);
/// Pause between two looks whether they are.
const FORMER_STEP: Duration = Duration::from_millis(200);

/// Starts the node, serves until a signal, stops.
///
/// # Errors
/// When something that it needs is not to be had; the message says what to do.
pub async fn serve(args: NodeArgs) -> Result<()> {
    let started = Instant::now();
    let descriptors = raise_descriptor_limit();
    checks::check(&args)?;
    let mut folder = DataFolder::open(&args.data)?;
    let args = NodeArgs { shards: Some(shards(&args, &folder)?), ..args };
    let (clients, keys) = (client_limits(&args, descriptors)?, args.keys.start()?);
    let doors = doors(&args, &folder).await?;
    let server = configuration::serve(&args, &folder, &doors).await?;
    let configuration = Configuration::of(&args, &folder, &doors, server.as_ref())?;
    let mut data_plane = Shards::start(&args, clients, doors.streams()).await?;
    let shards = data_plane.handles();
    let mut stop = Signals::new()?;

    let machine = joining::machine(&args, &node_name(&args)?, &folder.file.uuid, doors.key().name()?);
    let mut memory = Memory::open(folder.path(), &folder.file.uuid)?;
    let device_size = args.device_size.map(|size| size.bytes());
    let made = folder.file.id.is_none().then(|| device_folders(&folder, &args, Known::None)).transpose()?;
    let client = tokio::select! {
        client = configuration.connect(&args, folder.file.id.is_none().then_some(&machine)) => client?,
        () = stop.wait() => return Ok(()),
    };
    let Joined { identity, name, credentials, transport } =
        join(&client, &mut folder, &mut memory, &args, &doors, &machine).await?;
    configuration.follow(&client);
    let node = identity.endpoint.node;
    let (device_folders, limits) = made.map_or_else(|| device_folders(&folder, &args, known(&client, node)), Ok)?;
    let (report_sender, reported) = mpsc::unbounded_channel();
    let reports = |shard| Reports::of(shard, report_sender.clone());
    let opener = opener(&client, identity, &args, limits, reports(Shard(0)));
    let Opened { ready: mut devices, late } = opener.open_all(device_folders, device_size).await?;
    let (stop_initialising, secrets) = (Arc::default(), (keys.clone(), doors.host_secrets(&client, node)));
    let (believed, copy) = (memory.watch(), tokio::spawn(memory.keep_copy()));
    let mut following = Following::new((&client, node), shards.clone(), memory, secrets, &stop_initialising);
    for device in &devices {
        following.begin_with(device.shard, device.id, device.dir.path(), &device.parents);
    }
    data_plane.begin(|shard| Membership {
        identity: Identity { endpoint: Endpoint { node, shard }, ..identity },
        credentials: credentials.clone(),
        transport,
        devices: devices.extract_if(.., |device| device.shard == shard).collect(),
        device_timeout: opener.timeout,
        reports: reports(shard),
        shards: shards.clone(),
    });
    let holdings = tokio::spawn(holdings::tell(client.clone(), shards.clone(), following.known()));
    let (configured, troubles) = (following.configured(), following.troubles());
    let mut follow = tokio::spawn(following.run(late));
    let (noting, scrubs) = scrubs::start(client.clone(), shards.clone(), node, Intervals::of(&args));
    let (alive, failures) = (client.keep_alive(node), Failures::default());
    let statistics = Statistics::new(&shards, name, (&failures, troubles), &keys, &configured, started);
    let plane = plane(&args, folder.path(), &data_plane, &client, identity, configured.clone()).await?;
    let attacher = Attacher::new(client.clone(), plane);
    let keeper = Keeper::new(attacher.clone(), client.clone(), shards.clone(), configured, node, identity.incarnation);
    let control = azekura_control::start(doors, client.clone(), node, Arc::new(statistics), attacher, keys);
    let reports = tokio::spawn(reports::carry_out(client.clone(), shards.clone(), failures, keeper, noting, reported));
    tracing::info!("node {node} is up: nodes on {}, API on http://{}", args.listen, args.api);

    let mut refused = None;
    let ended = tokio::select! {
        () = stop.wait() => None,
        ended = data_plane.end() => Some(ended),
        outcome = &mut follow => {
            refused = outcome.ok();
            None
        }
    };
    tracing::info!("stopping");
    stop_initialising.store(true, Ordering::Relaxed);
    // Nothing is handed over by a configuration that is not believed. Where one shard has ended, the others follow at
    // once.
    if ended.is_none() && refused.is_none() {
        leave(&shards).await;
    }
    data_plane.stop().await;
    follow.abort();
    copy.abort();
    seen::write_last(folder.path(), &believed).await;
    holdings.abort();
    scrubs.abort();
    reports.abort();
    control.stop().await;
    let _ = tokio::time::timeout(Duration::from_secs(1), alive.release()).await;
    drop(client);
    if let Some(server) = server {
        server.stop().await;
    }
    if let Some(refused) = refused {
        return Err(refusal(refused));
    }
    ended.unwrap_or(Ok(()))
}

/// The control plane's way to the data plane, once sockets are there that were asked for while the node ran.
async fn plane(
    args: &NodeArgs,
    data: &Path,
    data_plane: &Shards,
    client: &MetaClient,
    identity: Identity,
    configured: watch::Receiver<u64>,
) -> Result<Arc<Plane>> {
    let sockets = VhostSockets::start(args, data, data_plane, client.clone(), identity.endpoint.node).await?;
    tokio::spawn(Arc::clone(&sockets).follow(configured));
    Ok(Arc::new(Plane { shards: data_plane.handles(), incarnation: identity.incarnation, sockets }))
}

/// Where the REST API is asked from now on; answered when all is there.
async fn doors(args: &NodeArgs, folder: &DataFolder) -> Result<Doors> {
    let port =
        azekura_control::bind(args.api).await.with_context(|| format!("can't listen on {} (--api)", args.api))?;
    let local = folder.local_door();
    let local = azekura_control::bind_local(&local).with_context(|| format!("can't listen at {}", local.display()))?;
    let (key, secrets) = (Arc::new(node_key(folder.path())?), Arc::new(IdentityFolder::of(folder.path())));
    let mut doors = Doors::new(port, Some(local), args.api_names.clone(), key, secrets)?;
    let servers = if args.config.is_empty() { "that it serves itself".to_owned() } else { args.config.join(", ") };
    doors.tell_start(format!(
        "this node is starting: it serves when the configuration ({servers}) has answered and its devices are open"
    ))?;
    Ok(doors)
}

/// How many shards the node has: what it is told to have, or one for each core that it may use; but not more than
/// devices, unless it is told that, too.
fn shards(args: &NodeArgs, folder: &DataFolder) -> Result<NonZeroU8> {
    let devices = folder.device_count(&new_devices(args)?)?;
    let most = u8::try_from(devices).ok().and_then(NonZeroU8::new).unwrap_or(NonZeroU8::MIN);
    let Some(shards) = args.shards else {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(usize::from(SHARDS_MAX));
        return Ok(u8::try_from(cores).ok().and_then(NonZeroU8::new).unwrap_or(NonZeroU8::MIN).min(most));
    };
    if shards <= most || args.shards_without_devices {
        return Ok(shards);
    }
    tracing::warn!(
        "--shards {shards}: there are {devices} devices, so there are {most} shards (--shards-without-devices allows more)"
    );
    Ok(most)
}

/// Devices that this start may make.
fn new_devices(args: &NodeArgs) -> Result<NewDevices> {
    Ok(match args.device_size {
        Some(size) => NewDevices::Files { size: size.bytes(), count: args.devices },
        None if args.disk.is_empty() => NewDevices::None,
        None => NewDevices::Disks(disks::find(&args.disk)?),
    })
}

/// Whether the cluster knows devices of this node.
fn known(client: &MetaClient, node: NodeId) -> Known {
    let model = client.model();
    let some = model.devices.values().any(|device| device.node == node && !device.removed);
    if some { Known::Some } else { Known::None }
}

/// The names and folders of the node's devices, and what each of them may take. At a first start this is asked before
/// anybody knows the node: one that can't have its devices leaves nothing behind.
fn device_folders(folder: &DataFolder, args: &NodeArgs, known: Known) -> Result<(Vec<(String, PathBuf)>, Limits)> {
    let folders = folder.devices(&new_devices(args)?, known)?;
    let map_bytes = map_bytes(args.memory.map(|size| size.bytes()), folders.len())?;
    Ok((folders, Limits { flush: !args.power_loss_protected, gathers: !args.leave_scattered, map_bytes }))
}

/// What opens the node's devices.
fn opener(client: &MetaClient, identity: Identity, args: &NodeArgs, limits: Limits, reports: Reports) -> Opener {
    let timeout = Duration::from_secs(args.device_timeout.0);
    Opener { client: client.clone(), identity, shards: args.shard_count(), limits, timeout, reports }
}

/// What clients may take. Of the descriptors, other nodes, devices and the control plane have one half.
fn client_limits(args: &NodeArgs, descriptors: usize) -> Result<ClientLimits> {
    let memory_bytes_max = client_memory(args, args.shard_count().get())?;
    let connections_max = args.client_connections.min((descriptors / 2).max(1));
    if connections_max < args.client_connections {
        tracing::warn!(
            "at most {connections_max} NBD clients: this process may open {descriptors} files; raise the limit (ulimit -n)"
        );
    }
    Ok(ClientLimits { connections_max, memory_bytes_max })
}

/// Every connection takes a descriptor, and shells give few: takes as many as it is allowed to, and tells how many.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }) {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limits.current);
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Lets other nodes take over what this one serves, so that clients of theirs need not wait until it is missed.
async fn leave(shards: &Handles) {
    let started = Instant::now();
    let mut left = 0;
    while started.elapsed() < LEAVE_PATIENCE {
        let ask = |shard: &Handle| {
            let (busy_sender, busy) = oneshot::channel();
            shard.send(Command::Leave(busy_sender));
            busy
        };
        let asked: Vec<oneshot::Receiver<usize>> = shards.all().map(ask).collect();
        left = 0;
        for busy in asked {
            left += busy.await.unwrap_or_default();
        }
        if left == 0 {
            tracing::info!("other nodes have taken over after {} ms", started.elapsed().as_millis());
            return;
        }
        tokio::time::sleep(LEAVE_STEP).await;
    }
    tracing::warn!("{left} placement groups were not taken over within {LEAVE_PATIENCE:?}");
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A node that its cluster knows.
struct Joined {
    identity: Identity,
    name: String,
    credentials: Credentials,
    /// How nodes talk with each other now.
    transport: Transport,
}

/// Makes the node known to its cluster.
async fn join(
    client: &MetaClient,
    folder: &mut DataFolder,
    memory: &mut Memory,
    args: &NodeArgs,
    doors: &Doors,
    machine: &JoinCluster,
) -> Result<Joined> {
    let found = client.cluster_identity().await?;
    ensure!(
        found.is_some() || args.join.is_none(),
        "there is no cluster in the configuration, so there is none to --join: is --config right?"
    );
    if let Some(found) = found {
        let number = found.number().ok_or_else(|| anyhow!("the cluster's record in the configuration is damaged"))?;
        folder.check_cluster(number)?;
    }
    memory.check_at_start(client, &machine.name).await.map_err(refusal)?;
    let (cluster, transport) = ensure_cluster(client, folder, args).await?;
    let number = cluster.number().ok_or_else(|| anyhow!("the cluster's record in the configuration is damaged"))?;
    folder.check_cluster(number)?;
    if folder.file.id.is_some() && !client.model().nodes.values().any(|node| node.uuid == folder.file.uuid) {
        let name = folder.file.id.map_or_else(String::new, |id| id.to_string());
        return Err(MetaError::Removed { kind: Kind::Node, name }.into());
    }
    let (key, credentials) = (doors.key().name()?, Credentials::new(doors.key())?);
    let spec = NodeSpec {
        uuid: folder.file.uuid.clone(),
        name: machine.name.clone(),
        data_address: args.listen,
        api_address: args.api,
        endpoints: ClientListener::endpoints(args),
        site: args.site.clone(),
        rack: args.rack.clone(),
        incarnation: folder.file.incarnation,
        shards: args.shard_count(),
        key,
        api_tls: true,
    };
    if args.replace_key
        && let Some(id) = client.model().nodes.values().find(|node| node.uuid == spec.uuid).map(|node| node.id)
    {
        let record = client.replace_node_keys(id, key).await.map_err(refusal)?;
        tracing::warn!("node {}'s key is {key}, and no other any more (--replace-key)", record.name);
    }
    joining::join(client, args, machine, &cluster.id).await?;
    wait_for_former_process(client, &spec).await.map_err(refusal)?;
    let registered = match args.trusted_config {
        true => client.register_trusted_node(&spec).await,
        false => client.register_node(&spec).await,
    };
    let node = registered.map_err(refusal)?;
    if node.incarnation > folder.file.incarnation {
        let (known, own) = (node.incarnation - 1, folder.file.incarnation);
        tracing::warn!(
            "node.json counts {own} starts of this node, the cluster {known}: was an older file put back, or could it not be written?"
        );
    }
    folder.joined(&cluster.id, node.id, node.incarnation.max(folder.file.incarnation))?;
    memory.registered(folder.file.incarnation);
    let endpoint = Endpoint::first(node.id);
    let identity = Identity { cluster: number, endpoint, incarnation: folder.file.incarnation };
    Ok(Joined { identity, name: node.name, credentials, transport })
}

/// Waits until no other process shows that this node lives. One that had the same address has ended, for this process
/// listens there; one that has another may run, with the folder that this one's was copied from.
async fn wait_for_former_process(client: &MetaClient, spec: &NodeSpec) -> Result<(), MetaError> {
    let lives_elsewhere = || {
        let model = client.model();
        let node =
            model.nodes.values().find(|node| node.uuid == spec.uuid && node.data_address != spec.data_address)?;
        model.alive.contains_key(&node.id).then(|| (node.name.clone(), node.data_address))
    };
    let began = Instant::now();
    while let Some((node, address)) = lives_elsewhere() {
        if began.elapsed() >= FORMER_PATIENCE {
            return Err(MetaError::RunsElsewhere { node, address, wanted: spec.data_address });
        }
        if began.elapsed() < FORMER_STEP {
            tracing::info!(
                "a process that other nodes reach at {address} shows that node {node} lives: waiting for its end"
            );
        }
        tokio::time::sleep(FORMER_STEP).await;
    }
    Ok(())
}

/// The cluster, and how its nodes talk; a first node makes it.
async fn ensure_cluster(
    client: &MetaClient,
    folder: &DataFolder,
    args: &NodeArgs,
) -> Result<(ClusterRecord, Transport)> {
    let known = folder.file.cluster.as_deref();
    let first = SettingsRecord {
        transport: args.first_transport(),
        api_access: args.first_api_access(),
        ..SettingsRecord::default()
    };
    let cluster = client.ensure_cluster("azekura", first, known).await.map_err(refusal)?;
    // Nobody is listened to before that is known.
    let SettingsRecord { transport: stands, api_access, .. } = client.settings().await.map_err(refusal)?;
    if let Some(wanted) = args.api_access.filter(|wanted| *wanted != api_access) {
        tracing::warn!(
            "--api-access {wanted} is for new clusters, and this one has '{api_access}': azekura cluster set api-access {wanted}"
        );
    }
    if let Some(wanted) = args.transport.filter(|wanted| *wanted != stands) {
        tracing::warn!(
            "--transport {wanted} is for new clusters, and this one has '{stands}': azekura cluster set transport {wanted}"
        );
    }
    Ok((cluster, stands))
}

/// An error of the configuration, with what to do about it.
fn refusal(error: MetaError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow!("{error}\nhint: {hint}"),
        None => error.into(),
    }
}
