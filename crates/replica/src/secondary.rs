//! The secondary's side: enter the primary's epoch, append what it orders, follow its commit point.

use crate::action::{Action, Client, Mismatch};
use crate::group::{Group, Role};
use crate::pending::{Blocks, Pending};
use azekura_base::{BlockIndex, CHUNK_BLOCKS, IoStatus, Sequence, block_checksums};
use azekura_wire::{Body, Message, Prepare, PrepareOk, ReadRequest, StatusRequest, Sync, SyncOk};
use std::time::Duration;

/// State that only a secondary has.
#[derive(Default)]
pub(crate) struct Secondary {
    /// Until when this copy may answer reads by itself.
    lease_until: Duration,
    /// The primary is owed word of what is durable.
    ack_owed: bool,
    /// The primary waits for this copy to enter its epoch.
    sync: Option<Sync>,
    /// The connection on which the primary opened its epoch: prepares from elsewhere are leftovers.
    primary: Option<Client>,
}

impl Secondary {
    pub(crate) fn has_lease(&self, now: Duration) -> bool {
        now < self.lease_until
    }

    pub(crate) fn owe_ack(&mut self) {
        self.ack_owed = true;
    }
}

impl Group {
    /// The primary of an epoch asks, on connection `from`, how far this copy is.
    pub fn sync(&mut self, from: Client, sync: Sync) {
        if sync.epoch < self.epoch || (sync.epoch == self.epoch && matches!(self.role, Role::Primary(_))) {
            let refusal =
                SyncOk { pg: self.pg, device: self.me, epoch: self.epoch, prepared: Sequence::ZERO, full: self.full };
            self.actions.push_back(Action::Answer(from, Message::SyncOk(refusal)));
            return;
        }
        if matches!(self.role, Role::Primary(_)) {
            self.step_down();
        }
        let Role::Secondary(secondary) = &mut self.role else { return };
        secondary.sync = Some(sync);
        secondary.primary = Some(from);
        secondary.ack_owed = false;
        if sync.epoch == self.epoch {
            self.answer_sync();
            return;
        }
        secondary.lease_until = Duration::ZERO;
        // What the primary calls committed was durable on every in-sync copy: this one has it too, unless it has
        // lost its data. What lies beyond is the primary's to decide; it sends it again.
        self.commit(sync.committed.min(self.durable));
        let keep = self.tail.committed();
        drop(self.tail.truncate(keep));
        self.durable = keep;
        self.actions.push_back(Action::StartEpoch { epoch: sync.epoch, keep });
    }

    pub(crate) fn answer_sync(&mut self) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some(sync) = secondary.sync.take_if(|sync| sync.epoch == self.epoch) else { return };
        let upto = sync.committed.min(self.durable);
        self.commit(upto);
        let answer =
            SyncOk { pg: self.pg, device: self.me, epoch: self.epoch, prepared: self.durable, full: self.full };
        self.send_to_primary(Message::SyncOk(answer));
    }

    /// The primary orders a write, on connection `from`. `trusted` says that the blocks have not left this process since
    /// their checksums were made.
    ///
    /// # Errors
    /// When it is damaged or out of order: the connection must be closed.
    pub fn prepare(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        let Role::Secondary(secondary) = &self.role else { return Ok(()) };
        if prepare.epoch != self.epoch || secondary.primary != Some(from) || secondary.sync.is_some() {
            return Ok(()); // From before what this copy has agreed to since: nobody waits for the answer.
        }
        if prepare.sequence <= self.tail.end() {
            if prepare.sequence <= self.durable
                && let Role::Secondary(secondary) = &mut self.role
            {
                secondary.owe_ack();
            }
            return Ok(());
        }
        if prepare.sequence != self.tail.end().next() {
            return Err(Mismatch::Gap { got: prepare.sequence, expected: self.tail.end().next() });
        }
        if let Body::Data { bytes, checksums } = &prepare.body
            && !trusted
            && !block_checksums(bytes).eq(checksums.iter().copied())
        {
            return Err(Mismatch::Checksum);
        }
        let Prepare { sequence, session, request, oldest, layer, chunk, first, count, .. } = prepare;
        let blocks = Blocks { layer, chunk, first, count };
        self.tail.push(Pending {
            sequence,
            session,
            request,
            oldest,
            blocks,
            body: None,
            client: None,
            as_sent: false,
        });
        let commit = prepare.commit.min(self.durable);
        self.actions.push_back(Action::Append(prepare));
        self.commit(commit);
        Ok(())
    }

    /// Tells the primary what has become durable, once for everything since the last call: to be called when the
    /// surroundings have handled a batch of completions.
    pub fn flush_acks(&mut self) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        if std::mem::take(&mut secondary.ack_owed) {
            let ok =
                PrepareOk { pg: self.pg, device: self.me, epoch: self.epoch, sequence: self.durable, full: self.full };
            self.send_to_primary(Message::PrepareOk(ok));
        }
    }

    /// The primary of `epoch` is alive and has committed up to `commit`; reads may be answered here until
    /// `lease_until`. False when this copy follows another epoch: then the primary gets no promise.
    pub fn heartbeat(&mut self, epoch: azekura_base::Epoch, commit: Sequence, lease_until: Duration) -> bool {
        let Role::Secondary(secondary) = &mut self.role else { return false };
        // While it waits for the epoch's record or has lost its place, a copy must not answer reads.
        if epoch != self.epoch || secondary.sync.is_some() {
            return false;
        }
        secondary.lease_until = secondary.lease_until.max(lease_until);
        self.commit(commit.min(self.durable));
        true
    }

    /// A gateway reads. Answered here if this copy may; else the gateway is sent to the primary.
    pub fn read(&mut self, client: Client, read: ReadRequest, now: Duration) {
        let blocks = Blocks { layer: read.layer, chunk: read.chunk, first: read.first, count: read.count };
        let action = if self.may_answer(&blocks, now) {
            Action::ServeRead(client, read)
        } else {
            Action::Refuse(client, read.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// A gateway asks for a chunk's block status; as [`Group::read`].
    pub fn status(&mut self, client: Client, status: StatusRequest, now: Duration) {
        let StatusRequest { layer, chunk, .. } = status;
        let blocks = Blocks { layer, chunk, first: BlockIndex(0), count: CHUNK_BLOCKS as u16 };
        let action = if self.may_answer(&blocks, now) {
            Action::ServeStatus(client, status)
        } else {
            Action::Refuse(client, status.request, IoStatus::Redirect)
        };
        self.actions.push_back(action);
    }

    /// Invariant 2. The primary answers from its committed state while no other primary can exist. A secondary
    /// answers while it has a lease and knows of no uncommitted write to these blocks: an acknowledged write is
    /// prepared here, so either it is committed here too, or it is in the tail.
    fn may_answer(&self, blocks: &Blocks, now: Duration) -> bool {
        match &self.role {
            Role::Primary(primary) => primary.may_serve(now),
            Role::Secondary(secondary) => secondary.has_lease(now) && !self.tail.touches(blocks),
        }
    }

    fn send_to_primary(&mut self, message: Message) {
        let Role::Secondary(Secondary { primary: Some(primary), .. }) = &self.role else { return };
        self.actions.push_back(Action::Answer(*primary, message));
    }
}
