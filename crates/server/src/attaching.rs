//! Which volumes this node's clients have attached: the data plane's side. A volume is attached for the first client
//! that opens it, and given back when the last one has gone and nothing of it is under way.

use super::dataplane::{DataPlane, Report};
use super::stream::Conn;
use azekura_base::{Generation, VolumeId};
use azekura_nbd::{Export, Opening};
use azekura_reactor::{Close, ConnId};
use std::collections::{BTreeMap, BTreeSet};

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being attached.
    Wanted,
    /// Its clients' requests carry this attachment.
    Held(Generation),
    /// It is being given back; whoever wants it now waits until that is done.
    Leaving,
}

/// One volume.
#[derive(Debug)]
struct Volume {
    id: VolumeId,
    state: State,
    /// Connections that have opened it, or want to.
    users: BTreeSet<ConnId>,
    /// Requests under way, also of clients that are gone.
    requests: u64,
}

/// The volumes that this node's clients use.
#[derive(Debug, Default)]
pub struct Attaching {
    volumes: BTreeMap<String, Volume>,
    /// What to tell connections whose wish was refused.
    refused: BTreeMap<ConnId, String>,
    /// The node has news of attachments: some may have ended.
    pub look_for_ended: bool,
    /// And of volumes: some may be gone.
    pub look_for_deleted: bool,
}

impl Attaching {
    /// Whether a connection can open an export.
    pub fn opening(&self, conn: ConnId, export: Export) -> Opening {
        if let Some(why) = self.refused.get(&conn) {
            return Opening::Refused(why.clone());
        }
        // Nobody writes to a snapshot: any number of clients may read it, anywhere.
        if export.read_only {
            return Opening::Ready(export);
        }
        match self.volumes.get(&export.name).map(|volume| volume.state) {
            Some(State::Held(_)) => Opening::Ready(export),
            _ => Opening::Later(export.name),
        }
    }

    /// A connection has opened a volume that is held; answers the attachment that its requests carry. Clients after the
    /// first have not asked for the volume: they are counted from here on. Snapshots are attached to nobody.
    pub fn opened(&mut self, conn: ConnId, name: &str) -> Option<Generation> {
        let volume = self.volumes.get_mut(name)?;
        let State::Held(attachment) = volume.state else { return None };
        volume.users.insert(conn);
        Some(attachment)
    }

    /// A refusal was told, or is void.
    pub fn forget_refusal(&mut self, conn: ConnId) {
        self.refused.remove(&conn);
    }

    /// A client's request begins under an attachment of a volume.
    pub fn begin(&mut self, volume: &str, attachment: Generation) {
        if let Some(volume) = self.holding(volume, attachment) {
            volume.requests += 1;
        }
    }

    /// And ends.
    fn end(&mut self, volume: &str, attachment: Generation) {
        if let Some(volume) = self.holding(volume, attachment) {
            volume.requests = volume.requests.saturating_sub(1);
        }
    }

    fn holding(&mut self, volume: &str, attachment: Generation) -> Option<&mut Volume> {
        self.volumes.get_mut(volume).filter(|volume| volume.state == State::Held(attachment))
    }

    /// Gives a volume back if nobody uses it; answers the attachment that is to be given back.
    fn leave(&mut self, name: &str) -> Option<Generation> {
        let volume = self.volumes.get_mut(name)?;
        let State::Held(attachment) = volume.state else { return None };
        let unused = volume.users.is_empty() && volume.requests == 0;
        if unused {
            volume.state = State::Leaving;
        }
        unused.then_some(attachment)
    }
}

impl DataPlane {
    /// A client wants to open a volume.
    pub(super) fn want_volume(&mut self, conn: ConnId, name: &str) {
        let Some(view) = self.node.gateway().volumes().get(name) else { return };
        let id = view.id;
        let volumes = &mut self.ops.attaching.volumes;
        if let Some(volume) = volumes.get_mut(name) {
            volume.users.insert(conn);
            return;
        }
        volumes
            .insert(name.to_owned(), Volume { id, state: State::Wanted, users: BTreeSet::from([conn]), requests: 0 });
        self.report(Report::Attach(name.to_owned()));
    }

