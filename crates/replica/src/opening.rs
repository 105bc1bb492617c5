//! How a reign begins: every copy that is in sync says how far it is, what was prepared before is committed, and the epoch is
//! recorded everywhere.

use crate::action::Action;
use crate::flow::Backlog;
use crate::group::{Group, Role};
use crate::membership::readers_until;
use crate::quorum::AckRule;
use azekura_base::DeviceId;
use azekura_wire::{Message, Sync, SyncOk};

/// How far a primary's reign has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The configuration names this epoch. All in-sync copies say how far they are, and what this copy has prepared
    /// before is being committed on all of them.
    ///
    /// Some of it may have been acknowledged in an earlier epoch, whose commit points are forgotten: until all of it is
    /// committed again, neither reads may be answered nor leases given. And only then is the epoch recorded: a crash
    /// in between finds the prepared writes as they are. In-sync copies never contradict each other here: what they
    /// have prepared are beginnings of one order, because no epoch opens before every in-sync copy has recorded it.
    Gathering,
    /// Nothing is prepared; the epoch's record is on its way to every log.
    Recording,
    /// Reads and writes are served.
    Open,
}

impl Group {
    /// The configuration names this process as primary: what was prepared before is to be committed in the new epoch.
    pub(crate) fn begin_gathering(&mut self) {
        let now = self.now;
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_tail() {
            let keep = self.tail.committed();
            drop(self.tail.truncate(keep));
            self.durable = keep;
        }
        if let Role::Primary(primary) = &mut self.role {
            for (device, peer) in &mut primary.peers {
                // What it was told in the epoch before may still let it answer readers.
                if self.config.has_readers() {
                    peer.reads_until = readers_until(now);
                }
                if let Some(before) = primary.predecessor.as_ref().filter(|before| before.device == *device) {
                    peer.reads_until = peer.reads_until.max(before.until);
                }
            }
            if primary.after_readers && self.config.has_readers() {
                primary.blocked_until = readers_until(now);
            }
        }
        self.greet_all();
        self.gather();
        self.try_commit();
    }

    /// Records the epoch on every copy once the tail is committed everywhere.
    pub(crate) fn try_record(&mut self) {
        let keep = self.tail.committed();
        let Role::Primary(primary) = &mut self.role else { return };
        let all_there = primary.counting().all(|peer| peer.synced);
        if primary.stage != Stage::Gathering || keep != self.tail.end() || !all_there {
            return;
        }
        if let Some(device) = self.more_complete_copy() {
            return self.propose_primary(device);
        }
        let Role::Primary(primary) = &mut self.role else { return };
        primary.stage = Stage::Recording;
        primary.opens_at = Some(keep);
        let epoch = primary.epoch();
        self.start_epoch(epoch, keep);
        self.greet_all();
    }

    /// The epoch is open when its record is durable on every copy.
    pub(crate) fn try_open(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        let recorded = self.epochs.recorded() == primary.epoch() && !self.epochs.is_recording();
        if primary.stage == Stage::Recording && recorded && primary.counting().all(|peer| peer.opened) {
            primary.stage = Stage::Open;
            // Whatever is missing here is missing everywhere.
            self.be_complete();
        }
    }

    /// Asks every copy that can be reached.
    pub(crate) fn greet_all(&mut self) {
        let connected: Vec<DeviceId> = self.connected.iter().copied().collect();
        connected.into_iter().for_each(|device| self.greet(device));
    }

    /// Asks a copy how far it is, unless it has said so, on this connection and in this stage.
    pub(crate) fn greet(&mut self, device: DeviceId) {
        let (now, committed) = (self.now, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let (epoch, opens_at) = (primary.epoch(), primary.opens_at);
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        if peer.counts() && !(peer.synced && peer.opened == opens_at.is_some()) {
            peer.asked = now;
            let (recorded, ended) = (self.epochs.logged(), primary.ended);
            let sync = Sync { pg: self.pg, device, epoch, committed, opens_at, recorded, ended };
            self.actions.push_back(Action::Send(device, Message::Sync(sync)));
        }
    }

    /// The secondary on `device` follows the epoch, or refuses to.
    pub fn sync_ok(&mut self, device: DeviceId, ok: SyncOk) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        if ok.epoch != primary.epoch() {
            return; // A refusal names a newer epoch; the configuration that made it is on its way here.
        }
        self.predecessor_stopped(device);
        let Role::Primary(primary) = &mut self.role else { return };
        let (stage, opens_at, end) = (primary.stage, primary.opens_at, self.tail.end());
        let backlog = Backlog::new(self.windows.get(&device).cloned().unwrap_or_default());
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        (peer.full, peer.heard) = (ok.full, now);
        if !peer.counts() {
            return; // The answer to a question that was asked before the copy was left behind.
        }
        let waits_for_all = self.config.ack == AckRule::All;
        let more =
            if waits_for_all { ok.prepared > end } else { (ok.recorded, ok.prepared) > (self.epochs.logged(), end) };
        if stage == Stage::Gathering && more {
            // It holds more than this copy, perhaps acknowledged: this device has lost the end of its log, or writes were
            // acknowledged without it. Or it is only on its way here.
            if !primary.wait_for_tail(device, ok, now) {
                self.propose_primary(device);
            }
            return;
        }
        // Not before: what it has to say must have been taken to heart.
        peer.answered = true;
        if stage == Stage::Gathering && !waits_for_all && ok.recorded < self.epochs.logged() {
            // What it has prepared was decided in an epoch that it has not seen, perhaps otherwise.
            peer.diverged_at = Some(ok.committed);
            self.gather();
            return;
        }
        if !waits_for_all && ok.open && peer.synced && peer.opened && (peer.acked..=peer.sent).contains(&ok.prepared) {
            return; // Asked twice: what it lacks is on its way.
        }
        // It holds writes of an earlier epoch that were decided otherwise: it is good up to where this one begins.
        if let Some(begin) = opens_at.filter(|begin| ok.recorded < ok.epoch && ok.prepared > *begin) {
            peer.diverged_at = Some(begin);
            self.gather();
            return;
        }
        // Fewer than are committed, or than it acknowledged: its log is not the one that it was.
        if ok.prepared < self.tail.committed() || ok.prepared < peer.acked || ok.prepared > end {
            peer.diverged_at = Some(ok.prepared);
            self.gather();
            return;
        }
        if stage != Stage::Gathering && !ok.open {
            return; // The answer to a question that was asked before the tail was committed.
        }
        peer.opened = ok.open;
        peer.synced = true;
        peer.sent = ok.prepared;
        peer.again = end;
        peer.acked = ok.prepared;
        (peer.backlog, peer.missed) = (backlog, false);
        peer.pace.interrupted();
        self.pump(device);
        self.gather();
        self.try_commit();
        self.try_open();
    }
}
