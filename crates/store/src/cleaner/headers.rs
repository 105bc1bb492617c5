//! What was written into a segment of moved blocks: its headers say it, since it has no summary. Where they are is
//! known of a segment that was written in this life of the store; in others each is looked for behind the one before.

use crate::log::format::{Batch, BatchHeader, BatchKind, Contents, Kind, header_blocks, stated_header_blocks};
use crate::options::{Identity, Options};
use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS};
use bytes::Bytes;
use std::collections::VecDeque;

/// The headers of a victim, as far as they have been read.
#[derive(Debug)]
pub(super) struct Headers {
    /// Where to read next, and how many blocks; without a number as many as a header has at the most.
    todo: VecDeque<(u32, Option<u32>)>,
    /// Reads in flight.
    reads: usize,
    /// Each is looked for behind the one before; the last of them.
    walk: Option<Option<BatchHeader>>,
    /// A header that is known to have been written is not whole.
    broken: bool,
    contents: Contents,
}

impl Headers {
    /// Of a segment whose batches begin at `known`, or of which that is not known.
    pub fn new(known: Option<&Vec<u32>>) -> Headers {
        let todo =
            known.map_or(VecDeque::from([(0, None)]), |known| known.iter().map(|block| (*block, None)).collect());
        let walk = known.is_none().then_some(None);
        Headers { todo, reads: 0, walk, broken: false, contents: Contents::new() }
    }

    /// They were looked for one behind the other: there may have been more.
    pub fn were_walked(&self) -> bool {
        self.walk.is_some()
    }

    /// The next blocks to read of the segment: the first, and how many.
    pub fn next(&mut self, options: &Options) -> Option<(u32, u32)> {
        let (block, blocks) = self.todo.pop_front()?;
        self.reads += 1;
        let batch = options.batch_blocks_max.max(CHUNK_BLOCKS as u32) as usize;
        let most = header_blocks(options.batch_records_max as usize * Kind::Relocated.head_bytes() + batch * 4);
        Some((block, blocks.unwrap_or(most).min(options.segment_blocks - block)))
    }

    /// The blocks of `segment` from `block` on have been read.
    pub fn read(&mut self, identity: &Identity, options: &Options, (segment, block): (u32, u32), bytes: &Bytes) {
        self.reads -= 1;
        let blocks = (bytes.len() / BLOCK_SIZE) as u32;
        let stated = stated_header_blocks(bytes).filter(|stated| *stated > blocks);
        if let Some(stated) = stated.filter(|stated| *stated <= options.segment_blocks - block) {
            return self.todo.push_back((block, Some(stated)));
        }
        let batch = Batch::decode(bytes, identity).filter(|batch| {
            let header = &batch.header;
            batch.kind == BatchKind::Moves
                && (header.segment, header.block) == (segment, block)
                && header.blocks() <= options.segment_blocks - block
                && self.walk.is_none_or(|last| header.follows_moves(last.as_ref()))
        });
        let Some(batch) = batch else {
            self.broken |= self.walk.is_none();
            return;
        };
        self.contents.push((block + batch.header.header_blocks, Bytes::copy_from_slice(batch.entries)));
        if let Some(last) = &mut self.walk {
            *last = Some(batch.header);
            let next = block + batch.header.blocks();
            if next < options.segment_blocks {
                self.todo.push_back((next, None));
            }
        }
    }

    /// All of them, once nothing is left to be read; none, if that is not what was written.
    pub fn take(&mut self) -> Option<Option<Contents>> {
        let done = self.todo.is_empty() && self.reads == 0;
        let whole = !self.broken && !self.contents.is_empty();
        done.then(|| whole.then(|| std::mem::take(&mut self.contents)))
    }
}
