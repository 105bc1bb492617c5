//! The client's requests: made through the node that a volume is attached to, and what is done when that node dies.

use super::model::{Change, Image, Kind, Sectors};
use crate::Invariant;
use crate::contents::{SECTOR_SIZE, decode, encode};
use crate::events::Life;
use crate::records::CLASS;
use crate::world::World;
use azekura_base::{Generation, IoStatus, NodeId, PgId, VolumeId};
use azekura_gateway::{Op, Outcome, Piece};
use azekura_model::transitions::attachments::{AttachRequest, Attached, attach, confirm_fenced, detach, give_back};
use azekura_model::{AttachmentsRecord, MetaError, Records};
use azekura_node::Attachments;
use std::collections::BTreeSet;
use std::time::Duration;

/// Tokens of requests begin here, those of the relay and of other clients' operations below.
pub(crate) const TOKENS: u64 = 1 << 41;
/// Tokens of fences begin here, those of cuts and of other attachments' fences below.
const FENCES: u64 = 1 << 48;
/// How long groups may take to confirm that attachments have ended.
const FENCE_PATIENCE: Duration = Duration::from_secs(10);
/// What a device has refused to read is asked for again after this time.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// A volume, and how the client has it.
pub(super) struct Volume {
    pub(super) id: VolumeId,
    pub(super) image: Image,
    /// The process that it is attached to, and the attachment's name.
    held: Option<(Life, Generation)>,
    /// The client has turned its back on its attachment without giving it back.
    abandoned: bool,
    /// The revision that a gateway has to know before it may be used.
    pub(super) since: u64,
}

impl Volume {
    pub(super) fn new(id: VolumeId, image: Image, since: u64) -> Volume {
        Volume { id, image, held: None, abandoned: false, since }
    }
}

/// How a request has ended.
#[derive(Debug)]
enum End {
    Answered(Outcome),
    /// The gateway is gone, and with it the answer.
    Lost,
}

/// What is under way.
#[derive(Default)]
pub(super) struct Requests {
    names: u64,
    /// The request, its process, and its end.
    request: Option<(u64, Life, Option<End>)>,
    /// Requests that the client has turned its back on.
    abandoned: BTreeSet<u64>,
    /// The fence, and its end.
    fence: Option<(u64, Option<bool>)>,
}

impl Requests {
    fn has_ended(&self) -> bool {
        self.request.as_ref().is_none_or(|(.., end)| end.is_some())
    }
}

impl World {
    /// A request is answered.
    pub(crate) fn fsx_answered(&mut self, token: u64, outcome: Outcome) {
        let requests = &mut self.fsx.requests;
        match &mut requests.request {
            Some((name, _, end)) if *name == token => *end = Some(End::Answered(outcome)),
            _ => {
                if !requests.abandoned.remove(&token) {
                    self.violate(Invariant::Protocol, format!("request {token} is answered twice"));
                }
            }
        }
    }

    /// The gateway of a life is gone.
    pub(crate) fn fsx_loses(&mut self, life: Life) {
        if let Some((_, at, end @ None)) = &mut self.fsx.requests.request
            && *at == life
        {
            *end = Some(End::Lost);
        }
        self.fsx.volumes.values_mut().filter(|volume| volume.held.is_some_and(|(at, _)| at == life)).for_each(
            |volume| {
                volume.held = None;
                volume.abandoned = true;
            },
        );
    }

    /// A fence has come to its end. False when that is not the client's.
    pub(crate) fn fsx_fenced(&mut self, token: u64, result: &Result<(), Vec<PgId>>) -> bool {
        if let Some((name, end)) = &mut self.fsx.requests.fence
            && *name == token
        {
            *end = Some(result.is_ok());
        }
        token >= FENCES
    }

    /// Gives a volume back: nobody has it then.
    pub(super) fn fsx_give_back(&mut self, name: &str) {
        let Some(volume) = self.fsx.volumes.get_mut(name) else { return };
        let Some((life, attachment)) = volume.held.take() else { return };
        self.fsx_say(|| format!("gives {name} back"));
        self.fsx_change_attachments(|records| give_back(records, name, life.node, attachment));
    }