    /// A volume is attached to this node, or is not, and why.
    pub(super) fn volume_attached(&mut self, name: &str, outcome: Result<(VolumeId, Generation), String>) {
        let attaching = &mut self.ops.attaching;
        let Some(volume) = attaching.volumes.get_mut(name) else { return };
        let users: Vec<ConnId> = volume.users.iter().copied().collect();
        match outcome {
            Ok((id, attachment)) if id == volume.id => volume.state = State::Held(attachment),
            // Another one has, or had, the name.
            Ok(_) => return self.report(Report::Attach(name.to_owned())),
            Err(why) => {
                attaching.refused.extend(users.iter().map(|conn| (*conn, why.clone())));
                attaching.volumes.remove(name);
            }
        }
        users.into_iter().for_each(|conn| self.pump_nbd(conn));
        self.leave_if_unused(name);
    }

    /// A volume is given back.
    pub(super) fn volume_given_back(&mut self, name: &str) {
        let volumes = &mut self.ops.attaching.volumes;
        let Some(volume) = volumes.get_mut(name).filter(|volume| volume.state == State::Leaving) else { return };
        if volume.users.is_empty() {
            volumes.remove(name);
        } else {
            volume.state = State::Wanted;
            self.report(Report::Attach(name.to_owned()));
        }
    }

    /// A client's connection has ended.
    pub(super) fn user_gone(&mut self, conn: ConnId) {
        self.ops.attaching.forget_refusal(conn);
        let mut used = Vec::new();
        for (name, volume) in &mut self.ops.attaching.volumes {
            if volume.users.remove(&conn) {
                used.push(name.clone());
            }
        }
        used.iter().for_each(|name| self.leave_if_unused(name));
    }

    /// A request under an attachment has ended.
    pub(super) fn request_ended(&mut self, name: &str, attachment: Generation) {
        self.ops.attaching.end(name, attachment);
        self.leave_if_unused(name);
    }

    fn leave_if_unused(&mut self, name: &str) {
        if let Some(attachment) = self.ops.attaching.leave(name) {
            self.report(Report::GiveBack(name.to_owned(), attachment));
        }
    }

    /// Closes the connections of attachments that have ended.
    pub(super) fn close_ended(&mut self) {
        if !std::mem::take(&mut self.ops.attaching.look_for_ended) {
            return;
        }
        let node = &self.node;
        let is_over = |(_, volume): &(&String, &Volume)| match volume.state {
            State::Held(attachment) => node.is_ended(volume.id, attachment),
            State::Wanted | State::Leaving => false,
        };
        let over: Vec<String> =
            self.ops.attaching.volumes.iter().filter(is_over).map(|(name, _)| name.clone()).collect();
        for name in over {
            let Some(volume) = self.ops.attaching.volumes.remove(&name) else { continue };
            if volume.users.is_empty() {
                continue;
            }
            let text = format!(
                "volume {name} is not attached here any more: its {} connections are closed",
                volume.users.len()
            );
            self.report(Report::Warn(text));
            for conn in volume.users {
                if let Some(Conn::Nbd(_)) = self.reactor.stream(conn) {
                    self.reactor.close(conn, Close::AfterDrain);
                }
            }
        }
    }

    /// Closes the connections to volumes and snapshots that are gone: whatever comes to have their name is another's.
    pub(super) fn close_deleted(&mut self) {
        if !std::mem::take(&mut self.ops.attaching.look_for_deleted) {
            return;
        }
        let known = self.node.gateway().volumes();
        let is_gone = |name: &str, id: VolumeId| known.get(name).is_none_or(|volume| volume.id != id);
        let opened = self.ops.opened.iter().filter(|(_, view)| is_gone(&view.name, view.id));
        let opened: Vec<ConnId> = opened.map(|(conn, _)| *conn).collect();
        let volumes = &mut self.ops.attaching.volumes;
        let deleted = volumes.iter().filter(|(name, volume)| is_gone(name, volume.id)).map(|(name, _)| name.clone());
        let deleted: Vec<String> = deleted.collect();
        let users = deleted.iter().filter_map(|name| volumes.remove(name)).flat_map(|volume| volume.users);
        let users: Vec<ConnId> = users.collect();
        for conn in opened {
            self.reactor.close(conn, Close::AfterDrain);
        }
        // Those that have not opened it yet hear that it is not there, or wait for what has its name now.
        let waiting = users.into_iter().filter(|conn| !self.ops.opened.contains_key(conn));
        waiting.collect::<Vec<_>>().into_iter().for_each(|conn| self.pump_nbd(conn));
    }
}
