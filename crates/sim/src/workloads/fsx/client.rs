//! The client's requests: made through a connection to a node, and what is done when that connection ends.

use super::model::{Change, Kind, Sectors};
use super::state::{End, Volume};
use crate::cluster::front::{Line, Who};
use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::workloads::contents::{SECTOR_SIZE, decode, encode};
use crate::world::World;
use azekura_base::{IoStatus, NodeId, VolumeId};
use azekura_frontend::Request;
use azekura_gateway::{Outcome, Piece};
use std::time::Duration;

/// Tokens of requests begin here, those of the relay and of other clients' operations below.
pub(crate) const TOKENS: u64 = 1 << 41;
/// What a device has refused to read is asked for again after this time.
const READ_AGAIN: Duration = Duration::from_millis(100);
/// How long a client waits that asks a node for a snapshot of which that node may not know.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// Of a hundred connections to snapshots, so many are to nodes that may not know them.
const UNKNOWING_PERCENT: u64 = 20;

impl World {
    /// A request is answered.
    pub(crate) fn fsx_answered(&mut self, token: u64, outcome: Outcome) {
        self.scene.fsx.requests.end(token, End::Answered(outcome));
    }

    /// The connection of a request has ended.
    pub(crate) fn fsx_unanswered(&mut self, token: u64) {
        self.scene.fsx.requests.end(token, End::Lost);
    }

    /// The client leaves a volume.
    pub(super) fn fsx_give_back(&mut self, name: &str) {
        let Some(line) = self.scene.fsx.volumes.get_mut(name).and_then(|volume| volume.held.take()) else { return };
        self.fsx_say(|| format!("leaves {name}"));
        if self.connections().life(line).is_some() {
            self.hang_up(line);
        } else if let Some(volume) = self.scene.fsx.volumes.get_mut(name) {
            volume.abandoned = true;
        }
    }

    /// The client has turned its back on a connection, or that on the client.
    fn fsx_abandon(&mut self, name: &str) {
        let Some(volume) = self.scene.fsx.volumes.get_mut(name) else { return };
        volume.abandoned = true;
        let line = volume.held.take();
        line.into_iter().for_each(|line| self.hang_up(line));
    }

    /// Nobody has a volume any more, and nothing of whoever had it is under way.
    pub(super) fn fsx_free(&mut self, name: &str) -> Option<()> {
        self.fsx_give_back(name);
        loop {
            let free = |world: &World| {
                let now = world.attachments(name);
                now.is_none_or(|now| now.attachments.is_empty() && !now.fence_due)
            };
            let limit = self.now + LOOK_PATIENCE;
            if !self.scene.fsx.volumes.get(name)?.abandoned && self.run_until(limit, free) {
                return Some(());
            }
            self.fsx_end_attachments(name)?;
        }
    }

    /// An operator ends a volume's attachments by force, and waits until groups keep out what has ended, or have not
    /// confirmed it.
    fn fsx_end_attachments(&mut self, name: &str) -> Option<()> {
        if !self.fsx_wait("a node reaches the configuration", |world| !world.reaching().is_empty()) {
            return None;
        }
        let reaching = self.reaching();
        let from = *self.scene.fsx.random.pick(&reaching);
        self.fsx_say(|| format!("{from:?} ends the attachments of {name}"));
        self.end_attachments(from, name, None);
        let revision = self.configuration.view().revision;
        if !self.fsx_wait("a fence ends", |world| world.holders().idle()) {
            return None;
        }
        let volume = self.scene.fsx.volumes.get_mut(name)?;
        volume.abandoned = false;
        volume.since = volume.since.max(revision);
        Some(())
    }

    /// The client's connection to a volume, at this node or at any, which takes requests.
    pub(super) fn fsx_attach(&mut self, name: &str, node: Option<NodeId>) -> Option<(Life, Line)> {
        loop {
            let Volume { id, held, abandoned, since, .. } = *self.scene.fsx.volumes.get(name)?;
            let Some(line) = held else {
                if abandoned {
                    self.fsx_end_attachments(name)?;
                }
                self.fsx_connect(name, id, node)?;
                continue;
            };
            let Some(life) = self.connections().life(line) else {
                self.fsx_abandon(name);
                continue;
            };
            if node.is_some_and(|node| node != life.node) {
                self.fsx_give_back(name);
                continue;
            }
            // Whoever opens a volume is served when its node knows what it is.
            let knows = |world: &World| {
                let opened = world.connections().opened(line).is_some() && world.fsx_is_ready(life, name, since);
                opened || world.connections().life(line).is_none()
            };
            if !self.fsx_wait("a gateway knows a volume", knows) {
                return None;
            }
            if self.connections().life(line).is_some() {
                return Some((life, line));
            }
        }
    }

