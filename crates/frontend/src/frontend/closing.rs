//! Whose connections are closed, and why.

use super::{Context, Frontend};
use crate::HANDSHAKE_MAX;
use crate::admission::{Admission, May, Who};
use crate::client::Client;
use crate::effect::{Close, Effect};
use azekura_base::{VolumeId, Warning};
use azekura_gateway::Backend;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What is told at most once a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Notice {
    TooMany,
    Silent,
    Stalled,
    Succeeded,
    Lifeless,
    Revoked,
}

impl<K: Copy + Ord> Frontend<K> {
    /// Closes the connections of clients that do not say what they want, or that hold memory that others wait for.
    pub fn close_late(&mut self, now: Duration) {
        if self.next_look().is_none_or(|at| now < at) {
            return;
        }
        let silent = self.doors.overdue(now);
        if !silent.is_empty() {
            let what = format!("closing {} connections: no export opened in {HANDSHAKE_MAX:?}", silent.len());
            self.notice(Notice::Silent, now, &what);
        }
        let stalled = self.memory.stalled(now);
        if !stalled.is_empty() {
            let what = format!(
                "closing {} clients' connections: they neither send nor read, and others wait for the memory that they hold",
                stalled.len()
            );
            self.notice(Notice::Stalled, now, &what);
        }
        let late = silent.into_iter().chain(stalled);
        self.effects.extend(late.map(|conn| Effect::Close(conn, Close::AtOnce)));
    }

    /// Tells of a client that does not keep to its protocol.
    pub(super) fn violated(&mut self, conn: K, client: &Client, violation: &str, now: Duration) {
        self.effects.push_back(Effect::Close(conn, Close::AfterDrain));
        let Some(more) = self.violations.note(&violation.to_owned(), now) else { return };
        let warning = Warning::new(format!("closing a client's connection: {violation}{more}"));
        self.warn(match &client.volume {
            Some((which, _)) => warning.volume(&*which.volume),
            None => warning,
        });
    }

    /// A client has shown something wrong. False: it is told later.
    pub(super) fn mistaken(&mut self, conn: K, address: Option<IpAddr>, what: &str, now: Duration) -> bool {
        let from = address.map(|address| format!(", from {address}")).unwrap_or_default();
        if let Some(more) = self.violations.note(&format!("{what}{from}"), now) {
            self.warn(Warning::new(format!("refusing a client: {what}{from}{more}")));
        }
        self.tries.failed(conn, address, now)
    }

    /// Tells those that have shown something wrong, when it is time. Closes connections to what has ended, and those
    /// whose clients give no sign of life.
    pub fn settle(&mut self, cx: &mut Context<'_, K>) {
        self.close_ended(&*cx.backend);
        self.tell_what_is_heeded(cx);
        while let Some(conn) = self.tries.due(cx.now) {
            self.pump(conn, cx);
        }
        while let Some(conn) = self.patience.due(cx.now) {
            let Some(client) = cx.clients.client(conn).filter(|client| !client.has_ended) else { continue };
            if client.protocol().was_heard() {
                // It may have asked its client for one.
                self.effects.push_back(Effect::Touched(conn));
                continue;
            }
            self.end_client(conn, cx);
            self.effects.push_back(Effect::Close(conn, Close::AtOnce));
            let what = "closing a client's connection: it has been silent for longer than it had said that it would be";
            self.notice(Notice::Lifeless, cx.now, what);
        }
    }

    /// Takes up other limits of volumes, and lets protocols look at those that have another size by now.
    pub(super) fn look_at_changes(&mut self, cx: &mut Context<'_, K>) {
        let known = cx.backend.volumes();
        let mut changed = Vec::new();
        for (conn, view) in &mut self.opened {
            let Some(now) = known.get(&view.name).filter(|now| now.id == view.id) else { continue };
            let has_other_size = now.size != view.size;
            if has_other_size || now.limits != view.limits {
                *view = now.clone();
            }
            if has_other_size {
                changed.push(*conn);
            }
        }
        changed.into_iter().for_each(|conn| self.pump(conn, cx));
    }

    /// From now on this is what those may of whom a key or a name is asked. Who has opened what is not for him any more
    /// is cut off, and a host that may nothing any more: nothing that they send is let in.
    pub fn admit_by(&mut self, admission: Arc<Admission>, cx: &mut Context<'_, K>) {
        self.admission = admission;
        let mut cut_off = Vec::new();
        for conn in self.doors.all() {
            let Some(client) = cx.clients.client(conn).filter(|client| !client.has_ended) else { continue };
            let may = self.admission.of(&client.who);
            let goes_on = match (self.opened.get(&conn), &client.who) {
                (Some(view), _) => may.opens(&view.name),
                // It is still to open something, or asks what there is.
                (None, Who::Host(Some(_))) => !matches!(may, May::Nothing),
                (None, _) => true,
            };
            if !goes_on {
                cut_off.push(conn);
            }
        }
        if !cut_off.is_empty() {
            let what = format!("closing {} clients' connections: they may not use this any more", cut_off.len());
            self.notice(Notice::Revoked, cx.now, &what);
        }
        for conn in cut_off {
            self.end_client(conn, cx);
            self.effects.push_back(Effect::Close(conn, Close::AtOnce));
        }
        self.look_at_units(cx);
    }

    /// Closes the connections of attachments that have ended.
    fn close_ended(&mut self, backend: &dyn Backend) {
        if !std::mem::take(&mut self.look_for_ended) {
            return;
        }
        let ended = self.attaching.take_ended(|volume, attachment| backend.is_ended(volume, attachment));
        for (which, attachment, users) in ended {
            self.effects.extend(attachment.map(|attachment| Effect::Ended(which.clone(), attachment)));
            if users.is_empty() {
                continue;
            }
            let text =
                format!("volume {which} is not attached here any more: its {} connections are closed", users.len());
            self.warn(Warning::new(text).volume(&*which.volume));
            // A host that goes on through another node takes a lost connection for a lost path, and an answer for one.
            let how = if which.host.is_some() { Close::Lingering } else { Close::AfterDrain };
            self.effects.extend(users.into_iter().map(|conn| Effect::Close(conn, how)));
        }
    }

    /// Closes the connections to volumes and snapshots that are gone: whatever comes to have their name is another's.
    /// None of their requests is let in any more.
    pub(super) fn close_deleted(&mut self, cx: &mut Context<'_, K>) {
        let known = cx.backend.volumes();
        let is_gone = |name: &str, id: VolumeId| known.get(name).is_none_or(|volume| volume.id != id);
        for (conn, _) in self.opened.iter().filter(|(_, view)| is_gone(&view.name, view.id)) {
            cx.clients.client(*conn).into_iter().for_each(|client| client.volume = None);
            self.effects.push_back(Effect::Close(*conn, Close::AfterDrain));
        }
        let mut waiting: Vec<K> = Vec::new();
        for (which, attachment, users) in self.attaching.take_deleted(is_gone) {
            self.effects.extend(attachment.map(|attachment| Effect::Ended(which, attachment)));
            // Those that have not opened it yet hear that it is not there, or wait for what has its name now.
            waiting.extend(users.into_iter().filter(|conn| !self.opened.contains_key(conn)));
        }
        waiting.into_iter().for_each(|conn| self.pump(conn, cx));
    }
}
