//! Writes that were given up and may still be applied: what is done about them.
//!
//! For each volume and group that has some, a write is sent that changes nothing: zeros to a block that no client can
//! name. Its `oldest` is greater than the numbers of what was given up, so it gets its number when all before these
//! have been answered. Once it is committed, no primary takes one of them: the copies keep `oldest` with the commit.
//! Until then no gateway of the process numbers a write of that volume to that group, and the volume's attachment is
//! not given back ([`crate::Unsettled::has`]), for who has the volume next would not wait for anything.
//!
//! Where the attachment ends by force, the fence does the same for all of its writes, and nothing is left to settle.

use super::Gateway;
use crate::ciphers::Cipher;
use crate::cut::Part;
use crate::operations::OpId;
use crate::parts::{Ask, InFlight, PartId, Wanted};
use azekura_base::{BLOCK_SIZE, Generation, PgId, VolumeId};

impl Gateway {
    /// Numbers the next write of the group, but none of a volume for which another gateway has something unsettled.
    pub(super) fn number_next(&mut self, pg: PgId) -> Option<(PartId, VolumeId)> {
        let (unsettled, session) = (&self.unsettled, self.session);
        self.parts.number_next(pg, |volume| unsettled.is_by_another(volume, pg, session))
    }

    /// The client that asked for the request of this token is gone. It may have come back as another one, over another
    /// connection, and does not know of what it wrote: nobody's write passes that.
    pub fn orphan(&mut self, token: u64) {
        let Some(op) = self.operations.of(token) else { return };
        self.operations.orphan(op);
        for (pg, volume) in self.parts.orphan(op) {
            self.unsettled.given_up(volume, pg, self.session);
        }
    }

    /// The register forgets what is settled.
    pub(super) fn note_settled(&self, pg: PgId, volume: VolumeId) {
        if self.parts.is_settled(pg, volume) {
            self.unsettled.settled(volume, pg, self.session);
        }
    }

    /// Looks again at what waits for something that was given up.
    pub(super) fn release_held(&mut self) {
        self.parts.release_held().into_iter().for_each(|pg| self.start_backlog(pg));
    }

    /// These parts were taken out because they have waited for too long. Their writes are entered before their clients
    /// hear of it.
    pub(super) fn gives_up_writes(&mut self, parts: &[(PartId, InFlight)]) {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::settles_nothing() {
            return;
        }
        for (id, in_flight) in parts.iter().filter(|(id, in_flight)| id.is_write() && in_flight.was_sent()) {
            self.unsettled.given_up(in_flight.wanted().volume, in_flight.wanted().pg, self.session);
            self.parts.gives_up(id.number(), in_flight);
        }
    }

    /// Asks for what is to be settled and is not asked for yet.
    pub(super) fn settle(&mut self) {
        for (pg, volume, attachment) in self.parts.take_unsettled() {
            let Some(view) = self.directory.volume(volume) else { continue };
            let Some(chunk) = view.spare_chunk(pg) else { continue };
            let part = Part { chunk, offset: 0, len: BLOCK_SIZE as u32 };
            let layer = view.layer;
            let wanted = Wanted {
                op: OpId::NONE,
                index: 0,
                part,
                volume,
                attachment,
                layer,
                pg,
                ask: Ask::Settle,
                cipher: Cipher::Plain,
            };
            // Nobody may have used the volume since: its group has to be connected all the same.
            self.uses.note(volume, self.now);
            let in_flight = InFlight::new(wanted, self.now);
            self.room.take(&in_flight);
            self.parts.add_write(in_flight);
            self.start_backlog(pg);
        }
    }

    /// The group has answered a write that was to settle what was given up. One that failed is sent anew, by and by.
    pub(super) fn has_settled(&mut self, id: PartId, in_flight: &InFlight, committed: bool) {
        let (pg, volume) = (in_flight.wanted().pg, in_flight.wanted().volume);
        if self.parts.settled(pg, id.number(), volume, committed) {
            self.note_settled(pg, volume);
        }
    }

    /// Volumes, under attachments, have ended: what was given up of them is refused where it arrives.
    pub(super) fn forget_given_up(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) {
        if self.parts.given_up_volumes().is_empty() {
            return;
        }
        let to_settle = |in_flight: &InFlight| {
            in_flight.is_to_settle() && ended(in_flight.wanted().volume, in_flight.wanted().attachment)
        };
        let (numbered, others) = self.parts.extract(to_settle);
        others.iter().for_each(|in_flight| self.room.numbered(in_flight.wanted().volume));
        for in_flight in numbered.iter().map(|(_, in_flight)| in_flight).chain(&others) {
            self.room.give(in_flight);
            // What was given up under a later attachment still has to be settled, by another write.
            self.parts.settles_no_more(in_flight.wanted().pg, in_flight.wanted().volume);
        }
        let over = self.parts.forget_given_up(ended);
        over.iter().for_each(|(pg, volume)| self.note_settled(*pg, *volume));
        if !over.is_empty() {
            self.release_held();
        }
    }
}
