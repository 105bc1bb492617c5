//! What the hosts do in the world, and what is seen of it.

use crate::cluster::records::{VOLUME, VOLUME_ID};
use crate::cluster::reservations::{HOSTS, key_of, name_of};
use crate::cue::Cue;
use crate::kernel::time::Stamp;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::Generation;
use azekura_model::{ReservationCommand, ReservationKind};

const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrantsOnly;

impl World {
    /// One of the hosts sends a command through one of the nodes.
    pub(crate) fn preempt(&mut self) {
        if !self.works() {
            return;
        }
        let again = self.now + self.scene.clients.hosts.random.spread_millis(20, 2000);
        self.cue_at(again, Cue::Preempt);
        let reaching = self.reaching();
        if reaching.is_empty() {
            return;
        }
        let random = &mut self.scene.clients.hosts.random;
        let (host, from) = (random.below(HOSTS as u64) as usize, *random.pick(&reaching));
        let (abort, gives_up) = (random.chance(50), random.chance(20));
        if self.reservers().is_asking(host) {
            return;
        }
        let (record, other, key) = (self.reservations(), (host + 1) % HOSTS, key_of(host));
        let is_registered = |host| record.key_of(&name_of(host)).is_some();
        let command = match &record.reservation {
            _ if !is_registered(host) => ReservationCommand::RegisterNew { new: key },
            None => ReservationCommand::Reserve { key, kind: KIND },
            Some(_) if is_registered(other) => {
                ReservationCommand::Preempt { key, victim: key_of(other), kind: KIND, abort }
            }
            Some(_) if gives_up => ReservationCommand::Clear { key },
            Some(_) => return,
        };
        self.reserve(from, host, command);
    }

    /// A host has lost its rights, and it is confirmed that nothing of it is under way.
    pub(crate) fn host_is_out(&mut self, host: usize, at: Stamp) {
        let unheard = self.connections().unheard();
        let running = self.scene.clients.running();
        let preempter = &mut self.scene.clients.hosts;
        for (id, _) in preempter.hosts.iter().filter(|(_, of)| **of == host) {
            // What its process has not taken yet is looked at when it is: the host may have its rights back by then.
            if unheard.contains(id) {
                continue;
            }
            let latest = preempter.latest.entry(*id).or_insert(at);
            if *latest == at && running.contains(id) {
                preempter.drained.insert(*id);
            }
        }
    }

    /// A write of a host has been done. `start`: when it was asked for; `attachment`: the process's.
    pub(crate) fn check_host(&mut self, id: u64, start: Stamp, attachment: Generation) {
        let Some(host) = self.scene.clients.hosts.hosts.get(&id).copied() else { return };
        let is_out = self.reservers().out_since(host).is_some_and(|since| start > since);
        // One whose attachment has ended may hear late of what has happened in time.
        let was_under_way =
            self.scene.clients.hosts.drained.contains(&id) && !self.holders().has_ended(VOLUME_ID, attachment);
        if is_out || was_under_way {
            let what = if is_out { "has lost its rights before" } else { "was told to have nothing under way" };
            self.violate(Invariant::Fenced, format!("operation {id} on {VOLUME} is done by host {host}, which {what}"));
        }
    }
}
