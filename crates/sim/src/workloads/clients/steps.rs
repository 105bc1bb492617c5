//! What clients do in the world.

use super::{Clients, GivenUp, Kind, PendingOp};
use crate::checks::history::{NEVER, Seen, Written};
use crate::cluster::attachments::INSPECTOR;
use crate::cluster::front::Who;
use crate::cluster::records::{VOLUME, VOLUME_ID};
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::kernel::time::Stamp;
use crate::plan::{CLIENT_DEPTH_MAX, Mode, OPERATION_MAX, WRITE_BLOCKS_MAX};
use crate::report::Invariant;
use crate::workloads::contents::{BLOCK_SECTORS, SECTOR_SIZE, ZERO, decode, encode};
use crate::workloads::fsx;
use crate::workloads::lost;
use crate::workloads::snapshots::relay;
use crate::world::World;
use azekura_base::{Endpoint, Generation, IoLimits, IoStatus, LIMIT_BYTES_MIN, LIMIT_IOPS_MIN, NodeId};
use azekura_frontend::Request;
use azekura_gateway::{Op, Outcome, Piece, RETRY_INTERVAL_MAX};
use azekura_node::ReadLimits;
use std::ops::Range;
use std::time::Duration;

/// A process notices within this time that a connection's client has gone on by another path.
const ABANDONED_FOR: Duration = Duration::from_secs(4);
/// What a host sends before it goes on by another path may come so late.
const LATE_MS_MAX: u64 = 3000;
/// Nothing comes from a node that a host turns away from for this long at most.
const PATH_CUT_MS_MAX: u64 = 700;

impl World {
    /// A client may start an operation.
    pub(crate) fn client_turn(&mut self, client: usize) {
        if !self.works() {
            return;
        }
        self.may_limit();
        self.notice_abandoned(ABANDONED_FOR);
        let again = self.now + self.scene.clients.random.spread_millis(1, self.plan.pause_ms_max);
        self.cue_at(again, Cue::Client(client));
        let depth = self.scene.clients.running.values().filter(|op| op.client == Some(client)).count();
        if depth >= CLIENT_DEPTH_MAX || self.scene.clients.all_issued() || self.is_lull() {
            return;
        }
        let at = self.scene.clients.at[client];
        let Some(life) = self.ready_life(at) else {
            let all = self.places_for_clients();
            self.scene.clients.at[client] = *self.scene.clients.random.pick(&all);
            return;
        };
        let Some(line) = self.line_to(life, Who("client", client as u64), VOLUME) else { return };
        let Some((_, attachment)) = self.connections().opened(line) else { return };
        let leaves = self.client_leaves();
        let changes_path = leaves && self.host_of(Some(client)).is_some();
        if leaves && !changes_path {
            return self.hang_up(line);
        }
        let Clients { layout, random, .. } = &mut self.scene.clients;
        let drawn = layout.draw(random);
        let (kind, first, count) = self.perhaps_compared(drawn);
        let (offset, len) = (first * SECTOR_SIZE as u64, count * SECTOR_SIZE as u64);
        let id = self.note_operation(life, attachment, Some(client), kind, first, count);
        if let Some(host) = self.reservers().host_of(client as u64) {
            self.scene.clients.hosts.begins(id, host);
        }
        let request = match kind {
            Kind::Read => Request::Read { offset, len },
            Kind::Write => Request::Write { offset, bytes: encode(id, first, count) },
            Kind::Compare => {
                let expected = self.expected_by(id, first, count);
                Request::CompareAndWrite { offset, expected, bytes: encode(id, first, count) }
            }
            Kind::Zero => Request::Zero { offset, len },
            Kind::Trim => Request::Trim { offset, len },
        };
        if changes_path {
            // Not only the host's way to that node is cut: what it sends waits.
            let until = self.now + self.scene.clients.random.spread_millis(20, PATH_CUT_MS_MAX);
            let others: Vec<NodeId> = self.machines.keys().copied().filter(|node| *node != life.node).collect();
            others.into_iter().for_each(|to| self.cut(life.node, to, until));
        }
        let (comes_late, after) = {
            let random = &mut self.scene.clients.late_random;
            (random.chance(50), random.spread_millis(20, LATE_MS_MAX))
        };
        if changes_path && comes_late && self.is_session(line) {
            self.submit_late(line, id, request, after);
        } else {
            self.submit(line, id, request);
        }
        if changes_path {
            // Whatever is under way: the host does not wait for it, and goes on by another path, perhaps.
            let all = self.places_for_clients();
            self.scene.clients.at[client] = *self.scene.clients.random.pick(&all);
            self.abandon(line);
        }
    }

