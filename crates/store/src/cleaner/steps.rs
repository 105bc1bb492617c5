//! The cleaner's steps that have to do with segments of moved blocks: writing them, and reading their headers.

use crate::cleaner::Cleaner;
use crate::cleaner::apart::ApartPlan;
use crate::cleaner::headers::Headers;
use crate::cleaner::victim::{Stage, Victim, VictimRead};
use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, IoId};
use crate::log::format::Contents;

impl Cleaner {
    /// Writes what waits to be moved into segments of its own, as much as clients have earned; with `short`, as much as
    /// there is. Where there is no room for another segment, it is left to the log.
    pub fn write_apart(&mut self, cx: &mut StoreCx, short: bool) {
        self.mover.go_apart(cx, self.apart.is_usable(cx));
        while self.apart.may_send(cx) && self.apart_is_worthwhile(cx, short) {
            let Some(segment) = self.apart.open(cx) else { return self.mover.go_apart(cx, false) };
            assert!(!self.mover.waits_from(cx.segments(), segment), "what is to be moved is written over");
            let (mut plan, mut moves) = (ApartPlan::default(), Vec::new());
            while let Some(count) = self.mover.apart().front().map(|moved| moved.range.count) {
                let blocks = self.apart.room(cx, &plan, count);
                if blocks == 0 {
                    break;
                }
                plan.take(blocks);
                moves.extend(self.mover.pop_apart(blocks));
            }
            if moves.is_empty() {
                self.apart.close(cx);
                continue;
            }
            if short {
                self.pace.spend(plan.payload())
            } else {
                self.pace.spend_ahead(plan.payload())
            }
            self.apart.write(cx, moves);
        }
    }

    /// There is enough to be moved for a batch, or there is no more to come soon.
    fn apart_is_worthwhile(&self, cx: &StoreCx, short: bool) -> bool {
        let (moves, options) = (self.mover.apart(), cx.options());
        let enough = || {
            let full = self.mover.apart_blocks() >= options.batch_blocks_max.min(options.cleaning_blocks_in_flight_max);
            let more = self.goes_on && self.mover.blocks() > self.mover.queued_blocks() || self.is_asking();
            full || moves.len() >= options.batch_records_max as usize || !more
        };
        !moves.is_empty() && (short || self.pace.credit() > 0.0 && enough())
    }

    /// What of the victim is live is being found out.
    fn is_asking(&self) -> bool {
        self.victim.as_ref().is_some_and(|victim| !matches!(victim.stage, Stage::Reading))
    }

    /// Moved blocks are durable in a segment of their own.
    pub fn moves_written(&mut self, cx: &mut StoreCx, io: IoId) {
        self.apart.on_written(cx, io);
    }

    /// The victim has no summary.
    pub(super) fn read_headers(&mut self, cx: &mut StoreCx) {
        let Some(victim) = &mut self.victim else { return };
        let headers = Headers::new(self.apart.batches_of(victim.segment));
        victim.walked = headers.were_walked();
        victim.stage = Stage::Headers(headers);
        self.read_more_headers(cx);
    }

    pub(super) fn read_more_headers(&mut self, cx: &mut StoreCx) {
        let Some(Victim { id, segment, stage: Stage::Headers(headers), .. }) = &mut self.victim else { return };
        while let Some((block, blocks)) = headers.next(cx.options()) {
            let address = cx.segments().address(*segment, block);
            self.mover.read(cx, VictimRead { victim: *id, segment: *segment, address, runs: Vec::new() }, blocks);
        }
        match headers.take() {
            Some(Some(contents)) => self.look_up_owners(cx, contents),
            Some(None) => self.give_up(cx),
            None => {}
        }
    }

    /// It is known what was written into the victim.
    pub(super) fn look_up_owners(&mut self, cx: &mut StoreCx, contents: Contents) {
        let Some(victim) = &mut self.victim else { return };
        victim.stage = Stage::MergedOwners(contents);
        victim.owners_saved = false;
        let io = cx.new_io(Io::MergedOwners(victim.id));
        cx.ask(Effect::LoadMergedOwners { io, segment: victim.segment });
    }
}
