//! The threads of the data plane, one a shard: how they begin, and how they end.

use crate::args::NodeArgs;
use crate::driver::clients::Share;
use crate::driver::commands::Command;
use crate::driver::dataplane::{ClientsListener, DataPlane, Listeners, Membership};
use crate::driver::messages::{Handle, Handles};
use crate::driver::stream::Conn;
use crate::listeners::{ClientListener, ListenAddress, Shared};
use crate::secured::SecuredDoor;
use anyhow::{Context, Result, anyhow};
use azekura_base::Shard;
use azekura_frontend::ClientLimits;
use azekura_node::{INBOUND_MAX, UNGREETED_MAX};
use azekura_nvme::Controllers;
use azekura_reactor::{Options, Reactor};
use azekura_transport::https::StreamTls;
use std::io;
use std::num::NonZeroU8;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Connections that are being closed while others come in their place.
const CLOSING_MAX: usize = 4096;
/// Longest wait for the shards to close their devices.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How a thread has ended.
type End = (Shard, std::thread::Result<io::Result<()>>);

/// The shards of this process. What they have together, attachments and leases of other nodes, is the process's: when
/// one of them ends by itself, all are to be stopped.
pub struct Shards {
    handles: Handles,
    /// Where each waits for its membership.
    begin: Vec<std_mpsc::Sender<Membership>>,
    ends: mpsc::UnboundedReceiver<End>,
    controllers: Arc<Controllers>,
}

impl Shards {
    /// Starts the threads, which open their sockets at once and wait for [`Shards::begin`]. `tls`: what clients are
    /// shown that speak TLS.
    ///
    /// # Errors
    /// When there is no thread, no event loop or no socket to be had.
    pub async fn start(args: &NodeArgs, clients: ClientLimits, tls: StreamTls) -> Result<Shards> {
        let share = Share::of(clients, args.shard_count());
        let controllers = Arc::new(Controllers::new(crate::random::bits() as u64));
        let shared = Shared { controllers: Arc::clone(&controllers), secured: SecuredDoor::new(tls) };
        let (end, ends) = mpsc::unbounded_channel();
        let (mut begin, mut opening) = (Vec::new(), Vec::new());
        for shard in (0..args.shard_count().get()).map(Shard) {
            let (sender, membership) = std_mpsc::channel();
            let (opened_sender, opened) = oneshot::channel();
            let (args, share, shared) = (args.clone(), share.clone(), shared.clone());
            let work = move || run(shard, &args, share, &shared, opened_sender, &membership);
            spawn(shard, end.clone(), work)?;
            begin.push(sender);
            opening.push(opened);
        }
        let mut handles = Vec::new();
        for opened in opening {
            handles.push(opened.await.context("the data plane ended")??);
        }
        Ok(Shards { handles: Handles::new(handles), begin, ends, controllers })
    }

    /// The ways to them.
    pub fn handles(&self) -> Handles {
        self.handles.clone()
    }

    /// What listeners of all shards have together.
    pub fn controllers(&self) -> Arc<Controllers> {
        Arc::clone(&self.controllers)
    }

    /// Lets each begin as what `membership` makes of it.
    pub fn begin(&mut self, mut membership: impl FnMut(Shard) -> Membership) {
        for (shard, sender) in (0..).map(Shard).zip(self.begin.drain(..)) {
            // One that has ended is noticed otherwise.
            let _ = sender.send(membership(shard));
        }
    }

    /// Waits until one has ended, and says how.
    pub async fn end(&mut self) -> Result<()> {
        match self.ends.recv().await {
            Some((_, Ok(result))) => result.context("the data plane's event loop ended"),
            Some((shard, Err(_))) => {
                Err(anyhow!("the thread of shard {shard} of the data plane panicked; please report the message above"))
            }
            None => Err(anyhow!("the data plane ended before it began")),
        }
    }

