//! What one chunk holds.

use crate::cx::StoreCx;
use crate::effect::Completion;
use crate::map::{Entry, Leaf};
use crate::report::{ChunkDigest, DigestRun, Report};
use azekura_base::{BlockIndex, CHUNK_BLOCKS, Checksum, Checksums, Run, Sequence};

/// Says which blocks of a chunk take space. `leaf` is what a reader of it looks into.
pub(crate) fn status(cx: &mut StoreCx, token: u64, leaf: Option<&Leaf>) {
    let mut runs: Vec<Run> = Vec::new();
    match leaf {
        None => runs.push(Run { count: CHUNK_BLOCKS as u16, data: None }),
        Some(leaf) => {
            for entry in leaf.entries.iter() {
                match runs.last_mut() {
                    Some(run) if run.data == entry.data() => run.count += 1,
                    _ => runs.push(Run { count: 1, data: entry.data() }),
                }
            }
        }
    }
    cx.complete(Completion::Status { token, result: Ok(runs) });
}

/// Says what a chunk holds, as checksums. `own` is when the layer's own leaf was modified, if it has one.
pub(crate) fn digest(cx: &mut StoreCx, token: u64, own: Option<Sequence>, leaf: Option<&Leaf>) {
    let mut runs = Vec::new();
    match leaf {
        None => runs.push(DigestRun { first: BlockIndex(0), count: CHUNK_BLOCKS as u16, checksums: None }),
        Some(leaf) => {
            let entries: Vec<Entry> = leaf.entries.iter().copied().collect();
            for entries in entries.chunk_by(|a, b| a.data() == b.data()) {
                let first = runs.last().map_or(0, |run: &DigestRun| run.first.0 + run.count);
                // A lost block counts as what it held, like a damaged one: copies that have it, or miss it as well,
                // are level with this one (decision 0014). One of which nothing is known counts as what no block is.
                let sums = |key| entries.iter().map(|entry| Checksum(entry.checksum)).collect::<Checksums>().under(key);
                runs.push(DigestRun {
                    first: BlockIndex(first),
                    count: entries.len() as u16,
                    checksums: entries[0].data().map(sums),
                });
            }
        }
    }
    let digest = ChunkDigest { modified: own, runs };
    cx.report(Report::Digest { token, result: Ok(digest) });
}
