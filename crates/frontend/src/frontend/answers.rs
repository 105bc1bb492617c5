//! Answers of the gateway, and whose they are.

use super::{Context, Frontend, Owner};
use crate::effect::Effect;
use crate::protocol::{StreamProtocol, Tag};
use azekura_base::Generation;
use azekura_gateway::{Backend, Op, Outcome};

impl<K: Copy + Ord> Frontend<K> {
    /// A request of no client's, on a volume that is attached otherwise. [`Effect::Answered`] with `token` follows.
    pub fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op, backend: &mut dyn Backend) {
        let id = self.running.insert(Owner::Other(token));
        backend.submit(id, volume, attachment, op);
    }

    /// The gateway has answered.
    pub fn complete(&mut self, id: u64, outcome: Outcome, cx: &mut Context<'_, K>) {
        match self.running.remove(id) {
            None => {}
            Some(Owner::Other(token)) => self.effects.push_back(Effect::Answered(token, outcome)),
            Some(Owner::Step(of, step)) => self.step_ended(of, step, outcome, cx),
            Some(owner) => self.answered(owner, |protocol, tag| protocol.reply(tag, outcome), cx),
        }
    }

    /// A client's request has ended: it is told, if it is still there.
    pub(super) fn answered(
        &mut self,
        owner: Owner<K>,
        tell: impl FnOnce(&mut dyn StreamProtocol, Tag),
        cx: &mut Context<'_, K>,
    ) {
        let Owner::Client { waits, volume, attachment, member, in_turn, .. } = owner else { return };
        if let Some((conn, tag, memory_bytes)) = waits {
            self.memory.answered(self.payer(conn), memory_bytes);
            if in_turn {
                self.turns.ended(conn, memory_bytes);
            }
            let is_branch = self.branches.has(conn);
            #[cfg(feature = "sabotage")]
            self.branches.forget(conn, tag);
            if let Some(client) = cx.clients.client(conn) {
                tell(client.protocol(), tag);
                self.effects.extend((!is_branch).then_some(Effect::Touched(conn)));
            }
            if is_branch || self.members.is_sweeping(conn) {
                self.pump(conn, cx);
            }
        }
        self.attaching.end(&volume, attachment);
        self.leave_if_unused(&volume);
        if let Some(number) = member {
            self.nexus_answered(number, cx);
        }
    }
}