    /// Connects to a node.
    fn fsx_connect(&mut self, name: &str, id: VolumeId, node: Option<NodeId>) -> Option<()> {
        let wanted = move |life: &Life| node.is_none_or(|node| node == life.node);
        if !self.fsx_wait("a node can attach a volume", |world| world.reaching().iter().any(wanted)) {
            return None;
        }
        let reaching: Vec<Life> = self.reaching().into_iter().filter(wanted).collect();
        let life = *self.scene.fsx.random.pick(&reaching);
        let line = self.line_to(life, Who("fsx", id.0), name);
        self.fsx_say(|| format!("opens {name} at {life:?}"));
        self.scene.fsx.volumes.get_mut(name)?.held = line;
        Some(())
    }

    /// A process knows a volume, or a snapshot, as of a revision, and takes requests.
    fn fsx_is_ready(&self, life: Life, name: &str, since: u64) -> bool {
        let node = self.node_at(life.endpoint());
        self.is_alive(life)
            && self.stalled(life).is_none()
            && self.configuration.known_by(life) >= since
            && node.is_some_and(|node| node.gateway().volumes().contains_key(name) && node.has_room(name))
    }

    /// Makes a request and waits for its end; `patience`: not for longer.
    fn fsx_request(&mut self, line: Line, request: Request, patience: Option<Duration>) -> Option<End> {
        self.scene.fsx.requests.names += 1;
        let token = TOKENS + self.scene.fsx.requests.names;
        self.scene.fsx.requests.request = Some((token, None));
        self.submit(line, token, request);
        match patience {
            None => {
                if !self.fsx_wait("a request ends", |world| world.scene.fsx.requests.has_ended()) {
                    return None;
                }
            }
            Some(patience) => {
                let limit = self.now + patience;
                self.run_until(limit, |world| world.scene.fsx.requests.has_ended());
            }
        }
        let (_, end) = self.scene.fsx.requests.request.take()?;
        Some(end.unwrap_or(End::Lost))
    }

    /// A request was refused because its attachment has ended, as an operator wanted.
    fn fsx_was_fenced(&self, opened: Option<(VolumeId, azekura_base::Generation)>, outcome: &Outcome) -> bool {
        let ended = || opened.is_some_and(|(id, attachment)| self.holders().has_ended(id, attachment));
        *outcome == Outcome::Failed(IoStatus::Fenced) && ended()
    }

