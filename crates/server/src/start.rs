//! Starting and stopping a node.

use crate::args::NodeArgs;
use crate::bridge::attachments::{Keeper, Plane};
use crate::bridge::following::{self, known_parents};
use crate::bridge::holdings;
use crate::bridge::reports;
use crate::bridge::scrubs::{self, Intervals};
use crate::bridge::statistics::{Failures, Statistics};
use crate::disk::data_folder::DataFolder;
use crate::disk::device::{DeviceDir, DeviceLost};
use crate::disk::initialise;
use crate::disk::map_thread::MapThread;
use crate::disk::seen::{self, Memory};
use crate::driver::dataplane::{self, DataPlane, Handle, Listeners, OpenDevice, Report};
use crate::driver::stream::Conn;
use crate::listeners::ClientListener;
use anyhow::{Context, Result, anyhow, bail, ensure};
use azekura_base::DeviceId;
use azekura_control::Attacher;
use azekura_frontend::{ClientLimits, MEMORY_BYTES_MIN};
use azekura_meta::MetaClient;
use azekura_meta::cluster::{DeviceSpec, NodeSpec};
use azekura_meta::server::EmbeddedServer;
use azekura_meta::time::now_rfc3339;
use azekura_model::{DeviceFailure, DeviceRecord, EtcdError, FailureKind, Kind, MetaError};
use azekura_node::{Breakdown, INBOUND_MAX, Identity, UNGREETED_MAX};
use azekura_reactor::{DeviceOptions, Options, Reactor};
use azekura_store::{CheckpointDb, Store};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

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

/// A device whose store is ready to be driven.
struct ReadyDevice {
    id: DeviceId,
    dir: DeviceDir,
    store: Store,
    map: CheckpointDb,
}

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
    let dirs = folder.devices(args.device_size.map(|size| size.bytes()), args.devices)?;
    let (identity, name) = join(&client, &mut folder, &mut memory, &args).await?;
    let (report_sender, report_receiver) = mpsc::unbounded_channel();
    let devices = open_devices(&client, dirs, &args, identity, &report_sender).await?;
    let (handle_sender, handle) = oneshot::channel();
    let rest: Vec<_> = devices.iter().map(|device| (device.id, DeviceDir::open(device.dir.path()))).collect();
    let folders: Vec<PathBuf> = devices.iter().map(|device| device.dir.path().to_owned()).collect();
    let device_timeout = Duration::from_secs(args.device_timeout.0);
    let ready = Membership { identity, devices, device_timeout, reports: report_sender };
    if membership.send((ready, handle_sender)).is_err() {
        bail!("the data plane ended before it began");
    }
    let handle = handle.await.context("the data plane ended")??;

    let stop_initialising = Arc::new(AtomicBool::new(false));
    for (id, dir) in rest {
        initialise::start(dir?, id, handle.clone(), Arc::clone(&stop_initialising));
    }
    let parents = known_parents(&folders);
    let (believed, copy) = (memory.watch(), tokio::spawn(memory.keep_copy()));
    let holdings = tokio::spawn(holdings::tell(client.clone(), handle.clone(), parents.clone()));
    let (told_sender, told) = watch::channel(0);
    let following = following::follow_model(client.clone(), handle.clone(), told_sender, folders, parents, memory);
    let mut follow = tokio::spawn(following);
    let scrubs = tokio::spawn(scrubs::run(client.clone(), handle.clone(), identity.node, Intervals::of(&args)));
    let alive = client.keep_alive(identity.node);
    let failures = Failures::default();
    let statistics = Statistics { handle: handle.clone(), name, failures: Arc::clone(&failures), started };
    let plane = Plane { handle: handle.clone(), incarnation: identity.incarnation };
    let attacher = Attacher::new(client.clone(), Arc::new(plane));
    let keeper =
        Keeper::new(attacher.clone(), client.clone(), handle.clone(), told, identity.node, identity.incarnation);
    let control = azekura_control::start(api, client.clone(), identity.node, Arc::new(statistics), attacher);
    let reports = reports::carry_out(client.clone(), handle.clone(), failures, keeper, report_receiver);
    let reports = tokio::spawn(reports);
    tracing::info!("node {} is up: nodes on {}, API on http://{}", identity.node, args.listen, args.api);

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
    };
    let node = client.register_node(&spec).await?;
    if node.incarnation > folder.file.incarnation {
        let (known, own) = (node.incarnation - 1, folder.file.incarnation);
        tracing::warn!(
            "node.json counts {own} starts of this node, the cluster {known}: was an older file put back, or could it not be written?"
        );
    }
    folder.joined(&cluster.id, node.id, node.incarnation.max(folder.file.incarnation))?;
    let identity = Identity { cluster: number, node: node.id, incarnation: folder.file.incarnation };
    Ok((identity, node.name))
}