    /// Every hundredth operation finds the volume with other limits.
    fn may_limit(&mut self) {
        let Clients { issued, limits_at, limits_random, .. } = &mut self.scene.clients;
        if !self.plan.limits_change || *issued < *limits_at {
            return;
        }
        *limits_at = *issued + 100;
        let random = limits_random;
        let limits = random.chance(70).then(|| IoLimits {
            iops: Some(random.between(LIMIT_IOPS_MIN, 200)),
            bytes_per_second: random.chance(50).then_some(LIMIT_BYTES_MIN),
            burst_seconds: random.below(3) as u32,
        });
        self.limit_volume(VOLUME, limits.as_ref());
    }

    /// An operation begins. Gives its number.
    fn note_operation(
        &mut self,
        life: Life,
        attachment: Generation,
        client: Option<usize>,
        kind: Kind,
        first: u64,
        count: u64,
    ) -> u64 {
        self.note_known();
        self.scene.clients.issued += 1;
        let id = self.scene.clients.issued;
        if self.holders().on {
            self.scene.clients.attachments.insert(id, attachment);
        }
        let start = self.stamp();
        self.scene.clients.running.insert(
            id,
            PendingOp {
                kind,
                life,
                client,
                first,
                count,
                start,
                asked: self.now,
                attachment,
                snapshot: None,
                expected: Vec::new(),
            },
        );
        self.trace.step(self.now, id, || {
            let block = first / BLOCK_SECTORS;
            format!("{:?} operation {id}: {kind:?} {first}+{count} (block {block}) starts at {start}", life.endpoint())
        });
        id
    }

    /// Starts reads of everything that clients ever wrote, at a shard.
    pub(crate) fn read_everything(&mut self, at: Endpoint) {
        let Some(life) = self.ready_life(at) else {
            return self.violate(Invariant::Liveness, format!("{at:?} takes no requests"));
        };
        let regions: Vec<Range<u64>> = self.scene.clients.layout.all().cloned().collect();
        for region in regions {
            let step = WRITE_BLOCKS_MAX * BLOCK_SECTORS;
            for first in region.clone().step_by(step as usize) {
                let count = step.min(region.end - first);
                let id = self.note_operation(life, INSPECTOR, None, Kind::Read, first, count);
                let (offset, len) = (first * SECTOR_SIZE as u64, count * SECTOR_SIZE as u64);
                self.inspect(life, VOLUME, id, Op::Read { offset, len });
            }
        }
    }

    /// How long the reads under way may take where a device lets only so few in. Each read has two parts at most, and
    /// all of them go to one device at worst. Those for which there is no room come again together, half a second later
    /// at most, and each time only so few are let in.
    pub(crate) fn queueing_max(&self) -> Duration {
        let ReadLimits { reads_max, waiting_max, .. } = self.plan.reads;
        let parts = 2 * self.scene.clients.running.len();
        RETRY_INTERVAL_MAX * parts.div_ceil(reads_max + waiting_max) as u32
    }

