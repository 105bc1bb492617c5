//! How commands of reservations are carried out, and how processes heed what these change.

use super::{GONE_AFTER, HEED_WAIT, HOSTS, LOOK_PAUSE, Lost, Sent, name_of};
use crate::cluster::events::Event;
use crate::cluster::records::{VOLUME, VOLUME_ID};
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::plan::Lie;
use azekura_base::Generation;
use azekura_model::transitions::attachments::put_out;
use azekura_model::transitions::reservations::{change_reservations, confirm_reservations, heed_reservations};
use azekura_model::{AttachmentsRecord, Records, ReservationCommand, ReservationsRecord, Rights};
use std::collections::BTreeSet;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// The record of the volume's reservations.
    pub(crate) fn reservations(&self) -> ReservationsRecord {
        let record = self.configuration.model().reservations.get(&VOLUME_ID);
        record.map_or_else(|| ReservationsRecord::none(VOLUME_ID), |record| record.record.clone())
    }

    /// A host sends a command to a process.
    pub(crate) fn reserve(&mut self, from: Life, host: usize, command: ReservationCommand) {
        self.reservers.asked += 1;
        let token = self.reservers.asked;
        self.reservers.sent.insert((from, token), Sent { host, command: Some(command), waits: Duration::ZERO });
        self.go_on_reserving(from, token, Duration::ZERO);
    }

    fn go_on_reserving(&mut self, from: Life, token: u64, pause: Duration) {
        let at = self.now + pause + self.configuration.delay();
        self.queue.push(at, Event::Reserve(from, token));
    }

    /// A process goes on with a command.
    pub(crate) fn reserve_further(&mut self, from: Life, token: u64) {
        let Some(sent) = self.reservers.sent.get_mut(&(from, token)) else { return };
        if self.configuration.is_former(from) {
            self.reservers.sent.remove(&(from, token));
            return;
        }
        if let Some(until) = self.configuration.away(from.node, self.now) {
            return self.queue.push(until, Event::Reserve(from, token));
        }
        let (host, command) = (sent.host, sent.command.take());
        if let Some(command) = command {
            sent.waits = self.now;
            let change = |records: &Records<'_>| {
                change_reservations(records, VOLUME, VOLUME_ID, &name_of(host), &command, token)
            };
            self.change_reservations(change);
            self.trace.step(self.now, token, || format!("{from:?}: host {host} asks for {command:?}"));
            return self.go_on_reserving(from, token, Duration::ZERO);
        }
        let waited = self.now.saturating_sub(sent.waits);
        let Some(due) = self.reservations().fence_due else {
            self.trace.step(self.now, token, || format!("{from:?}: host {host} is answered"));
            self.reservers.sent.remove(&(from, token));
            return;
        };
        let pause = if self.fence_reservations(from, due, waited) { Duration::ZERO } else { LOOK_PAUSE };
        self.go_on_reserving(from, token, pause);
    }

    /// Looks whether all heed a change; those that have ended, or take too long, lose the volume. True when all do.
    fn fence_reservations(&mut self, from: Life, due: u64, waited: Duration) -> bool {
        let record = self.reservations();
        let attachments = self.attachments(VOLUME).unwrap_or_else(|| AttachmentsRecord::none(VOLUME_ID));
        let used = attachments
            .attachments
            .iter()
            .filter_map(|entry| Some((entry.generation, Life::first(entry.node, entry.incarnation?))));
        let missing: Vec<(Generation, Life)> =
            used.filter(|(attachment, _)| !record.is_heeded_by(*attachment)).collect();
        let is_heeded = missing.is_empty() && !attachments.fence_due;
        if is_heeded || self.plan.lie == Some(Lie::UnaskedNodes) {
            self.change_reservations(|records| confirm_reservations(records, VOLUME, VOLUME_ID, due));
            self.reservation_is_confirmed(due);
            return true;
        }
        let is_late = |process: Life| waited >= HEED_WAIT || waited >= GONE_AFTER && !self.is_alive(process);
        let out: BTreeSet<Generation> =
            missing.iter().filter(|(_, process)| is_late(*process)).map(|(attachment, _)| *attachment).collect();
        if !out.is_empty() {
            self.count("attachment ended by a reservation");
            let put_out = |records: &Records<'_>| put_out(records, VOLUME, &out);
            let changed = self.change_attachments(VOLUME, true, put_out);
            debug_assert!(changed.is_ok(), "the volume stays");
        }
        if !self.holders.is_fencing(from) && self.attachments(VOLUME).is_some_and(|now| now.fence_due) {
            self.fence(from, &VOLUME.into(), None);
        }
        false
    }

    /// Changes the record, and notes who may write less or more by that.
    fn change_reservations<T>(&mut self, transition: impl FnOnce(&Records<'_>) -> azekura_model::Outcome<T>) {
        let before = self.reservations();
        let changed = self.configuration.run(transition);
        debug_assert!(changed.is_ok(), "the volume stays");
        let after = self.reservations();
        if after == before {
            return;
        }
        for host in 0..HOSTS {
            let may_write = |record: &ReservationsRecord| record.rights(&name_of(host)) == Rights::All;
            match (may_write(&before), may_write(&after)) {
                (true, false) => {
                    self.reservers.lost[host] = Some(Lost { number: after.number, confirmed: None });
                    self.count("host put out");
                }
                (false, true) => self.reservers.lost[host] = None,
                _ => {}
            }
        }
        self.inform_all();
    }

    /// It is confirmed that nothing is under way that was begun by rights from before a change.
    fn reservation_is_confirmed(&mut self, due: u64) {
        let now = self.stamp();
        for host in 0..HOSTS {
            let Some(lost) = self.reservers.lost[host].as_mut() else { continue };
            if lost.number <= due && lost.confirmed.is_none() {
                lost.confirmed = Some(now);
                S::host_is_out(self, host, now);
            }
        }
    }

    /// A shard heeds all changes up to this one.
    pub(crate) fn heeds(&mut self, life: Life, number: u64) {
        self.reservers.heeded.insert(life, number);
        self.confirm_heeding(life);
    }

    /// Others may wait for what a process heeds.
    pub(crate) fn confirm_heeding(&mut self, life: Life) {
        if self.heeded_by(life).is_some() {
            let at = self.now + self.configuration.delay();
            self.queue.push(at, Event::Heed(life));
        }
    }

    /// Up to which change all shards of a process heed them, where somebody waits for that.
    fn heeded_by(&self, life: Life) -> Option<u64> {
        let due = self.reservations().fence_due?;
        let lives = self.lives_of(life);
        let numbers = lives.iter().map(|life| self.reservers.heeded.get(life).copied().unwrap_or(0));
        numbers.min().filter(|number| *number >= due)
    }

    /// What a process heeds gets to the store.
    pub(crate) fn heed(&mut self, life: Life) {
        if self.configuration.is_former(life) {
            return;
        }
        if let Some(until) = self.configuration.away(life.node, self.now) {
            return self.queue.push(until, Event::Heed(life));
        }
        if let Some(number) = self.heeded_by(life) {
            let heed = |records: &Records<'_>| heed_reservations(records, VOLUME, VOLUME_ID, life.process(), number);
            self.change_reservations(heed);
        }
    }

    /// A process is gone, and what it was to do.
    pub(crate) fn reservers_lose(&mut self, life: Life) {
        self.reservers.heeded.remove(&life);
        self.reservers.sent.retain(|(from, _), _| *from != life);
    }
}
