//! Connections without a socket, which sessions ask for (`branch.rs`).

use super::{Context, Frontend};
use crate::branch::BranchEnd;
use crate::client::Client;
use crate::effect::{Close, Effect};

impl<K: Copy + Ord> Frontend<K> {
    /// A session wants another branch: it has the rights of its trunk's client, and its place among connections.
    pub(super) fn branch(&mut self, trunk: K, number: u32, end: BranchEnd, cx: &mut Context<'_, K>) {
        let Some(client) = cx.clients.client(trunk) else { return };
        let (heeds, handle) = (client.protocol().heeds_reservations(), end.handle());
        let branch = client.branch(Box::new(end.protocol(heeds)));
        let conn = cx.clients.branch(trunk, branch);
        let Some(conn) = conn.filter(|conn| self.doors.connect(*conn, cx.now)) else {
            // Where there is no place, its owner has forgotten it.
            conn.into_iter().for_each(|conn| self.effects.push_back(Effect::Close(conn, Close::AtOnce)));
            self.refuse(cx.now);
            return handle.refuse("there are too many connections");
        };
        // It has nothing to say that others could wait for.
        self.doors.opened(conn);
        self.branches.add(conn, trunk, number, handle);
        self.pump_one(conn, cx);
    }

    /// A session has asked something of a branch.
    pub(super) fn look_at_branch(&mut self, trunk: K, number: u32, cx: &mut Context<'_, K>) {
        if let Some(conn) = self.branches.of(trunk, number) {
            self.pump_one(conn, cx);
        }
    }

    /// A branch is gone: [`Effect::Close`] was performed, and `client` was its client. Its session hears of it when
    /// nothing of it is under way any more.
    pub fn branch_gone(&mut self, conn: K, client: Option<Client>, cx: &mut Context<'_, K>) {
        client.into_iter().for_each(|mut client| self.drop_ready(conn, &mut client));
        let member = self.members.number(conn);
        self.gone(conn);
        let member = member.filter(|member| self.members.is_leaving(*member));
        if let Some(trunk) = self.branches.gone(conn, member) {
            self.pump_one(trunk, cx);
        }
    }

    /// A branch that was gone has nothing under way any more.
    pub(super) fn branch_over(&mut self, member: u64, cx: &mut Context<'_, K>) {
        if let Some(trunk) = self.branches.over(member) {
            self.pump_one(trunk, cx);
        }
    }

    /// Nothing of a connection, or of its branches, is looked at any more.
    pub(super) fn end_client(&mut self, conn: K, cx: &mut Context<'_, K>) {
        for conn in self.branches.all_of(conn).into_iter().chain([conn]) {
            self.turns.gone(conn);
            if let Some(client) = cx.clients.client(conn) {
                client.has_ended = true;
                self.drop_ready(conn, client);
            }
        }
    }

    /// What waits for its turn is not let in. The memory of a branch's is its trunk's; others give all that they have
    /// back when they are gone.
    pub(super) fn drop_ready(&mut self, conn: K, client: &mut Client) {
        let ready = client.ready.take();
        if let Some((ready, trunk)) = ready.zip(self.branches.trunk_of(conn)) {
            self.memory.answered(trunk, ready.memory_bytes);
        }
    }

    /// Whose memory a connection's requests take.
    pub(super) fn payer(&self, conn: K) -> K {
        self.branches.trunk_of(conn).unwrap_or(conn)
    }

    /// Whether the trunk of a branch is not looked at any more.
    pub(super) fn is_cut_off(&self, conn: K, cx: &mut Context<'_, K>) -> bool {
        let trunk = self.branches.trunk_of(conn).and_then(|trunk| cx.clients.client(trunk));
        trunk.is_none_or(|trunk| trunk.has_ended)
    }
}
