//! Which operation is next.

use super::admin::volume_of;
use super::model::{Change, Kind};
use crate::kernel::random::Random;
use crate::plan::WRITE_BLOCKS_MAX;
use crate::workloads::contents::BLOCK_SECTORS;
use crate::world::World;
use azekura_base::CHUNK_BLOCKS;

const CHUNK_SECTORS: u64 = CHUNK_BLOCKS as u64 * BLOCK_SECTORS;
/// Most volumes at once.
const VOLUMES_MAX: usize = 4;
/// Most snapshots at once, of all volumes.
const SNAPSHOTS_MAX: usize = 8;
/// Requests begin at most so many blocks beside a border of chunks, or beside a volume's ends.
const WINDOW_BLOCKS: u64 = 24;
/// Blocks that a trim or a request for zeros covers at most.
const ZERO_BLOCKS_MAX: u64 = 80;
/// Blocks by which a volume's size may differ from whole chunks.
const ODD_SIZES: [u64; 4] = [0, 0, 5, 300];
/// Chunks of a volume at most.
const CHUNKS_MAX: u64 = 5;

/// A range of sectors in a volume or snapshot of `size`, at most `blocks_max` long, of whole blocks or not.
fn range(random: &mut Random, size: u64, blocks_max: u64, percent_whole: u64) -> (u64, u64) {
    let border = random.between(0, size / CHUNK_SECTORS + 1) * CHUNK_SECTORS;
    let border = if border > size || random.chance(15) { size } else { border };
    let around = WINDOW_BLOCKS * BLOCK_SECTORS;
    let first = random.between(border.saturating_sub(around), border + around).min(size - 1);
    let most = if random.chance(60) { 4 } else { blocks_max };
    let blocks = random.between(1, most);
    let (first, count) = if random.chance(percent_whole) {
        (first / BLOCK_SECTORS * BLOCK_SECTORS, blocks * BLOCK_SECTORS)
    } else {
        // With both edges, it must not have more blocks than one write carries.
        (first, random.between(1, (blocks - blocks / WRITE_BLOCKS_MAX) * BLOCK_SECTORS))
    };
    (first, count.min(size - first))
}

fn size(random: &mut Random) -> u64 {
    random.between(1, CHUNKS_MAX) * CHUNK_SECTORS + random.pick(&ODD_SIZES) * BLOCK_SECTORS
}

impl World {
    /// The next operation.
    pub(super) fn fsx_step(&mut self) -> Option<()> {
        self.scene.fsx.steps += 1;
        let roll = self.scene.fsx.random.below(100);
        match roll {
            0..40 => self.fsx_draw_change(Kind::Write),
            40..58 => self.fsx_draw_read(),
            58..65 => self.fsx_draw_change(Kind::Zero),
            65..71 => self.fsx_draw_change(Kind::Trim),
            71..73 => {
                let name = self.fsx_some_volume();
                self.fsx_flush(&name)
            }
            73..75 => {
                let name = self.fsx_some_volume();
                self.fsx_give_back(&name);
                Some(())
            }
            // One cut after the other; the rest waits until none is under way.
            _ if self.scene.fsx.cutting.is_some() => self.fsx_draw_change(Kind::Write),
            75..87 => self.fsx_draw_snapshot(roll < 79),
            87..91 => self.fsx_draw_deletion(),
            91..93 => {
                let name = self.fsx_some_snapshot()?;
                if self.scene.fsx.snapshots.len() < SNAPSHOTS_MAX { self.fsx_revert(&name) } else { None }
            }
            93..96 => self.fsx_draw_volume(roll),
            96..98 => {
                let name = self.fsx_some_volume();
                let size = size(&mut self.scene.fsx.random);
                self.fsx_resize(&name, size)
            }
            98 => self.fsx_compare_all(None),
            _ => {
                let others = self.other_volumes();
                if others.is_empty() {
                    return Some(());
                }
                let name = self.scene.fsx.random.pick(&others).clone();
                if self.scene.fsx.random.chance(50) {
                    let size = size(&mut self.scene.fsx.random);
                    return self.fsx_replace(&name, size);
                }
                if self.scene.fsx.volumes.len() == VOLUMES_MAX {
                    self.fsx_delete_volume(&name);
                }
                Some(())
            }
        }
    }

    fn fsx_some_volume(&mut self) -> String {
        let names: Vec<&String> = self.scene.fsx.volumes.keys().collect();
        (*self.scene.fsx.random.pick(&names)).clone()
    }