    /// Starts reads of all snapshots, at a shard.
    pub(crate) fn read_snapshots(&mut self, at: Endpoint) {
        for name in self.scene.snapshots.kept() {
            let regions: Vec<Range<u64>> = self.scene.clients.layout.all().cloned().collect();
            for region in regions {
                let step = WRITE_BLOCKS_MAX * BLOCK_SECTORS;
                for first in region.clone().step_by(step as usize) {
                    self.read_snapshot(at, &name, first, step.min(region.end - first));
                }
            }
        }
    }

    /// Starts a read of a part of a snapshot that clients write in the volume.
    pub(crate) fn read_part_of_snapshot(&mut self, at: Endpoint, name: &str) {
        let Clients { layout, random, .. } = &mut self.scene.clients;
        let (_, first, count) = layout.draw(random);
        self.read_snapshot(at, name, first, count);
    }

    fn read_snapshot(&mut self, at: Endpoint, name: &str, first: u64, count: u64) {
        let Some(life) = self.ready_life(at) else { return };
        let gateway = self.node_at(at).map(|node| node.gateway());
        if gateway.is_none_or(|gateway| !gateway.volumes().contains_key(name)) {
            return;
        }
        let Some(line) = self.line_to(life, Who("reader", 0), name) else { return };
        self.scene.clients.issued += 1;
        let (id, start, attachment) = (self.scene.clients.issued, self.stamp(), Generation(0));
        let snapshot = Some(name.to_owned());
        let (kind, client, asked) = (Kind::Read, None, self.now);
        let expected = Vec::new();
        let running = PendingOp { kind, life, client, first, count, start, asked, attachment, snapshot, expected };
        self.scene.clients.running.insert(id, running);
        self.trace.step(self.now, id, || format!("{at:?} operation {id}: Read {first}+{count} of {name}"));
        let (offset, len) = (first * SECTOR_SIZE as u64, count * SECTOR_SIZE as u64);
        self.submit(line, id, Request::Read { offset, len });
    }

    /// A gateway has answered.
    pub(crate) fn completed(&mut self, id: u64, outcome: Outcome) {
        match id {
            lost::TOKENS.. => return self.lost_answered(id, &outcome),
            fsx::client::TOKENS.. => return self.fsx_answered(id, outcome),
            relay::TOKENS.. => return self.relay_answered(id, outcome),
            _ => {}
        }
        let Some(op) = self.scene.clients.running.remove(&id) else {
            return self.violate(Invariant::Protocol, format!("operation {id} is answered twice"));
        };
        let waited = self.now.saturating_sub(op.asked);
        if self.scene.lost.on && self.works() && waited > lost::SERVED_WITHIN {
            let what = format!("operation {id} took {waited:?}, though its groups were within reach all the time");
            self.violate(Invariant::Liveness, what);
        }
        let end = self.stamp();
        self.trace.step(self.now, id ^ (end << 32), || {
            let what = match &outcome {
                Outcome::Read(_) => "read".to_string(),
                other => format!("{other:?}"),
            };
            format!("{:?} operation {id}: {what}, ends at {end}", op.life.endpoint())
        });
        let time = self.now - op.asked;
        let limit = OPERATION_MAX + self.slowness_borne(op.asked);
        if self.plan.mode == Mode::Hangs && time > limit && !self.waits_for_a_slow_copy(op.asked) {
            let what = format!("operation {id} took {time:?} although one device hung at most");
            self.violate(Invariant::Liveness, what);
        }
        match outcome {
            Outcome::Failed(IoStatus::Fenced) if self.may_be_fenced(&op) => {
                self.report.fenced += 1;
                self.record(id, &op, NEVER);
            }
            Outcome::Failed(IoStatus::ReadOnly) if self.reservers().on => self.was_barred(id, &op),
            Outcome::Failed(IoStatus::Miscompare(at)) if op.kind == Kind::Compare => self.differed(&op, at, end),
            // It was deleted meanwhile.
            Outcome::Failed(IoStatus::Gone) if op.snapshot.is_some() => self.report.failed += 1,
            Outcome::Failed(IoStatus::Io) if lost::timed_out(waited, self.plan.io_timeout) => {
                self.report.timed_out += 1;
                self.record(id, &op, NEVER);
                self.note_given_up(id, &op, end);
            }
            Outcome::Failed(status) => {
                self.report.failed += 1;
                let broken = match status {
                    IoStatus::NoSpace => None,
                    IoStatus::ReadOnly if self.plan.copies_min > 1 => None,
                    IoStatus::Io if self.plan.mode == Mode::Flips || self.may_fail(op.asked) => None,
                    IoStatus::Io => Some(Invariant::StoreKeeps),
                    _ => Some(Invariant::Liveness),
                };
                if let Some(invariant) = broken {
                    self.violate(invariant, format!("operation {id} failed: {status}"));
                }
                self.record(id, &op, NEVER);
            }
            Outcome::Read(pieces) => {
                self.report.done += 1;
                self.record_read(&op, &pieces, end);
            }
            Outcome::Done => {
                self.report.done += 1;
                self.check_host(id, op.start, op.attachment);
                self.overtake(&op, end);
                self.record(id, &op, end);
            }
            Outcome::Status(_) => {}
        }
    }