    /// Changes a volume; `patience`: turns its back on it if that takes longer. Afterwards the model knows what came of
    /// it. True when it was done.
    pub(super) fn fsx_change(&mut self, name: &str, change: Change, patience: Option<Duration>) -> Option<bool> {
        let (life, line) = self.fsx_attach(name, None)?;
        let (offset, len) = (change.first * SECTOR_SIZE as u64, change.count * SECTOR_SIZE as u64);
        let request = match change.kind {
            Kind::Write => Request::Write { offset, bytes: encode(change.value, change.first, change.count) },
            Kind::Zero => Request::Zero { offset, len },
            Kind::Trim => Request::Trim { offset, len },
        };
        let Change { kind, first, count, .. } = change;
        let asked = self.now;
        self.fsx_say(|| format!("{kind:?} {first}+{count} of {name} through {:?}", life.endpoint()));
        // From here on, a cut may hold it.
        let place = self.scene.fsx.cutting.as_mut().map(|cutting| cutting.note(name, change.new_sectors()));
        let opened = self.connections().opened(line);
        let end = self.fsx_request(line, request, patience)?;
        self.fsx_say(|| format!("{end:?}"));
        match end {
            End::Answered(Outcome::Done) => {
                self.scene.fsx.volumes.get_mut(name)?.image.apply(&change);
                return Some(true);
            }
            End::Answered(Outcome::Failed(IoStatus::NoSpace)) => self.report.failed += 1,
            End::Answered(Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => self.report.failed += 1,
            End::Answered(outcome) if self.fsx_was_fenced(opened, &outcome) => {
                self.report.fenced += 1;
                self.fsx_abandon(name);
            }
            End::Answered(outcome) => {
                let what = format!("operation {}: {kind:?} ended with {outcome:?}", self.scene.fsx.steps);
                self.violate(Invariant::Liveness, what);
                return None;
            }
            End::Lost => {
                self.report.unknown += 1;
                self.fsx_abandon(name);
            }
        }
        let seen = self.fsx_fetch(name, first, count)?;
        let settled = self.scene.fsx.volumes.get_mut(name)?.image.settle(&change, &seen);
        match settled {
            Ok(changed) => {
                self.fsx_say(|| format!("{} sectors of it have changed", changed.len()));
                if let (Some(place), Some(cutting)) = (place, self.scene.fsx.cutting.as_mut()) {
                    cutting.correct(place, changed);
                }
                Some(false)
            }
            Err(what) => {
                let what = format!("operation {}, whose end was not known: {name}: {what}", self.scene.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// Reads sectors of a volume or of a snapshot, as often as it takes.
    pub(super) fn fsx_fetch(&mut self, name: &str, first: u64, count: u64) -> Option<Sectors> {
        loop {
            let line = match self.scene.fsx.snapshots.get(name) {
                None => self.fsx_attach(name, None)?.1,
                Some(kept) => {
                    let since = kept.since;
                    self.fsx_reader(name, since)?
                }
            };
            let opened = self.connections().opened(line);
            let request = Request::Read { offset: first * SECTOR_SIZE as u64, len: count * SECTOR_SIZE as u64 };
            let asked = self.now;
            match self.fsx_request(line, request, None)? {
                End::Answered(Outcome::Read(pieces)) => return self.fsx_decode(name, first, count, &pieces),
                End::Answered(Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => {
                    self.report.failed += 1;
                    self.run_until(self.now + READ_AGAIN, |_| false);
                }
                End::Answered(outcome) if self.fsx_was_fenced(opened, &outcome) => {
                    self.report.fenced += 1;
                    self.fsx_abandon(name);
                }
                End::Answered(outcome) => {
                    let step = self.scene.fsx.steps;
                    let what = format!("operation {step}: a read of {first}+{count} of {name} ended with {outcome:?}");
                    self.violate(Invariant::Liveness, what);
                    return None;
                }
                End::Lost => self.report.unknown += 1,
            }
        }
    }

    /// A connection to a snapshot, which takes requests.
    fn fsx_reader(&mut self, name: &str, since: u64) -> Option<Line> {
        let lives = |world: &World| {
            let mut lives = world.lives();
            lives.retain(|life| world.scene.fsx.reader.is_none_or(|only| only == life.node));
            lives
        };
        let ready = |world: &World| {
            let lives = lives(world).into_iter();
            lives.filter(|life| world.fsx_is_ready(*life, name, since)).collect::<Vec<Life>>()
        };
        loop {
            let awake: Vec<Life> = lives(self).into_iter().filter(|life| self.stalled(*life).is_none()).collect();
            if !awake.is_empty() && self.scene.fsx.random.chance(UNKNOWING_PERCENT) {
                // Its front end finds out.
                let life = *self.scene.fsx.random.pick(&awake);
                let line = self.line_to(life, Who("reader", 0), name);
                let limit = self.now + LOOK_PATIENCE;
                let opened = |world: &World| line.is_none_or(|line| world.connections().opened(line).is_some());
                self.run_until(limit, opened);
            }
            if !self.fsx_wait("a node can read a snapshot", |world| !ready(world).is_empty()) {
                return None;
            }
            let ready = ready(self);
            let life = *self.scene.fsx.random.pick(&ready);
            let line = self.line_to(life, Who("reader", 0), name);
            if let Some(line) = line.filter(|line| self.connections().opened(*line).is_some()) {
                return Some(line);
            }
            self.run_until(self.now + READ_AGAIN, |_| false);
        }
    }

    fn fsx_decode(&mut self, name: &str, first: u64, count: u64, pieces: &[Piece]) -> Option<Sectors> {
        let mut sectors = Sectors::new();
        let mut at = 0;
        let mut wrong = None;
        // Pieces begin and end at sectors' borders, as the request does.
        for piece in pieces {
            match piece {
                Piece::Zero(bytes) => at += *bytes,
                Piece::Data(bytes) => {
                    for contents in bytes.chunks(SECTOR_SIZE) {
                        let sector = first + (at / SECTOR_SIZE) as u64;
                        match decode(contents, sector) {
                            Ok(0) => {}
                            Ok(value) => drop(sectors.insert(sector, value)),
                            Err(what) => drop(wrong.get_or_insert(what)),
                        }
                        at += contents.len();
                    }
                }
            }
        }
        if at as u64 != count * SECTOR_SIZE as u64 {
            wrong.get_or_insert(format!("a read of {count} sectors returned {at} bytes"));
        }
        match wrong {
            None => Some(sectors),
            Some(what) => {
                let what = format!("operation {}: {name}: {what}", self.scene.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// Reads sectors and compares them with the model.
    pub(super) fn fsx_read(&mut self, name: &str, first: u64, count: u64) -> Option<()> {
        let seen = self.fsx_fetch(name, first, count)?;
        let image = match self.scene.fsx.snapshots.get(name) {
            Some(kept) => &kept.image,
            None => &self.scene.fsx.volumes.get(name)?.image,
        };
        match image.difference(first..first + count, &seen) {
            None => Some(()),
            Some(what) => {
                let what = format!("operation {}: a read of {first}+{count} of {name}: {what}", self.scene.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// A request without a place.
    pub(super) fn fsx_flush(&mut self, name: &str) -> Option<()> {
        let (_, line) = self.fsx_attach(name, None)?;
        self.fsx_say(|| format!("flush of {name}"));
        self.fsx_request(line, Request::Flush, None).map(|_| ())
    }
}
