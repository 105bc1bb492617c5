//! Chunks are compared by digests.

use super::resync::Comparison;
use crate::action::Action;
use crate::context::GroupCx;
use crate::digest;
use crate::primary::Primary;
use crate::primary::peer::{Peer, Standing};
use azekura_base::{BlockIndex, BlockRange, DeviceId, Extent, IoStatus};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Message};

impl Primary {
    pub(super) fn send_compare(&mut self, cx: &mut GroupCx, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        let epoch = self.epoch();
        let asks = |peer: &Peer| matches!(&peer.standing, Standing::Learning(r) if r.comparing.contains_key(&id));
        let Some(device) = self.peers.iter().find(|(_, peer)| asks(peer)).map(|(device, _)| *device) else { return };
        let Some((resync, heard)) = self.resync(device) else { return };
        let Some(comparison) = resync.comparing.get_mut(&id) else { return };
        let (layer, chunk) = (comparison.layer, comparison.chunk);
        let Ok(extents) = contents else {
            cx.allowance.settle_chunk(&[]);
            cx.act(Action::LoadChecksums { id, layer, chunk });
            return;
        };
        *heard = cx.now;
        cx.allowance.settle_chunk(&extents);
        let blocks = digest::blocks(&extents);
        let spans = digest::spans(&blocks);
        comparison.digests = Some(blocks);
        resync.note_answer(cx.now);
        let compare = Compare { pg: cx.pg, device, epoch, id, layer, chunk, light: false, spans };
        cx.act(Action::Send(device, Message::Compare(compare)));
    }

    /// The checksums of a chunk that can't be read are looked up.
    pub(crate) fn send_light_compare(&mut self, cx: &mut GroupCx, id: u64, digests: Result<Vec<u64>, IoStatus>) {
        let epoch = self.epoch();
        let asks = |peer: &Peer| matches!(&peer.standing, Standing::Learning(r) if r.comparing.contains_key(&id));
        let Some(device) = self.peers.iter().find(|(_, peer)| asks(peer)).map(|(device, _)| *device) else { return };
        let Some((resync, heard)) = self.resync(device) else { return };
        let Ok(blocks) = digests else {
            if let Some(Comparison { layer, chunk, .. }) = resync.comparing.remove(&id) {
                resync.put_off(layer, chunk);
            }
            return;
        };
        let Some(comparison) = resync.comparing.get_mut(&id) else { return };
        *heard = cx.now;
        let spans = digest::spans(&blocks);
        comparison.digests = Some(blocks);
        let (layer, chunk) = (comparison.layer, comparison.chunk);
        resync.note_answer(cx.now);
        let compare = Compare { pg: cx.pg, device, epoch, id, layer, chunk, light: true, spans };
        cx.act(Action::Send(device, Message::Compare(compare)));
    }

    /// A copy says what differs in a chunk.
    pub(crate) fn on_compare_ok(&mut self, cx: &mut GroupCx, device: DeviceId, ok: CompareOk) {
        let now = cx.now;
        if self.scrub_compared(cx, device, &ok) {
            return;
        }
        let Some(resync) = self.heard_learner(cx, device, ok.epoch, now) else { return };
        let Some(Comparison { layer, chunk, of_descendant, digests: Some(own) }) = resync.comparing.remove(&ok.id)
        else {
            return;
        };
        if ok.gone {
            // The list of changes was made by an older configuration than the copy knows: the list is made anew.
            self.forget_learner(device);
            return;
        }
        resync.compared(of_descendant);
        if ok.differing.is_empty() && !of_descendant {
            // The copy must know of the change all the same: the copy may be the source of another resync one day.
            // Zeros say that the chunk has changed, and take no space.
            let first = own.iter().position(|digest| *digest == 0).unwrap_or(0);
            resync.mark(layer, chunk, BlockIndex(first as u16));
        }
        for span in ok.differing {
            let at = usize::from(span.index) * DIGEST_SPAN_BLOCKS;
            let differs = |n: usize| span.blocks.get(n) != own.get(at + n);
            let mut n = 0;
            while n < DIGEST_SPAN_BLOCKS {
                let run = (n..DIGEST_SPAN_BLOCKS).take_while(|n| differs(*n)).count();
                if run > 0 {
                    let (first, count) = (BlockIndex((at + n) as u16), run as u16);
                    resync.found.push_back(BlockRange { layer, chunk, first, count });
                }
                n += run + 1;
            }
        }
        self.run_resyncs(cx);
    }
}
