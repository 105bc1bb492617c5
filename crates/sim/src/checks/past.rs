//! The history of all sectors, with what was read of snapshots and what is known of fences.

use crate::checks::history::Register;
use crate::checks::{linearizable, zeroed};
use crate::report::Invariant;
use crate::world::World;
use std::collections::BTreeMap;

impl World {
    /// Looks at the life of every sector.
    pub(super) fn check_history(&mut self) {
        let check = |register: &Register| {
            if register.is_zeroed() { zeroed::check(register) } else { linearizable::check(register) }
        };
        let registers: BTreeMap<u64, &Register> = self.scene.history.registers().collect();
        let started = |sector, value| {
            let writes = &registers.get(&sector)?.writes;
            writes.iter().find(|write| write.value == value).map(|write| write.start)
        };
        let snapshots = match self.scene.snapshots.reads(started) {
            Ok(reads) => reads,
            Err(what) => return self.violate(Invariant::Snapshot, what),
        };
        let mut bad = None;
        for (sector, register) in self.scene.history.registers() {
            if let Some(reads) = snapshots.get(&sector) {
                let mut register = register.clone();
                register.reads.extend_from_slice(reads);
                if let Err(what) = check(&register)
                    && check(&Register {
                        reads: register.reads[..register.reads.len() - reads.len()].to_vec(),
                        ..register.clone()
                    })
                    .is_ok()
                {
                    bad = Some((Invariant::Snapshot, format!("sector {sector}, with snapshots: {what}")));
                    break;
                }
            }
            // Also with what is known of writes under attachments that have ended, and of hosts that were put out.
            let latest = |value| {
                let fenced = self.scene.clients.fenced_at(value, self.holders());
                [fenced, self.scene.clients.hosts.latest(value)].into_iter().flatten().min()
            };
            let bounded = || register.bounded(latest);
            let result = check(register).map_err(|what| (Invariant::Linearizable, what));
            let fenced = result.and_then(|()| {
                bounded().and_then(|register| check(&register)).map_err(|what| (Invariant::Fenced, what))
            });
            let fenced =
                fenced.and_then(|()| register.check_replaced().map_err(|what| (Invariant::Linearizable, what)));
            if let Err((invariant, what)) = fenced {
                let block = sector / crate::workloads::contents::BLOCK_SECTORS;
                bad = Some((invariant, format!("sector {sector} (block {block}): {what}")));
                break;
            }
        }
        if let Some((invariant, what)) = bad {
            self.violate(invariant, what);
        }
    }
}
