//! What the usurper does in the world.

use crate::cluster::records::VOLUME;
use crate::cue::Cue;
use crate::plan::Mode;
use crate::world::World;

impl World {
    /// An operator ends some attachments by force, through one of the nodes.
    pub(crate) fn usurp(&mut self) {
        if !self.works() {
            return;
        }
        let often = self.plan.mode == Mode::Attachments && !self.holders().alone;
        let pause = if often { 1500 } else { 20_000 };
        let again = self.now + self.scene.usurper.random.spread_millis(20, pause);
        self.cue_at(again, Cue::Usurp);
        let standing = self.attachments(VOLUME).map(|now| now.attachments).unwrap_or_default();
        let reaching = self.reaching();
        if standing.is_empty() || reaching.is_empty() {
            return;
        }
        let random = &mut self.scene.usurper.random;
        let from = *random.pick(&reaching);
        let all = random.chance(40);
        let one = random.pick(&standing).node;
        let whose = (!all).then_some(one);
        self.count("attachment ended by force");
        self.trace.step(self.now, u64::from(one.0), || format!("operator at {from:?} ends attachments of {whose:?}"));
        self.end_attachments(from, VOLUME, whose);
    }
}