    /// Has all close their devices and end, and waits for that.
    pub async fn stop(&self) {
        let stop = |handle: &Handle| {
            let (stopped_sender, stopped) = oneshot::channel();
            handle.send(Command::Stop(stopped_sender));
            stopped
        };
        let all: Vec<oneshot::Receiver<()>> = self.handles.all().map(stop).collect();
        let wait = async {
            for stopped in all {
                // One that had ended before does not answer.
                let _ = stopped.await;
            }
        };
        let _ = tokio::time::timeout(STOP_PATIENCE, wait).await;
    }
}

fn spawn(
    shard: Shard,
    end: mpsc::UnboundedSender<End>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<()> {
    let name = if shard == Shard(0) { "data".to_owned() } else { format!("data-{shard}") };
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        // Nobody listens any more only while the process is ending.
        let _ = end.send((shard, result));
    };
    std::thread::Builder::new().name(name).spawn(work).context("can't start a thread")?;
    Ok(())
}

/// The work of one shard's thread.
fn run(
    shard: Shard,
    args: &NodeArgs,
    share: Share,
    shared: &Shared,
    opened: oneshot::Sender<Result<Handle>>,
    membership: &std_mpsc::Receiver<Membership>,
) -> io::Result<()> {
    let (reactor, listeners) = match open_sockets(shard, args, &share, shared) {
        Ok(sockets) => sockets,
        Err(error) => {
            let _ = opened.send(Err(error));
            return Ok(());
        }
    };
    let (sender, commands) = std_mpsc::channel();
    let _ = opened.send(Ok(Handle::new(sender, reactor.waker())));
    let Ok(membership) = membership.recv() else { return Ok(()) };
    shared.controllers.set_cluster(membership.identity.cluster);
    DataPlane::new(reactor, commands, listeners, share, membership).run()
}

/// The first shard accepts other nodes for all, and the clients of this machine. Clients that come over the network are
/// dealt out by the kernel.
fn open_sockets(shard: Shard, args: &NodeArgs, share: &Share, shared: &Shared) -> Result<(Reactor<Conn>, Listeners)> {
    // Clients and nodes have limits of their own, and so there is a place for every node, and for every dial of this
    // one.
    let connections_max = share.limits.connections_max + 2 * (INBOUND_MAX + UNGREETED_MAX) + CLOSING_MAX;
    let options = Options { connections_max, ..Options::default() };
    let mut reactor = Reactor::new(options).context("can't start the event loop")?;
    let mut listeners = Listeners::default();
    let (is_first, is_alone) = (shard == Shard(0), args.shard_count() == NonZeroU8::MIN);
    if is_first {
        // The reactor names the address.
        let peers = reactor.listen_tcp(args.listen).context("--listen")?;
        listeners.peers.push(peers);
    }
    for ClientListener { option, address, speak } in ClientListener::all(args, shared) {
        let is_local = matches!(address, ListenAddress::Unix(..));
        if is_local && !is_first {
            continue;
        }
        let socket = address.open(&mut reactor, !is_alone);
        let listener = socket.context(option)?;
        listeners.clients.push(ClientsListener { listener, speak, deals: is_local && !is_alone });
    }
    Ok((reactor, listeners))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_thread_that_ends_is_noticed() {
        let (end, ends) = mpsc::unbounded_channel();
        let (_goes_on, waits) = std_mpsc::channel::<()>();
        spawn(Shard(0), end.clone(), move || waits.recv().map_err(io::Error::other)).unwrap();
        spawn(Shard(1), end.clone(), || panic!("a test's")).unwrap();
        let (sender, _commands) = std_mpsc::channel();
        let reactor = Reactor::<Conn>::new(Options::default()).unwrap();
        let handles = Handles::new(vec![Handle::new(sender, reactor.waker())]);
        let controllers = Arc::new(Controllers::new(1));
        let mut shards = Shards { handles, begin: Vec::new(), ends, controllers };
        let error = shards.end().await.unwrap_err().to_string();
        assert!(error.contains("shard 1") && error.contains("panicked"), "{error}");
        spawn(Shard(2), end, || Err(io::Error::other("no ring"))).unwrap();
        let error = format!("{:#}", shards.end().await.unwrap_err());
        assert_eq!(error, "the data plane's event loop ended: no ring");
    }
}
