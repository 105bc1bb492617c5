//! The ways between the data plane's shards and other threads, and what a shard reports.

use crate::driver::commands::{Command, Inspection};
use azekura_base::{DeviceId, Generation, LayerId, PgId, Shard, VolumeId, Warning};
use azekura_frontend::{News, ReservationRequest, VolumeUse};
use azekura_node::{Breakdown, FoundBlock, ScrubWish};
use azekura_reactor::Waker;
use azekura_replica::{GroupConfig, ScrubReport};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::{mpsc as tokio_mpsc, oneshot};

/// What a shard tells.
#[derive(Debug)]
pub enum Report {
    /// A group wants its configuration changed.
    Propose(PgId, DeviceId, GroupConfig),
    /// A group was scrubbed.
    Scrubbed(PgId, ScrubWish, (ScrubReport, Vec<FoundBlock>)),
    /// Readers have met a bad block.
    Found(PgId, FoundBlock),
    /// A dropped layer's space on a device has come back.
    LayerDropped(DeviceId, LayerId),
    /// A device has given a layer's blocks to its child.
    LayerMerged(DeviceId, LayerId),
    /// A device has given up its copy of a group that it was to leave.
    CopyForgotten(DeviceId, PgId),
    /// A device is open, or out of service.
    DeviceOpen(DeviceId, Result<(), Breakdown>),
    /// A device has had too many errors.
    DeviceFailing(DeviceId, String),
    /// A device has not answered for so long, or, when false, answers again.
    DeviceHangs(DeviceId, bool, Duration),
    /// A write takes so long on a device, many times longer than on others.
    DeviceSlow(DeviceId, Duration),
    /// Clients want a volume.
    Attach(VolumeUse),
    /// Clients have writes for a volume that the process has to read.
    AttachToWrite(VolumeUse),
    /// No client wants this attachment of a volume any more.
    GiveBack(VolumeUse, Generation),
    /// An attachment of a volume has ended, or the volume has: no client here uses it any more.
    Ended(VolumeUse, Generation),
    /// Something of a client's connection that has a nexus or wants one, by its number in this shard.
    Nexus(u64, News),
    /// A client asks something of the reservations of the volume of this name and number; answered with this token.
    Reserves(u64, Arc<str>, VolumeId, Box<ReservationRequest>),
    /// The shard heeds all changes of a volume's reservations up to this one.
    Heeds(VolumeId, u64),
    /// Clients ask for exports that are not known here: the configuration may have them.
    ReadConfiguration,
    /// Something that people should know.
    Warn(Box<Warning>),
}

/// Where a shard's reports go.
#[derive(Clone)]
pub struct Reports {
    shard: Shard,
    sender: tokio_mpsc::UnboundedSender<(Shard, Report)>,
}

impl Reports {
    /// Reports of a shard.
    #[must_use]
    pub fn of(shard: Shard, sender: tokio_mpsc::UnboundedSender<(Shard, Report)>) -> Reports {
        Reports { shard, sender }
    }

    /// Tells something.
    pub fn send(&self, report: Report) {
        // Nobody listens any more only while the process is ending.
        let _ = self.sender.send((self.shard, report));
    }
}

/// The way to a shard from other threads.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    waker: Waker,
}

impl Handle {
    /// The way to whoever takes these commands when the waker has woken him.
    #[must_use]
    pub fn new(commands: mpsc::Sender<Command>, waker: Waker) -> Handle {
        Handle { commands, waker }
    }

    /// Sends a command. It is lost when the shard has stopped.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// What wakes the shard.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Asks what `see` sees in the node; there is no answer when the shard has stopped.
    fn ask<T: Send + 'static>(&self, see: impl FnOnce(Inspection<'_>) -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Inspect(Box::new(move |look| drop(answer.send(see(look))))));
        answered
    }
}

/// The ways to all shards of the process.
#[derive(Clone)]
pub struct Handles(Arc<[Handle]>);

impl Handles {
    /// The ways to shards, in their order: one at least.
    ///
    /// # Panics
    /// When there is none, or more than a process can have.
    #[must_use]
    pub fn new(all: Vec<Handle>) -> Handles {
        assert!((1..=usize::from(u8::MAX)).contains(&all.len()), "a process of {} shards", all.len());
        Handles(all.into())
    }

    /// How many shards there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The first shard: for what any of them can do.
    #[must_use]
    pub fn first(&self) -> &Handle {
        &self.0[0]
    }

    /// A shard, if there is such a one.
    #[must_use]
    pub fn of(&self, shard: Shard) -> Option<&Handle> {
        self.0.get(usize::from(shard.0))
    }

    /// All shards, in their order.
    pub fn all(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter()
    }

    /// Sends a command to a shard. It is lost when that has stopped.
    pub fn send(&self, shard: Shard, command: Command) {
        if let Some(handle) = self.of(shard) {
            handle.send(command);
        }
    }

    /// What `see` sees in each shard, in their order; `None` when one of them has stopped.
    pub async fn inspect<T: Send + 'static>(
        &self,
        see: impl Fn(Inspection<'_>) -> T + Clone + Send + 'static,
    ) -> Option<Vec<T>> {
        // All are asked before the first has answered.
        let asked: Vec<oneshot::Receiver<T>> = self.all().map(|handle| handle.ask(see.clone())).collect();
        let mut seen = Vec::with_capacity(asked.len());
        for answer in asked {
            seen.push(answer.await.ok()?);
        }
        Some(seen)
    }
}
