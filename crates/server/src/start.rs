//! Starting and stopping a node.

use crate::args::NodeArgs;
use crate::bridge::attachments::{Keeper, Plane};
use crate::bridge::following::Following;
use crate::bridge::holdings;
use crate::bridge::reports;
use crate::bridge::scrubs::{self, Intervals};
use crate::bridge::statistics::{Failures, Statistics};
use crate::disk::data_folder::DataFolder;
use crate::disk::seen::{self, Memory};
use crate::driver::dataplane::{self, DataPlane, Handle, Listeners, Report};
use crate::driver::stream::Conn;
use crate::listeners::ClientListener;
use crate::opening::{Opened, Opener, ReadyDevice};
use anyhow::{Context, Result, anyhow, bail, ensure};
use azekura_base::Endpoint;
use azekura_control::Attacher;
use azekura_frontend::{ClientLimits, MEMORY_BYTES_MIN};
use azekura_meta::MetaClient;
use azekura_meta::cluster::NodeSpec;
use azekura_meta::server::EmbeddedServer;
use azekura_model::{EtcdError, Kind, MetaError};
use azekura_node::{INBOUND_MAX, Identity, UNGREETED_MAX};
use azekura_reactor::{Options, Reactor};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// How long one attempt to reach the configuration server lasts before people are told.
const CONFIG_PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for handing over to other nodes before the process ends.
const LEAVE_PATIENCE: Duration = Duration::from_millis(1500);
/// Pause between two looks whether that is done.
const LEAVE_STEP: Duration = Duration::from_millis(10);
/// Longest wait for the data plane to close its devices.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Connections that are being closed while others come in their place.
const CLOSING_MAX: usize = 4096;

/// What the data plane's thread waits for after it has opened its sockets.
struct Membership {
    identity: Identity,
    devices: Vec<ReadyDevice>,
    device_timeout: Duration,
    reports: mpsc::UnboundedSender<Report>,
}

/// Starts the node, serves until a signal, stops.
///
/// # Errors
/// When something that it needs is not to be had; the message says what to do.
pub async fn serve(args: NodeArgs) -> Result<()> {
    let started = Instant::now();
    let descriptors = raise_descriptor_limit();
    ensure!(
        !args.listen.ip().is_unspecified(),
        "--listen {} is announced to other nodes, so it must be an address that they can reach",
        args.listen
    );
    ensure!(
        !args.config.is_empty() || args.serve_config.is_some(),
        "where is the cluster's configuration? Give --config URL, or --serve-config IP:PORT to keep it in this node"
    );
    let mut folder = DataFolder::open(&args.data)?;
    let server = match args.serve_config {
        Some(address) => Some(
            EmbeddedServer::start(&folder.config_database(), address)
                .await
                .with_context(|| format!("can't serve the configuration on {address} (--serve-config)"))?,
        ),
        None => None,
    };
    let clients = client_limits(&args, descriptors)?;
    let (sockets, membership, data_plane) = start_data_plane(&args, clients)?;
    sockets.await.context("the data plane ended")??;
    let api = azekura_control::bind(args.api).await.with_context(|| format!("can't listen on {} (--api)", args.api))?;
    let mut stop = Signals::new()?;

    let client = tokio::select! {
        client = connect(&args, server.as_ref()) => client?,
        () = stop.wait() => return Ok(()),
    };
    let mut memory = Memory::open(folder.path(), &folder.file.uuid)?;
    // Before the node is known to anybody: one that can't have its devices leaves nothing behind.
    let device_size = args.device_size.map(|size| size.bytes());
    let device_folders = folder.devices(device_size, args.devices)?;
    let (identity, name) = join(&client, &mut folder, &mut memory, &args).await?;
    let node = identity.endpoint.node;
    let (report_sender, report_receiver) = mpsc::unbounded_channel();
    let opener = opener(&client, identity, &args, report_sender.clone());
    let Opened { ready: devices, late } = opener.open_all(device_folders, device_size).await?;
    let of_device = |device: &ReadyDevice| (device.id, device.dir.path().to_owned(), device.parents.clone());
    let present: Vec<_> = devices.iter().map(of_device).collect();
    let (handle_sender, handle) = oneshot::channel();
    let ready = Membership { identity, devices, device_timeout: opener.timeout, reports: report_sender };
    if membership.send((ready, handle_sender)).is_err() {
        bail!("the data plane ended before it began");
    }
    let handle = handle.await.context("the data plane ended")?;

    let stop_initialising = Arc::new(AtomicBool::new(false));
    let (believed, copy) = (memory.watch(), tokio::spawn(memory.keep_copy()));
    let mut following = Following::new(client.clone(), handle.clone(), memory, Arc::clone(&stop_initialising));
    for (id, path, parents) in &present {
        following.begin_with(*id, path, parents);
    }
    let holdings = tokio::spawn(holdings::tell(client.clone(), handle.clone(), following.known()));
    let told = following.told();
    let mut follow = tokio::spawn(following.run(late));
    let scrubs = tokio::spawn(scrubs::run(client.clone(), handle.clone(), node, Intervals::of(&args)));
    let alive = client.keep_alive(node);
    let failures = Failures::default();
    let statistics = Statistics { handle: handle.clone(), name, failures: Arc::clone(&failures), started };
    let plane = Plane { handle: handle.clone(), incarnation: identity.incarnation };
    let attacher = Attacher::new(client.clone(), Arc::new(plane));
    let keeper = Keeper::new(attacher.clone(), client.clone(), handle.clone(), told, node, identity.incarnation);
    let control = azekura_control::start(api, client.clone(), node, Arc::new(statistics), attacher);
    let reports = reports::carry_out(client.clone(), handle.clone(), failures, keeper, report_receiver);
    let reports = tokio::spawn(reports);
    tracing::info!("node {node} is up: nodes on {}, API on http://{}", args.listen, args.api);

    let mut data_plane = tokio::task::spawn_blocking(move || data_plane.join());
    let mut refused = None;
    let ended = tokio::select! {
        () = stop.wait() => None,
        ended = &mut data_plane => Some(ended),
        outcome = &mut follow => {
            refused = outcome.ok();
            None
        }
    };
    tracing::info!("stopping");
    stop_initialising.store(true, Ordering::Relaxed);
    if ended.is_none() {
        // Nothing is handed over by a configuration that is not believed.
        if refused.is_none() {
            leave(&handle).await;
        }
        let (stopped_sender, stopped) = oneshot::channel();
        handle.send(dataplane::Command::Stop(stopped_sender));
        let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
    }
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
    match ended {
        Some(Ok(Ok(result))) => result.context("the data plane's event loop ended"),
        Some(_) => bail!("the data plane's thread panicked; please report the message above"),
        None => Ok(()),
    }
}

