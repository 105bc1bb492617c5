//! Requests that take several steps at the gateway (`work.rs`). Each has one turn, one answer and its memory until all
//! of its steps have ended.

use super::{Context, Frontend, Owner};
use crate::attachment::VolumeUse;
use crate::effect::Effect;
use crate::limits::Limited;
use crate::work::Step;
use azekura_base::{Generation, IoStatus};
use azekura_gateway::Outcome;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// Takes the steps of a request that can be taken now. What they read and write counts for the limits of the
    /// volume, but the request does not wait for these again.
    pub(super) fn go_on_with(&mut self, id: u64, cx: &mut Context<'_, K>) {
        loop {
            let Some(Owner::Client { waits, volume, attachment, work: Some(work), .. }) = self.running.get_mut(id)
            else {
                return;
            };
            // Whoever is cut off has no more of it carried out.
            let conn = waits.as_ref().map(|(conn, ..)| *conn);
            let goes_on = |conn: K| cx.clients.client(conn).is_some_and(|client| !client.has_ended);
            if !conn.is_some_and(goes_on) {
                work.give_up();
            }
            let Some((step, op)) = work.next_step() else { return };
            let own = conn.map(|conn| (conn, Arc::clone(volume), *attachment));
            let used = match step {
                Step::CopyFrom(number) => conn.and_then(|conn| self.sibling(conn, number, cx)),
                _ => own,
            };
            let token = self.running.insert(Owner::Step(id, step));
            self.has_stepped = true;
            let Some((conn, volume, attachment)) = used else {
                self.complete(token, Outcome::Failed(IoStatus::Gone), cx);
                continue;
            };
            if let Some(limited) = self.opened.get(&conn).and_then(|view| Limited::of(view)) {
                self.throttle.charge(limited, &op, cx.now);
            }
            cx.backend.submit(token, &volume.volume, attachment, op);
        }
    }

    /// Another branch of the same session, by its number, with what it has opened.
    fn sibling(&self, conn: K, number: u32, cx: &mut Context<'_, K>) -> Option<(K, Arc<VolumeUse>, Generation)> {
        let sibling = self.branches.of(self.branches.trunk_of(conn)?, number)?;
        let client = cx.clients.client(sibling).filter(|client| !client.has_ended)?;
        let (volume, attachment) = client.volume.clone()?;
        Some((sibling, volume, attachment))
    }

    /// The gateway has answered a step.
    pub(super) fn step_ended(&mut self, id: u64, step: Step, outcome: Outcome, cx: &mut Context<'_, K>) {
        if let Some(Owner::Client { work: Some(work), .. }) = self.running.get_mut(id) {
            work.ended(step, outcome);
        }
        self.go_on_with(id, cx);
        let Some(Owner::Client { waits, work: Some(work), .. }) = self.running.get_mut(id) else { return };
        let conn = waits.as_ref().map(|(conn, ..)| *conn);
        if let Some(outcome) = work.outcome()
            && let Some(owner) = self.running.remove(id)
        {
            self.answered(owner, |protocol, tag| protocol.reply(tag, outcome), cx);
            // What follows may have waited for this answer: pieces of a copy go one after the other.
            conn.into_iter().for_each(|conn| self.pump(conn, cx));
        }
    }

    /// Nobody waits any more for the steps of these requests.
    pub(super) fn orphan_steps(&mut self, of: &[u64]) {
        if of.is_empty() {
            return;
        }
        let steps = self.running.iter().filter(|(_, owner)| matches!(owner, Owner::Step(id, _) if of.contains(id)));
        self.effects.extend(steps.map(|(token, _)| Effect::Orphaned(token)));
    }
}
