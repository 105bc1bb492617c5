//! What others than the cluster want to happen in it, later.

use crate::cluster::events::Event;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use azekura_base::{DeviceId, NodeId};
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// It is somebody's turn then.
    pub(crate) fn cue_at(&mut self, at: Duration, cue: S::Cue) {
        self.queue.push(at, Event::Cue(cue));
    }

    /// A node's process starts.
    pub(crate) fn start_at(&mut self, at: Duration, node: NodeId) {
        self.queue.push(at, Event::Start(node));
    }

    /// A process ends, as one that was to stop.
    pub(crate) fn exit_at(&mut self, at: Duration, life: Life) {
        self.queue.push(at, Event::Exit(life));
    }

    /// A node goes away for so long.
    pub(crate) fn away_at(&mut self, at: Duration, node: NodeId, time: Duration) {
        self.queue.push(at, Event::Away(node, time));
    }

    /// A process whose clock stands still with it from now on goes on.
    pub(crate) fn resume_at(&mut self, at: Duration, life: Life) {
        self.queue.push(at, Event::Resume(life, self.now));
    }

    /// A device that hangs may answer again.
    pub(crate) fn answers_at(&mut self, at: Duration, device: DeviceId) {
        self.queue.push(at, Event::Answers(device));
    }

    /// The control plane looks for the first time where copies should be.
    pub(crate) fn operate_at(&mut self, at: Duration) {
        self.queue.push(at, Event::Operate);
    }

    /// The leader of the control plane looks for the first time at layers that are to end.
    pub(crate) fn leader_at(&mut self, at: Duration) {
        self.queue.push(at, Event::Leader);
    }
}