/// What opens the node's devices.
fn opener(client: &MetaClient, identity: Identity, args: &NodeArgs, reports: mpsc::UnboundedSender<Report>) -> Opener {
    let timeout = Duration::from_secs(args.device_timeout.0);
    Opener { client: client.clone(), identity, flush: !args.power_loss_protected, timeout, reports }
}

/// What clients may take. Of the descriptors, other nodes, devices and the control plane have one half.
fn client_limits(args: &NodeArgs, descriptors: usize) -> Result<ClientLimits> {
    let memory_bytes_max = usize::try_from(args.nbd_memory.bytes()).unwrap_or(usize::MAX);
    ensure!(
        memory_bytes_max >= MEMORY_BYTES_MIN,
        "--nbd-memory {} is too little: the longest request needs {} MiB",
        args.nbd_memory,
        MEMORY_BYTES_MIN >> 20
    );
    let connections_max = args.nbd_connections.min((descriptors / 2).max(1));
    if connections_max < args.nbd_connections {
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
async fn leave(handle: &Handle) {
    let started = Instant::now();
    let mut left = 0;
    while started.elapsed() < LEAVE_PATIENCE {
        let (busy_sender, busy) = oneshot::channel();
        handle.send(dataplane::Command::Leave(busy_sender));
        left = busy.await.unwrap_or_default();
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

/// Connects to the configuration servers, however long that takes.
async fn connect(args: &NodeArgs, server: Option<&EmbeddedServer>) -> Result<MetaClient> {
    let endpoints = match server {
        Some(server) if args.config.is_empty() => vec![format!("http://{}", server.address())],
        _ => args.config.clone(),
    };
    loop {
        match MetaClient::connect_within(endpoints.clone(), CONFIG_PATIENCE).await {
            Ok(client) => return Ok(client),
            Err(error @ MetaError::Etcd(EtcdError::Unreachable { .. })) => {
                tracing::warn!("waiting for the configuration server: {error}; is it running, is --config right?");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the node known to its cluster.
async fn join(
    client: &MetaClient,
    folder: &mut DataFolder,
    memory: &mut Memory,
    args: &NodeArgs,
) -> Result<(Identity, String)> {
    if let Some(found) = client.cluster_identity().await? {
        let number = found.number().ok_or_else(|| anyhow!("the cluster's record in the configuration is damaged"))?;
        folder.check_cluster(number)?;
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("can't read the host's name")?
            .trim()
            .to_owned(),
    };
    memory.check_at_start(client, &name).await.map_err(refusal)?;
    let cluster = client.ensure_cluster("azekura", folder.file.cluster.as_deref()).await.map_err(refusal)?;
    let number = cluster.number().ok_or_else(|| anyhow!("the cluster's record in the configuration is damaged"))?;
    folder.check_cluster(number)?;
    if folder.file.id.is_some() && !client.model().nodes.values().any(|node| node.uuid == folder.file.uuid) {
        let name = folder.file.id.map_or_else(String::new, |id| id.to_string());
        return Err(MetaError::Removed { kind: Kind::Node, name }.into());
    }
    let spec = NodeSpec {
        uuid: folder.file.uuid.clone(),
        name,
        data_address: args.listen,
        api_address: args.api,
        endpoints: ClientListener::all(args).iter().map(ClientListener::endpoint).collect(),
        site: args.site.clone(),
        rack: args.rack.clone(),
        incarnation: folder.file.incarnation,
        shards: NonZeroU8::MIN,
    };
    let node = client.register_node(&spec).await?;
    if node.incarnation > folder.file.incarnation {
        let (known, own) = (node.incarnation - 1, folder.file.incarnation);
        tracing::warn!(
            "node.json counts {own} starts of this node, the cluster {known}: was an older file put back, or could it not be written?"
        );
    }
    folder.joined(&cluster.id, node.id, node.incarnation.max(folder.file.incarnation))?;
    let endpoint = Endpoint::first(node.id);
    let identity = Identity { cluster: number, endpoint, incarnation: folder.file.incarnation };
    Ok((identity, node.name))
}

type Start = (Membership, oneshot::Sender<Handle>);
type Sockets = oneshot::Receiver<Result<()>>;

/// Starts the data plane's thread, which opens its sockets at once and waits for the node's membership.
fn start_data_plane(
    args: &NodeArgs,
    clients: ClientLimits,
) -> Result<(Sockets, std::sync::mpsc::Sender<Start>, JoinHandle<std::io::Result<()>>)> {
    let (sockets_sender, sockets) = oneshot::channel();
    let (sender, receiver) = std::sync::mpsc::channel::<Start>();
    let args = args.clone();
    let work = move || -> std::io::Result<()> {
        let opened = open_sockets(&args, clients);
        let (reactor, listeners) = match opened {
            Ok(opened) => {
                let _ = sockets_sender.send(Ok(()));
                opened
            }
            Err(error) => {
                let _ = sockets_sender.send(Err(error));
                return Ok(());
            }
        };
        let Ok((membership, answer)) = receiver.recv() else { return Ok(()) };
        let data_plane = assemble(reactor, listeners, membership, clients);
        let _ = answer.send(data_plane.handle());
        data_plane.run()
    };
    let thread = std::thread::Builder::new().name("data".into()).spawn(work).context("can't start a thread")?;
    Ok((sockets, sender, thread))
}

fn open_sockets(args: &NodeArgs, clients: ClientLimits) -> Result<(Reactor<Conn>, Listeners)> {
    // Clients and nodes have limits of their own, and so there is a place for every node, and for every dial of this
    // one.
    let connections_max = clients.connections_max + 2 * (INBOUND_MAX + UNGREETED_MAX) + CLOSING_MAX;
    let options = Options { connections_max, ..Options::default() };
    let mut reactor = Reactor::new(options).context("can't start the event loop")?;
    let mut listeners = Listeners::default();
    let in_use = |what: &str, address: &str| format!("can't listen on {address} ({what}): is it in use?");
    let peers = reactor.listen_tcp(args.listen).with_context(|| in_use("--listen", &args.listen.to_string()))?;
    listeners.peers.push(peers);
    for ClientListener { option, address, speak, .. } in ClientListener::all(args) {
        let socket = address.open(&mut reactor).with_context(|| in_use(option, &address.to_string()))?;
        listeners.clients.push((socket, speak));
    }
    Ok((reactor, listeners))
}

fn assemble(reactor: Reactor<Conn>, listeners: Listeners, membership: Membership, clients: ClientLimits) -> DataPlane {
    let Membership { identity, devices, device_timeout, reports } = membership;
    let mut data_plane = DataPlane::new(reactor, identity, listeners, reports, clients);
    data_plane.set_device_timeout(device_timeout);
    devices.into_iter().for_each(|device| data_plane.add_device(device));
    data_plane
}

/// An error of the configuration, with what to do about it.
fn refusal(error: MetaError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow!("{error}\nhint: {hint}"),
        None => error.into(),
    }
}
