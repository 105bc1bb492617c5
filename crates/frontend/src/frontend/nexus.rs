//! Connections that take the place of earlier ones: see [`Nexuses`](crate::Nexuses).

use super::{Context, Frontend, Notice};
use crate::effect::{Close, Effect};
use crate::members::Wish;
use crate::nexuses::{News, Word};
use crate::protocol::StreamProtocol;
use std::time::Duration;

impl<K: Copy + Ord> Frontend<K> {
    /// A connection has to be let in beside others, which is asked for by this. False: nothing more is to be taken from
    /// it for now.
    pub(super) fn want_nexus(&mut self, conn: K, news: News, export: &str, cx: &mut Context<'_, K>) -> bool {
        self.doors.answering(conn);
        // While it waits it is a user of the volume: that is not given back in between.
        if cx.backend.volumes().get(export).is_some_and(|volume| !volume.read_only)
            && let Some(client) = cx.clients.client(conn)
        {
            let which = client.using(export);
            self.want(conn, which, cx);
        }
        if let Wish::New(number) = self.members.wanted(conn) {
            self.effects.push_back(Effect::Nexus(number, news));
        }
        false
    }

    /// A connection says something that concerns others; where there are none, it has its answer.
    pub(super) fn say_as_member(&mut self, conn: K, news: News, token: u64, cx: &mut Context<'_, K>) -> bool {
        match self.members.number(conn) {
            Some(number) => self.effects.push_back(Effect::Nexus(number, news)),
            None => cx.clients.client(conn).into_iter().for_each(|client| client.protocol().swept(token)),
        }
        true
    }

    /// The process says something of a connection of this shard.
    pub fn told(&mut self, word: Word, cx: &mut Context<'_, K>) {
        let number = word.member().number;
        match word {
            Word::Begin(_) => self.nexus_begins(number, cx),
            Word::End(_) => {
                if self.nexus_ends(number, cx) {
                    self.say_succeeded(cx.now);
                }
            }
            Word::Leave(_) => drop(self.nexus_ends(number, cx)),
            Word::Sweep(_, sweep, why) => {
                if let Some(conn) = self.members.conn(number) {
                    self.members.sweep(conn);
                }
                self.tell_protocol(number, cx, |protocol| protocol.sweep(sweep, why));
            }
            Word::Swept(_, token) => self.tell_protocol(number, cx, |protocol| protocol.swept(token)),
        }
    }

    /// Tells a connection's protocol something. One that is gone, or is being closed, answers by being over.
    fn tell_protocol(&mut self, number: u64, cx: &mut Context<'_, K>, tell: impl FnOnce(&mut dyn StreamProtocol)) {
        let Some(conn) = self.members.conn(number) else { return };
        let Some(client) = cx.clients.client(conn).filter(|client| !client.has_ended) else { return };
        tell(client.protocol());
        self.pump(conn, cx);
    }

    /// The member of this number has its nexus alone.
    fn nexus_begins(&mut self, number: u64, cx: &mut Context<'_, K>) {
        if let Some(conn) = self.members.begins(number) {
            self.pump(conn, cx);
        }
    }

    /// The connection of the member of this number is closed. Nothing of it begins any more. False when it is gone.
    fn nexus_ends(&mut self, number: u64, cx: &mut Context<'_, K>) -> bool {
        let Some(conn) = self.members.conn(number) else { return false };
        self.end_client(conn, cx);
        self.effects.push_back(Effect::Close(conn, Close::AtOnce));
        true
    }

    /// Hosts with the same name end each other again and again, which people should know.
    fn say_succeeded(&mut self, now: Duration) {
        let what = "closing a client's connection: the same client has come again on another one (if this goes on, two \
                    hosts have the same name)";
        self.notice(Notice::Succeeded, now, what);
    }

    /// A connection has gone, with so many requests under way.
    pub(super) fn nexus_left(&mut self, conn: K, requests: usize) {
        if let Some(number) = self.members.gone(conn, requests) {
            self.effects.push_back(Effect::Nexus(number, News::Over));
        }
    }

    /// A request of a member whose connection has gone is answered.
    pub(super) fn nexus_answered(&mut self, number: u64, cx: &mut Context<'_, K>) {
        if self.members.answered(number) {
            self.effects.push_back(Effect::Nexus(number, News::Over));
            self.branch_over(number, cx);
        }
    }
}