/// Registers and opens the node's devices. What can't be opened, or is not there any more, is reported, and the node
/// does without it.
async fn open_devices(
    client: &MetaClient,
    dirs: Vec<(String, Result<DeviceDir>)>,
    args: &NodeArgs,
    identity: Identity,
    reports: &mpsc::UnboundedSender<Report>,
) -> Result<Vec<ReadyDevice>> {
    let mut ready = Vec::new();
    note_missing(client, &dirs, identity).await?;
    for (name, dir) in dirs {
        let mut dir = match dir {
            Ok(dir) => dir,
            Err(error) => {
                match client.model().devices.values().find(|record| is_called(record, identity, &name)) {
                    Some(record) => out_of_service(reports, record.id, &error),
                    None => tracing::error!("{error:#}; the node goes on without {name}"),
                }
                continue;
            }
        };
        if dir.file.id.is_some() && !client.model().devices.values().any(|record| record.uuid == dir.file.uuid) {
            let error = MetaError::Removed { kind: Kind::Device, name };
            let hint = error.hint().unwrap_or_default();
            tracing::error!("{error}: {hint}; the node goes on without {}", dir.path().display());
            continue;
        }
        let spec = DeviceSpec {
            uuid: dir.file.uuid.clone(),
            node: identity.node,
            name,
            capacity_bytes: dir.options(true).device_bytes(),
        };
        dir.check_cluster(identity.cluster)?;
        let id = client.register_device(&spec).await?.id;
        let flush = !args.power_loss_protected;
        let cluster = identity.cluster;
        let open = move || -> Result<ReadyDevice> {
            let (store, map) = dir.open_store(cluster, id, flush)?;
            Ok(ReadyDevice { id, dir, store, map })
        };
        match tokio::task::spawn_blocking(open).await.context("opening a device failed")? {
            Ok(device) => ready.push(device),
            Err(error) => out_of_service(reports, id, &error),
        }
    }
    Ok(ready)
}

/// It is the node's device of this name. One that is gone for good may have left its name to another.
fn is_called(record: &DeviceRecord, identity: Identity, name: &str) -> bool {
    let lost = record.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Lost);
    record.node == identity.node && record.name == name && !lost
}

/// Notes which of the node's registered devices are not in its data folder any more. Another device may have such a
/// one's name then.
async fn note_missing(client: &MetaClient, dirs: &[(String, Result<DeviceDir>)], identity: Identity) -> Result<()> {
    let model = client.model();
    let is_missing = |record: &DeviceRecord| {
        let is_it = |(name, dir): &(String, Result<DeviceDir>)| match dir {
            Ok(dir) => dir.file.uuid == record.uuid,
            Err(_) => is_called(record, identity, name),
        };
        record.node == identity.node && !record.removed && !dirs.iter().any(is_it)
    };
    for record in model.devices.values().filter(|record| is_missing(record)) {
        let reason = format!("{} is not in its node's data folder any more", record.name);
        tracing::error!("device {}: {reason}", record.id);
        let failure = DeviceFailure { kind: FailureKind::Lost, reason, since: now_rfc3339() };
        client.note_device_failure(record.id, Some(&failure)).await?;
    }
    Ok(())
}

/// Reports that a device can't be used.
fn out_of_service(reports: &mpsc::UnboundedSender<Report>, device: DeviceId, error: &anyhow::Error) {
    let for_good = error.downcast_ref::<DeviceLost>().is_some();
    // The reports are worked off as long as the node is up.
    let _ = reports.send(Report::DeviceOpen(device, Err(Breakdown { reason: format!("{error:#}"), for_good })));
}

type Start = (Membership, oneshot::Sender<Result<Handle>>);
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
        match assemble(reactor, listeners, membership, clients) {
            Ok(data_plane) => {
                let _ = answer.send(Ok(data_plane.handle()));
                data_plane.run()
            }
            Err(error) => {
                let _ = answer.send(Err(error));
                Ok(())
            }
        }
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

fn assemble(
    mut reactor: Reactor<Conn>,
    listeners: Listeners,
    membership: Membership,
    clients: ClientLimits,
) -> Result<DataPlane> {
    let mut files = Vec::new();
    for device in membership.devices {
        let path = device.dir.log_path();
        let opened = reactor.open_device(&path, DeviceOptions::default());
        match opened.with_context(|| format!("can't open the log {}", path.display())) {
            Ok(file) => files.push((device, file)),
            Err(error) => out_of_service(&membership.reports, device.id, &error),
        }
    }
    let mut data_plane = DataPlane::new(reactor, membership.identity, listeners, membership.reports, clients);
    data_plane.set_device_timeout(membership.device_timeout);
    for (device, file) in files {
        let map = MapThread::start(device.id, device.map, data_plane.handle())?;
        data_plane.add_device(device.id, OpenDevice { file, map }, device.store);
    }
    Ok(data_plane)
}

/// An error of the configuration, with what to do about it.
fn refusal(error: MetaError) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow!("{error}\nhint: {hint}"),
        None => error.into(),
    }
}
