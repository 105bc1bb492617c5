//! The fault matrix: which faults happen in which modes, and how often.

use crate::plan::Mode;
use crate::world::World;

/// Modes that have the same faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Connections,
    Crash,
    Flips,
    Partitions,
    Stalls,
    Devices,
    All,
    /// Not a mode: where devices fail, this happens beside the faults of the mode.
    Failing,
    Keys,
}

/// The columns: what the table calls them, and how much time is between two of their faults, in milliseconds.
const COLUMNS: [(&str, u64, u64); 9] = [
    ("connections", 20, 2000),
    ("crash, slow", 20, 2000),
    ("flips", 100, 3000),
    ("partitions, attachments, reservations", 50, 8000),
    ("stalls", 50, 8000),
    ("devices", 50, 8000),
    ("all, snapshots", 50, 8000),
    ("failing devices", 300, 30_000),
    ("keys", 50, 4000),
];

/// Strikes, and says what came of that.
type Strike = fn(&mut World) -> &'static str;

/// Each fault: what it is, what strikes, and its share of the faults of each column, in percent.
const FAULTS: [(&str, Strike, [u64; 9]); 26] = [
    ("flipped bit", World::flip_a_bit, [0, 0, 65, 0, 0, 0, 0, 0, 0]),
    ("damaged leaf of a map", World::damage_a_leaf, [0, 0, 20, 0, 0, 0, 0, 0, 0]),
    ("leaf of a map unreadable for good", World::spoil_a_leaf, [0, 0, 5, 0, 0, 0, 0, 0, 0]),
    ("links cut", World::cut_some_links, [0, 0, 0, 50, 0, 12, 25, 0, 0]),
    ("process stands still", World::stall_a_node, [0, 0, 0, 0, 60, 8, 15, 0, 0]),
    ("configuration store away", World::lose_configuration, [0, 0, 0, 10, 10, 8, 8, 0, 6]),
    ("connection broken", World::break_some_connection, [60, 35, 10, 10, 10, 14, 8, 0, 16]),
    ("link slow", World::slow_a_link, [20, 10, 0, 10, 10, 10, 8, 0, 6]),
    ("disk slow", World::slow_a_disk, [20, 10, 0, 5, 10, 12, 6, 0, 6]),
    ("crash of a node", World::crash_one, [0, 30, 0, 6, 0, 14, 6, 0, 16]),
    ("planned stop", World::stop_one, [0, 0, 0, 4, 0, 6, 4, 0, 5]),
    ("crash of all nodes", World::crash_all, [0, 15, 0, 5, 0, 8, 4, 0, 5]),
    ("node away for long", World::send_one_away, [0, 0, 0, 0, 0, 8, 8, 0, 0]),
    ("key changed", World::change_a_key, [0, 0, 0, 0, 0, 0, 0, 0, 16]),
    ("key taken away", World::take_a_key, [0, 0, 0, 0, 0, 0, 0, 0, 10]),
    ("number lied about", World::lie_about_a_number, [0, 0, 0, 0, 0, 0, 0, 0, 14]),
    ("members changed", World::change_members, [0, 0, 0, 0, 0, 0, 8, 0, 0]),
    ("device wiped", World::wipe_a_device, [0, 0, 0, 0, 0, 0, 0, 14, 0]),
    ("map of a device made anew from its log", World::rebuild_a_map, [0, 0, 0, 0, 0, 0, 0, 6, 0]),
    ("device refuses", World::refuse_io, [0, 0, 0, 0, 0, 0, 0, 23, 0]),
    ("device lies", World::lie_somehow, [0, 0, 0, 0, 0, 0, 0, 17, 0]),
    ("devices drained", World::drain_devices, [0, 0, 0, 0, 0, 0, 0, 18, 0]),
    ("device added", World::add_a_device, [0, 0, 0, 0, 0, 0, 0, 10, 0]),
    ("node gone for good", World::replace_a_node, [0, 0, 0, 0, 0, 0, 0, 4, 0]),
    ("settings changed", World::change_some_setting, [0, 0, 0, 0, 0, 0, 0, 2, 0]),
    ("class made or deleted", World::change_the_classes, [0, 0, 0, 0, 0, 0, 0, 6, 0]),
];

impl Column {
    /// The column of a mode; `None` where this matrix has no faults for it.
    pub(super) fn of(mode: Mode) -> Option<Column> {
        match mode {
            Mode::Calm | Mode::Fsx | Mode::Lost | Mode::Hangs | Mode::Slow => None,
            Mode::Connections => Some(Column::Connections),
            Mode::Crash => Some(Column::Crash),
            Mode::Flips => Some(Column::Flips),
            Mode::Partitions | Mode::Attachments | Mode::Reservations => Some(Column::Partitions),
            Mode::Stalls => Some(Column::Stalls),
            Mode::Devices => Some(Column::Devices),
            Mode::Keys => Some(Column::Keys),
            Mode::All | Mode::Snapshots => Some(Column::All),
        }
    }

    /// What strikes, for a number below 100.
    pub(super) fn strike(self, roll: u64) -> Strike {
        let mut end = 0;
        let fault = FAULTS.iter().find(|(.., percent)| {
            end += percent[self as usize];
            roll < end
        });
        fault.expect("a column has a hundred percent").1
    }

    /// The least and the most time until the next fault, in milliseconds.
    pub(super) fn pause_ms(self) -> (u64, u64) {
        let (_, least, most) = COLUMNS[self as usize];
        (least, most)
    }
}

/// The fault matrix as a table of Markdown.
#[must_use]
pub fn fault_matrix() -> String {
    let row = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut table = row("Of a hundred faults", COLUMNS.iter().map(|(name, ..)| (*name).to_owned()).collect());
    table += &format!("|---|{}\n", "---:|".repeat(COLUMNS.len()));
    for (what, _, percent) in &FAULTS {
        let cells = percent.iter().map(|percent| if *percent == 0 { String::new() } else { percent.to_string() });
        table += &row(what, cells.collect());
    }
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let pauses = COLUMNS.iter().map(|(_, least, most)| format!("{} to {}", seconds(*least), seconds(*most)));
    table + &row("seconds until the next", pauses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_hundred_percent() {
        for (index, (name, ..)) in COLUMNS.iter().enumerate() {
            let sum: u64 = FAULTS.iter().map(|(.., percent)| percent[index]).sum();
            assert_eq!(sum, 100, "{name}");
        }
    }
}