    /// Changes who has a volume; gives the record of its attachments, and the revision.
    fn fsx_change_attachments(
        &mut self,
        transition: impl FnOnce(&Records<'_>) -> azekura_model::Outcome<Attached>,
    ) -> Option<(AttachmentsRecord, u64)> {
        match self.configuration.run(transition) {
            Ok(((_, attachments), revision)) => {
                self.inform_all();
                Some((attachments, revision))
            }
            Err(error) => {
                self.violate(Invariant::Protocol, format!("the attachments can't be changed: {error}"));
                None
            }
        }
    }

    /// The process that a volume is attached to; it is attached, at this node or at any, if it is not.
    pub(super) fn fsx_attach(&mut self, name: &str, node: Option<NodeId>) -> Option<(Life, Generation)> {
        loop {
            let held = self.fsx.volumes.get(name)?.held;
            match held {
                Some((life, generation)) if node.is_none_or(|node| node == life.node) => {
                    let since = self.fsx.volumes.get(name)?.since;
                    // Whoever opens a volume is served when its node knows what it is.
                    let knows =
                        |world: &World| world.life_of(life.node) != Some(life) || world.fsx_is_ready(life, name, since);
                    if !self.fsx_wait("a gateway knows a volume", knows) {
                        return None;
                    }
                    if self.life_of(life.node) == Some(life) {
                        return Some((life, generation));
                    }
                }
                Some(_) => self.fsx_give_back(name),
                None => self.fsx_try_attach(name, node)?,
            }
        }
    }

    /// A process knows a volume, or a snapshot, as of a revision, and takes requests.
    fn fsx_is_ready(&self, life: Life, name: &str, since: u64) -> bool {
        let node = self.machines.get(&life.node).and_then(|machine| machine.node.as_ref());
        self.life_of(life.node) == Some(life)
            && self.stalled(life).is_none()
            && self.configuration.known_by(life) >= since
            && node.is_some_and(|node| node.gateway().volumes().contains_key(name) && node.has_room(name))
    }

    fn fsx_try_attach(&mut self, name: &str, node: Option<NodeId>) -> Option<()> {
        let wanted = move |life: &Life| node.is_none_or(|node| node == life.node);
        if !self.fsx_wait("a node can attach a volume", |world| world.reaching().iter().any(wanted)) {
            return None;
        }
        let reaching: Vec<Life> = self.reaching().into_iter().filter(wanted).collect();
        let life = *self.fsx.random.pick(&reaching);
        let Volume { id, abandoned, .. } = *self.fsx.volumes.get(name)?;
        if abandoned {
            // Whatever of it is still on its way must not come later.
            self.fsx_change_attachments(|records| detach(records, name, None))?;
        }
        let Life { node, incarnation } = life;
        let wish = AttachRequest { node, incarnation: Some(incarnation), shared: Some(false), force: true };
        let refusal = |what| MetaError::CutEnded { volume: format!("{name}: {what:?}") };
        let attached = |records: &Records<'_>| attach(records, name, &wish, &BTreeSet::new(), "", refusal);
        let (mut record, mut revision) = self.fsx_change_attachments(attached)?;
        self.fsx.volumes.get_mut(name)?.abandoned = false;
        let generation = record.of(node)?.generation;
        self.fsx_say(|| format!("attaches {name} to {life:?} as {generation:?}, fence due: {}", record.fence_due));
        if record.fence_due {
            if !self.fsx_fence(life, id, &record)? {
                return Some(()); // Again, perhaps elsewhere.
            }
            let fenced = record.generation;
            (record, revision) = self.fsx_change_attachments(|records| confirm_fenced(records, name, fenced))?;
        }
        let lives = self.life_of(life.node) == Some(life);
        let volume = self.fsx.volumes.get_mut(name)?;
        if !lives {
            volume.abandoned = true;
        } else if !record.fence_due {
            volume.held = Some((life, generation));
            volume.since = volume.since.max(revision);
        }
        Some(())
    }

    /// Waits until all groups keep out what has ended. False when they have not confirmed it.
    fn fsx_fence(&mut self, life: Life, id: VolumeId, record: &AttachmentsRecord) -> Option<bool> {
        self.fsx.requests.names += 1;
        let token = FENCES + self.fsx.requests.names;
        self.fsx.requests.fence = Some((token, None));
        let groups: Vec<PgId> = self.configuration.groups_of(CLASS);
        let attachments = Attachments { generation: record.generation, standing: record.standing() };
        self.tell(life, |node| node.fence(token, id, attachments, groups, FENCE_PATIENCE));
        let over = |world: &World| {
            world.life_of(life.node) != Some(life) || world.fsx.requests.fence.is_none_or(|(_, end)| end.is_some())
        };
        if !self.fsx_wait("a fence ends", over) {
            return None;
        }
        let confirmed = self.fsx.requests.fence.take().is_some_and(|(_, end)| end == Some(true));
        if confirmed {
            self.report.fences += 1;
        } else {
            self.report.fences_failed += 1;
        }
        Some(confirmed)
    }

    /// Makes a request and waits for its end; `patience`: not for longer.
    fn fsx_request(
        &mut self,
        life: Life,
        name: &str,
        attachment: Generation,
        op: Op,
        patience: Option<Duration>,
    ) -> Option<End> {
        self.fsx.requests.names += 1;
        let token = TOKENS + self.fsx.requests.names;
        self.fsx.requests.request = Some((token, life, None));
        self.tell(life, |node| node.submit(token, name, attachment, op));
        match patience {
            None => {
                if !self.fsx_wait("a request ends", |world| world.fsx.requests.has_ended()) {
                    return None;
                }
            }
            Some(patience) => {
                let limit = self.now + patience;
                self.run_until(limit, |world| world.fsx.requests.has_ended());
            }
        }
        let (_, _, end) = self.fsx.requests.request.take()?;
        if end.is_none() {
            self.fsx.requests.abandoned.insert(token);
        }
        Some(end.unwrap_or(End::Lost))
    }

    /// Changes a volume; `patience`: turns its back on it if that takes longer. Afterwards the model knows what came of
    /// it. True when it was done.
    pub(super) fn fsx_change(&mut self, name: &str, change: Change, patience: Option<Duration>) -> Option<bool> {
        let (life, attachment) = self.fsx_attach(name, None)?;
        let (offset, len) = (change.first * SECTOR_SIZE as u64, change.count * SECTOR_SIZE as u64);
        let op = match change.kind {
            Kind::Write => Op::Write { offset, bytes: encode(change.value, change.first, change.count) },
            Kind::Zero => Op::Zero { offset, len },
            Kind::Trim => Op::Trim { offset, len },
        };
        let Change { kind, first, count, .. } = change;
        let asked = self.now;
        self.fsx_say(|| format!("{kind:?} {first}+{count} of {name} through {:?}", life.node));
        // From here on, a cut may hold it.
        let place = self.fsx.cutting.as_mut().map(|cutting| cutting.note(name, change.new_sectors()));
        let end = self.fsx_request(life, name, attachment, op, patience)?;
        self.fsx_say(|| format!("{end:?}"));
        match end {
            End::Answered(Outcome::Done) => {
                self.fsx.volumes.get_mut(name)?.image.apply(&change);
                return Some(true);
            }
            End::Answered(Outcome::Failed(IoStatus::NoSpace)) => self.report.failed += 1,
            End::Answered(Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => self.report.failed += 1,
            End::Answered(outcome) => {
                let what = format!("operation {}: {kind:?} ended with {outcome:?}", self.fsx.steps);
                self.violate(Invariant::Liveness, what);
                return None;
            }
            End::Lost => {
                self.report.unknown += 1;
                let volume = self.fsx.volumes.get_mut(name)?;
                volume.held = None;
                volume.abandoned = true;
            }
        }
        let seen = self.fsx_fetch(name, first, count)?;
        let settled = self.fsx.volumes.get_mut(name)?.image.settle(&change, &seen);
        match settled {
            Ok(changed) => {
                self.fsx_say(|| format!("{} sectors of it have changed", changed.len()));
                if let (Some(place), Some(cutting)) = (place, self.fsx.cutting.as_mut()) {
                    cutting.correct(place, changed);
                }
                Some(false)
            }
            Err(what) => {
                let what = format!("operation {}, whose end was not known: {name}: {what}", self.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// Reads sectors of a volume or of a snapshot, as often as it takes.
    pub(super) fn fsx_fetch(&mut self, name: &str, first: u64, count: u64) -> Option<Sectors> {
        loop {
            let (life, attachment) = match self.fsx.snapshots.get(name) {
                None => self.fsx_attach(name, None)?,
                Some(kept) => {
                    let since = kept.since;
                    (self.fsx_reader(name, since)?, Generation(0))
                }
            };
            let op = Op::Read { offset: first * SECTOR_SIZE as u64, len: count * SECTOR_SIZE as u64 };
            let asked = self.now;
            match self.fsx_request(life, name, attachment, op, None)? {
                End::Answered(Outcome::Read(pieces)) => return self.fsx_decode(name, first, count, &pieces),
                End::Answered(Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => {
                    self.report.failed += 1;
                    self.run_until(self.now + READ_AGAIN, |_| false);
                }
                End::Answered(outcome) => {
                    let step = self.fsx.steps;
                    let what = format!("operation {step}: a read of {first}+{count} of {name} ended with {outcome:?}");
                    self.violate(Invariant::Liveness, what);
                    return None;
                }
                End::Lost => self.report.unknown += 1,
            }
        }
    }

    /// A process that can read a snapshot.
    fn fsx_reader(&mut self, name: &str, since: u64) -> Option<Life> {
        let ready = |world: &World| {
            let nodes = world.machines.keys().filter(|node| world.fsx.reader.is_none_or(|only| only == **node));
            let lives = nodes.filter_map(|node| world.life_of(*node));
            lives.filter(|life| world.fsx_is_ready(*life, name, since)).collect::<Vec<Life>>()
        };
        if !self.fsx_wait("a node can read a snapshot", |world| !ready(world).is_empty()) {
            return None;
        }
        let ready = ready(self);
        Some(*self.fsx.random.pick(&ready))
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
                let what = format!("operation {}: {name}: {what}", self.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// Reads sectors and compares them with the model.
    pub(super) fn fsx_read(&mut self, name: &str, first: u64, count: u64) -> Option<()> {
        let seen = self.fsx_fetch(name, first, count)?;
        let image = match self.fsx.snapshots.get(name) {
            Some(kept) => &kept.image,
            None => &self.fsx.volumes.get(name)?.image,
        };
        match image.difference(first..first + count, &seen) {
            None => Some(()),
            Some(what) => {
                let what = format!("operation {}: a read of {first}+{count} of {name}: {what}", self.fsx.steps);
                self.violate(Invariant::Model, what);
                None
            }
        }
    }

    /// A request without a place.
    pub(super) fn fsx_flush(&mut self, name: &str) -> Option<()> {
        let (life, attachment) = self.fsx_attach(name, None)?;
        self.fsx_say(|| format!("flush of {name}"));
        self.fsx_request(life, name, attachment, Op::Flush, None).map(|_| ())
    }
}
