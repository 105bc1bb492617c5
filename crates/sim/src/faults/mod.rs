//! Faults: what goes wrong, one file a kind.

mod configuration;
mod connections;
mod crashes;
mod drains;
pub(crate) mod drawn;
mod flips;
mod hangs;
mod lost_writes;
mod lying;
mod members;
mod partitions;
mod refusals;
mod restores;
mod slowness;
mod stalls;
mod stops;
mod votes;
pub(crate) mod wear;
mod wipes;

use crate::cluster::events::Event;
use crate::cue::Cue;
use crate::plan::Mode;
use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

/// How often it is looked whether all is calm.
const CALM_STEP: Duration = Duration::from_millis(100);

/// So many of the faults are backups and restores of the configuration, in percent, where there are any.
const GOES_BACK_PERCENT: u64 = 25;

impl World {
    /// A fault happens, and the next one is planned.
    pub(crate) fn fault(&mut self) {
        if !self.working || self.scene.faults.over {
            return;
        }
        if !self.is_calm_over() {
            self.cue_at(self.now + CALM_STEP, Cue::Fault);
            return;
        }
        let directed = self.is_time_for_votes();
        let goes_back = self.plan.goes_back && self.random.chance(GOES_BACK_PERCENT);
        let kind = match (self.plan.faults, self.random.below(100)) {
            _ if directed => self.forget_a_vote(),
            _ if goes_back => self.back_up_or_restore(),
            (Mode::Calm | Mode::Fsx | Mode::Lost | Mode::Hangs | Mode::Slow, _) => return,
            (Mode::Connections, 0..60) | (Mode::Crash, 0..35) => self.break_some_connection(),
            (Mode::Connections, 60..80) | (Mode::Crash, 35..45) => self.slow_a_link(),
            (Mode::Connections, 80..) | (Mode::Crash, 45..55) => self.slow_a_disk(),
            (Mode::Crash, 55..85) => self.crash_one(),
            (Mode::Crash, 85..) => self.crash_all(),
            (Mode::Flips, 0..65) => self.flip_a_bit(),
            (Mode::Flips, 65..90) => self.damage_a_leaf(),
            (Mode::Flips, 90..) => self.break_some_connection(),
            (Mode::Partitions | Mode::Attachments, 0..50) => self.cut_some_links(),
            (Mode::Partitions | Mode::Attachments, 50..60) => self.lose_configuration(),
            (Mode::Partitions | Mode::Attachments, 60..70) => self.break_some_connection(),
            (Mode::Partitions | Mode::Attachments, 70..80) => self.slow_a_link(),
            (Mode::Partitions | Mode::Attachments, 80..85) => self.slow_a_disk(),
            (Mode::Partitions | Mode::Attachments, 85..91) => self.crash_one(),
            (Mode::Partitions | Mode::Attachments, 91..95) => self.stop_one(),
            (Mode::Partitions | Mode::Attachments, 95..) => self.crash_all(),
            (Mode::Stalls, 0..60) => self.stall_a_node(),
            (Mode::Stalls, 60..70) => self.lose_configuration(),
            (Mode::Stalls, 70..80) => self.break_some_connection(),
            (Mode::Stalls, 80..90) => self.slow_a_link(),
            (Mode::Stalls, 90..) => self.slow_a_disk(),
            (Mode::Devices, 0..12) => self.cut_some_links(),
            (Mode::Devices, 12..20) => self.stall_a_node(),
            (Mode::Devices, 20..28) => self.lose_configuration(),
            (Mode::Devices, 28..42) => self.break_some_connection(),
            (Mode::Devices, 42..52) => self.slow_a_link(),
            (Mode::Devices, 52..64) => self.slow_a_disk(),
            (Mode::Devices, 64..78) => self.crash_one(),
            (Mode::Devices, 78..84) => self.stop_one(),
            (Mode::Devices, 84..92) => self.crash_all(),
            (Mode::Devices, 92..) => self.send_one_away(),
            (Mode::All | Mode::Snapshots, 0..25) => self.cut_some_links(),
            (Mode::All | Mode::Snapshots, 25..40) => self.stall_a_node(),
            (Mode::All | Mode::Snapshots, 40..48) => self.lose_configuration(),
            (Mode::All | Mode::Snapshots, 48..56) => self.break_some_connection(),
            (Mode::All | Mode::Snapshots, 56..64) => self.slow_a_link(),
            (Mode::All | Mode::Snapshots, 64..70) => self.slow_a_disk(),
            (Mode::All | Mode::Snapshots, 70..76) => self.crash_one(),
            (Mode::All | Mode::Snapshots, 76..80) => self.stop_one(),
            (Mode::All | Mode::Snapshots, 80..84) => self.crash_all(),
            (Mode::All | Mode::Snapshots, 84..92) => self.send_one_away(),
            (Mode::All | Mode::Snapshots, 92..) => self.change_members(),
        };
        self.count(kind);
        self.trace.step(self.now, 0xfa, || format!("fault: {kind}"));
        let next = match self.plan.faults {
            Mode::Flips => self.random.spread_millis(100, 3000),
            Mode::Partitions | Mode::Stalls | Mode::Attachments | Mode::Snapshots | Mode::Devices | Mode::All => {
                self.random.spread_millis(50, 8000)
            }
            _ => self.random.spread_millis(20, 2000),
        };
        self.cue_at(self.now + next, Cue::Fault);
    }

    /// Links are whole, the configuration store is there, and everybody runs.
    pub(crate) fn end_faults(&mut self) {
        self.end_calm();
        self.heal_links();
        self.configuration.come_back();
        self.end_hangs();
        self.inform_all();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            self.queue.push(self.now, Event::Start(node));
        }
        self.replace_devices();
    }
}