    /// A host may not write.
    fn was_barred(&mut self, id: u64, op: &PendingOp) {
        self.count("write barred");
        self.scene.clients.hosts.is_barred(id);
        self.record(id, op, NEVER);
    }

    /// Its attachment has ended, its node has left the cluster, or the configuration was restored: then there are no
    /// attachments.
    fn may_be_fenced(&self, op: &PendingOp) -> bool {
        self.holders().has_ended(VOLUME_ID, op.attachment)
            || self.has_left(op.life.node)
            || self.configuration.is_former(op.life)
    }

    /// A request is not answered any more: its connection has ended.
    pub(crate) fn not_completed(&mut self, token: u64) {
        match token {
            lost::TOKENS.. => self.lost_unanswered(token),
            fsx::client::TOKENS.. => self.fsx_unanswered(token),
            relay::TOKENS.. => self.relay_unanswered(token),
            _ => self.operation_unanswered(token),
        }
    }

    /// An operation is not answered any more: its connection has ended.
    pub(crate) fn operation_unanswered(&mut self, id: u64) {
        let Some(op) = self.scene.clients.running.remove(&id) else { return };
        match op.snapshot {
            // It was deleted meanwhile.
            Some(_) => self.report.failed += 1,
            None => self.report.unknown += 1,
        }
        self.trace.step(self.now, id, || format!("{:?} operation {id}: its connection has ended", op.life.endpoint()));
        let end = self.stamp();
        self.note_given_up(id, &op, end);
        self.record(id, &op, NEVER);
    }

    /// Nobody waits any more for a write that may still happen.
    fn note_given_up(&mut self, id: u64, op: &PendingOp, at: Stamp) {
        if matches!(op.kind, Kind::Write | Kind::Compare) {
            let (life, attachment, sectors) = (op.life, op.attachment, op.first..op.first + op.count);
            let (client, host) = (op.client, self.host_of(op.client));
            let known = (!self.connections().left().contains(&id)).then_some(at);
            self.scene.clients.given_up.push(GivenUp { id, life, attachment, client, host, sectors, at, known });
        }
    }

    /// Of which of the writes that were given up processes know that by now.
    fn note_known(&mut self) {
        if self.scene.clients.given_up.iter().all(|before| before.known.is_some()) {
            return;
        }
        let (left, at) = (self.connections().left(), self.stamp());
        let is_known = |before: &&mut GivenUp| before.known.is_none() && !left.contains(&before.id);
        self.scene.clients.given_up.iter_mut().filter(is_known).for_each(|before| before.known = Some(at));
    }