    fn fsx_some_snapshot(&mut self) -> Option<String> {
        let names: Vec<&String> = self.scene.fsx.snapshots.keys().collect();
        if names.is_empty() { None } else { Some((*self.scene.fsx.random.pick(&names)).clone()) }
    }

    fn fsx_draw_change(&mut self, kind: Kind) -> Option<()> {
        let name = self.fsx_some_volume();
        let size = self.scene.fsx.volumes.get(&name)?.image.size;
        let random = &mut self.scene.fsx.random;
        let (blocks_max, percent_whole) = match kind {
            Kind::Write => (WRITE_BLOCKS_MAX, 60),
            _ => (ZERO_BLOCKS_MAX, 40),
        };
        let (first, count) = range(random, size, blocks_max, percent_whole);
        let patience = random.chance(3).then(|| random.micros(10, 10_000));
        let change = Change { kind, first, count, value: self.scene.fsx.steps };
        self.fsx_change(&name, change, patience).map(|_| ())
    }

    fn fsx_draw_read(&mut self) -> Option<()> {
        let of_snapshot = self.scene.fsx.random.chance(40);
        let snapshot = if of_snapshot { self.fsx_some_snapshot() } else { None };
        let name = snapshot.unwrap_or_else(|| self.fsx_some_volume());
        let size = match self.scene.fsx.snapshots.get(&name) {
            Some(kept) => kept.image.size,
            None => self.scene.fsx.volumes.get(&name)?.image.size,
        };
        let (first, count) = range(&mut self.scene.fsx.random, size, ZERO_BLOCKS_MAX, 20);
        self.fsx_say(|| format!("read {first}+{count} of {name}"));
        self.fsx_read(&name, first, count)
    }

    fn fsx_draw_snapshot(&mut self, waits: bool) -> Option<()> {
        let mut volumes: Vec<String> = self.scene.fsx.volumes.keys().cloned().collect();
        let count =
            if self.scene.fsx.random.chance(50) { 1 } else { self.scene.fsx.random.between(1, volumes.len() as u64) };
        while volumes.len() as u64 > count {
            let at = self.scene.fsx.random.below(volumes.len() as u64) as usize;
            volumes.remove(at);
        }
        if self.scene.fsx.snapshots.len() + volumes.len() > SNAPSHOTS_MAX {
            return self.fsx_draw_deletion();
        }
        self.fsx_snapshot(&volumes, waits)
    }

    /// One snapshot goes, or several at once.
    fn fsx_draw_deletion(&mut self) -> Option<()> {
        let count = if self.scene.fsx.random.chance(60) { 1 } else { self.scene.fsx.random.between(2, 5) };
        for _ in 0..count {
            let name = self.fsx_some_snapshot()?;
            self.fsx_delete_snapshot(&name);
        }
        Some(())
    }

    fn fsx_draw_volume(&mut self, roll: u64) -> Option<()> {
        if self.scene.fsx.volumes.len() >= VOLUMES_MAX {
            return Some(());
        }
        let name = self.scene.fsx.new_name("volume");
        if roll == 95 && self.scene.fsx.random.chance(30) {
            let size = size(&mut self.scene.fsx.random);
            return self.fsx_create(&name, size);
        }
        if self.scene.fsx.random.chance(30) {
            let volume = self.fsx_some_volume();
            return self.fsx_clone_of_present(&volume, &name);
        }
        let snapshot = self.fsx_some_snapshot()?;
        let more = if self.scene.fsx.random.chance(70) { 0 } else { 100 * BLOCK_SECTORS };
        // The snapshot may go at once: the clone has all that it needs.
        let goes = self.scene.fsx.random.chance(30);
        self.fsx_clone(&snapshot, &name, more)?;
        if goes {
            self.fsx_delete_snapshot(&snapshot);
        }
        debug_assert!(self.scene.fsx.volumes.contains_key(volume_of(&snapshot)));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_inside_and_are_no_longer_than_a_write_may_be() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let size = size(&mut random);
            let (first, count) = range(&mut random, size, WRITE_BLOCKS_MAX, 50);
            assert!(count > 0 && first + count <= size, "{first}+{count} of {size}");
            let blocks = (first + count).div_ceil(BLOCK_SECTORS) - first / BLOCK_SECTORS;
            assert!(blocks <= WRITE_BLOCKS_MAX, "{first}+{count}");
        }
    }
}
