//! A volume is deleted while somebody has it open, and another one gets its name.

use super::client::TOKENS;
use super::state::Stray;
use crate::kernel::process::Life;
use crate::workloads::contents::{SECTOR_SIZE, encode};
use crate::world::World;
use azekura_frontend::Request;

/// Tokens of requests of whoever has a deleted volume open: of which nobody waits for the end.
const STRAY_TOKENS: u64 = TOKENS + (1 << 40);
/// Sectors that each such request writes.
const STRAY_SECTORS: u64 = 8;

impl World {
    /// Deletes a volume that is open and makes another one of its name. Whoever has the old one open goes on writing,
    /// and nothing of that is ever in the new one.
    pub(super) fn fsx_replace(&mut self, name: &str, size: u64) -> Option<()> {
        let (_, line) = self.fsx_attach(name, None)?;
        let before = self.scene.fsx.volumes.get(name)?.image.size;
        self.fsx_delete_volume(name);
        self.scene.fsx.stray = Some(Stray { line, sectors: before.min(size), asked: 0 });
        self.fsx_create(name, size)?;
        self.count("name used again");
        for _ in 0..self.scene.fsx.random.between(1, 6) {
            let pause = self.scene.fsx.random.spread_millis(1, 200);
            self.run_until(self.now + pause, |_| false);
            self.fsx_stray();
        }
        self.scene.fsx.stray = None;
        self.fsx_read(name, 0, size.min(before))
    }

    /// A process has heard of the configuration, and whoever has a deleted volume open there asks at the same moment.
    pub(crate) fn fsx_news(&mut self, life: Life) {
        if self.scene.fsx.stray.is_some_and(|stray| self.connections().life(stray.line) == Some(life)) {
            self.fsx_stray();
        }
    }

    /// Writes on a connection to what is deleted.
    fn fsx_stray(&mut self) {
        let Some(Stray { line, sectors, asked: nth }) = self.scene.fsx.stray else { return };
        let Some(life) = self.connections().life(line).filter(|life| self.stalled(*life).is_none()) else { return };
        self.scene.fsx.stray = Some(Stray { line, sectors, asked: nth + 1 });
        let first = self.scene.fsx.random.below(sectors - STRAY_SECTORS + 1);
        self.fsx_say(|| format!("writes {first}+{STRAY_SECTORS} to what is deleted, through {:?}", life.endpoint()));
        let bytes = encode(self.scene.fsx.steps, first, STRAY_SECTORS);
        let token = STRAY_TOKENS + (self.scene.fsx.steps << 20) + nth;
        self.submit(line, token, Request::Write { offset: first * SECTOR_SIZE as u64, bytes });
    }
}