    /// The gateways of a life are gone: nobody looks at what they hold any more.
    pub(crate) fn inspections_end(&mut self, life: Life) {
        let lost: Vec<u64> =
            self.scene.clients.running.iter().filter(|(_, op)| op.life == life).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.operation_unanswered(id));
    }

    /// Everything that has not been answered when a run is over.
    pub(crate) fn record_unanswered(&mut self) {
        let running = std::mem::take(&mut self.scene.clients.running);
        running.into_iter().for_each(|(id, op)| self.record(id, &op, NEVER));
    }

    /// A write is acknowledged: what a gateway of the same process had given up before it was asked for comes before
    /// it, or never.
    fn overtake(&mut self, op: &PendingOp, end: Stamp) {
        let host = self.host_of(op.client);
        for before in self.scene.clients.given_up.iter().filter(|before| before.at < op.start) {
            // Another attachment's writes may be kept out while this one's come, unless both are the same host's: it
            // has gone on, perhaps by another path, and takes what it does now for the latest.
            let by_gateway = before.life.process() == op.life.process() && before.attachment == op.attachment;
            if !by_gateway && (host.is_none() || before.host != host) {
                continue;
            }
            // To the process a connection stands whose client has gone on by another one, and what it has asked for
            // there is no earlier than what others ask for. But a client that comes again ends its former session.
            let comes_again = self.holders().sessions && before.client == op.client;
            if by_gateway && before.known.is_none_or(|at| at > op.start) && !comes_again {
                continue;
            }
            let (first, last) = (op.first.max(before.sectors.start), (op.first + op.count).min(before.sectors.end));
            // The edges of a trim stay as they are.
            let (first, last) = match op.kind {
                Kind::Trim => (first.next_multiple_of(BLOCK_SECTORS), last / BLOCK_SECTORS * BLOCK_SECTORS),
                _ => (first, last),
            };
            let history = &mut self.scene.history;
            (first..last).for_each(|sector| history.ends_by(sector, before.id, end));
            if !by_gateway {
                (first..last).for_each(|sector| history.replaced(sector, before.id, end));
            }
        }
    }

    /// The host of a client, where it comes through several nodes.
    fn host_of(&self, client: Option<usize>) -> Option<u64> {
        self.holders().host_of(client? as u64).map(|(host, _)| host)
    }

    fn record(&mut self, id: u64, op: &PendingOp, end: Stamp) {
        let (first, last) = (op.first, op.first + op.count);
        let (value, sectors) = match op.kind {
            Kind::Read => return,
            Kind::Write | Kind::Compare => (id, first..last),
            Kind::Zero => (ZERO, first..last),
            Kind::Trim => (ZERO, first.next_multiple_of(BLOCK_SECTORS)..last / BLOCK_SECTORS * BLOCK_SECTORS),
        };
        self.record_compared(id, op, end);
        self.scene.history.wrote(sectors, Written { value, start: op.start, end });
    }

    fn record_read(&mut self, op: &PendingOp, pieces: &[Piece], end: Stamp) {
        let mut bytes = Vec::with_capacity(op.count as usize * SECTOR_SIZE);
        for piece in pieces {
            match piece {
                Piece::Data(data) => bytes.extend_from_slice(data),
                Piece::Zero(count) => bytes.resize(bytes.len() + count, 0),
            }
        }
        if bytes.len() as u64 != op.count * SECTOR_SIZE as u64 {
            let what = format!("a read of {} sectors returned {} bytes", op.count, bytes.len());
            return self.violate(Invariant::Protocol, what);
        }
        for (sector, contents) in (op.first..).zip(bytes.chunks_exact(SECTOR_SIZE)) {
            match decode(contents, sector) {
                Ok(value) if op.snapshot.is_some() => {
                    self.saw_snapshot(op.snapshot.as_deref().unwrap_or_default(), sector, value);
                }
                Ok(value) => {
                    self.scene.clients.latest.insert(sector, value);
                    self.scene.history.saw(sector, Seen { value, start: op.start, end });
                }
                Err(what) => {
                    let invariant =
                        if self.plan.mode == Mode::Flips { Invariant::NoDamagedData } else { Invariant::Linearizable };
                    return self.violate(invariant, what);
                }
            }
        }
    }
}
