//! What clients ask of reservations, and what becomes of them when these change.

use super::{Context, Frontend, Owner};
use crate::client::Client;
use crate::effect::Effect;
use crate::heeding::Era;
use crate::protocol::Tag;
use crate::request::Request;
use crate::reservations::{ReservationAnswer, ReservationRequest, Reservations};
use azekura_base::{IoStatus, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// The reservations of all volumes that have a record, as they are now. From the first time on they are offered to
    /// clients: before, there are none. They are of a configuration not older than any attachment that this front end
    /// has been told of (0046).
    pub fn reservations_known(&mut self, now: BTreeMap<VolumeId, Arc<Reservations>>, cx: &mut Context<'_, K>) {
        self.heeding.known(&now);
        let is_other = self.reservations.replace(now);
        let opened = self.opened.iter().filter(|(_, view)| is_other(view.id));
        let opened: Vec<K> = opened.map(|(conn, _)| *conn).collect();
        opened.into_iter().for_each(|conn| self.pump(conn, cx));
    }

    /// What came of [`Effect::Reserves`] with this token.
    pub fn reserved(&mut self, token: u64, answer: ReservationAnswer, cx: &mut Context<'_, K>) {
        if let Some(owner) = self.running.remove(token) {
            self.answered(owner, |protocol, tag| protocol.reserved(tag, answer), cx);
        }
    }

    /// A client asks something of the reservations of its volume. It is a request under way, as others are: while it
    /// may be carried out, the volume is not given back and the client's nexus is not over.
    pub(super) fn reserves(
        &mut self,
        conn: K,
        client: &mut Client,
        tag: Tag,
        memory_bytes: usize,
        request: Box<ReservationRequest>,
    ) {
        let payer = self.payer(conn);
        self.memory.received(payer, memory_bytes);
        // A volume that is deleted is taken from its connections before they are closed.
        let (Some((volume, attachment)), Some(view)) = (client.volume.clone(), self.opened.get(&conn)) else {
            self.memory.answered(payer, memory_bytes);
            return client.protocol().reserved(tag, ReservationAnswer::Failed);
        };
        self.attaching.begin(&volume, attachment);
        let (waits, name, in_turn) = (Some((conn, tag, memory_bytes)), volume.volume.as_str().into(), false);
        let (member, writes, work) = (None, None, None);
        let owner = Owner::Client { waits, volume, attachment, member, in_turn, writes, work };
        let token = self.running.insert(owner);
        self.effects.push_back(Effect::Reserves(token, name, view.id, request));
    }

    /// Says which changes of reservations are heeded by now. What was given up may still be applied, and is waited for.
    pub(super) fn tell_what_is_heeded(&mut self, cx: &mut Context<'_, K>) {
        let waiting: Vec<(VolumeId, Era)> = self.heeding.waiting().collect();
        for (volume, since) in waiting {
            let waits = self.has_writes_before(volume, since, cx) || self.unsettled.has(volume);
            #[cfg(feature = "sabotage")]
            let waits = waits && !crate::sabotage::heeds_at_once();
            if !waits {
                let number = self.heeding.is_heeded(volume);
                self.effects.extend(number.map(|number| Effect::Heeds(volume, number)));
            }
        }
    }

    /// Whether writes are under way, or wait for their turn, whose rights were looked at in an earlier era.
    fn has_writes_before(&self, volume: VolumeId, since: Era, cx: &mut Context<'_, K>) -> bool {
        let is_before = |owner: &Owner<K>| match owner {
            Owner::Client { writes: Some((of, era)), .. } => *of == volume && *era < since,
            _ => false,
        };
        let mut opened = self.opened.iter().filter(|(_, view)| view.id == volume);
        self.running.values().any(is_before)
            || opened.any(|(conn, _)| {
                let ready = cx.clients.client(*conn).and_then(|client| client.ready.as_ref());
                ready.is_some_and(|ready| ready.asked.is_write() && ready.era < since)
            })
    }

    /// Why a request of a connection is not let in: its protocol does not know of reservations, and a reservation
    /// leaves less to those who are not registered.
    pub(super) fn why_barred(&self, conn: K, client: &mut Client, request: &Request) -> Option<IoStatus> {
        let view = self.opened.get(&conn).filter(|view| !view.read_only)?;
        let why = self.reservations.why_barred(view.id, request)?;
        (!client.protocol().heeds_reservations()).then_some(why)
    }
}
