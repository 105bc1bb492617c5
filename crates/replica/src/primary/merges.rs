//! Writes of partial blocks: the missing edges are read, and the whole blocks ordered as one write.
//!
//! While a merge reads, no other write to its blocks is ordered, and a merge starts only when no uncommitted write
//! touches its blocks: what the merge reads is the latest there is, so the write is atomic. Every copy in sync has the
//! same contents then, so an edge that can't be read here is asked for at another copy.
//!
//! A write that expects something of what it replaces (0055) is one of these: its block is read, and compared.

use crate::action::Client;
use crate::limits::REIGN_SHIFT;
use crate::pending::Pending;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, Epoch, Extent, IoStatus, KeyGeneration, PageBuf, RequestId, SessionId,
    WriteHeader, is_zero,
};
use azekura_wire::WriteRequest;

pub(super) struct Merge {
    pub(super) id: u64,
    pub(super) client: Client,
    pub(super) write: WriteRequest,
    pub(super) blocks: BlockRange,
    /// The blocks at the edges that the write covers in part, and their contents once read.
    pub(super) edges: Vec<(BlockIndex, Option<Extent>)>,
}

impl Merge {
    /// The first byte, of those that the write is of, that is not what the write expects; once all edges are there.
    pub(super) fn difference(&self) -> Option<u16> {
        let expected = self.write.expected.as_ref()?;
        let at = self.write.offset as usize % BLOCK_SIZE;
        let range = at..at + self.write.len as usize;
        match self.edges.first()? {
            (_, Some(Extent::Data { bytes, .. })) => expected.first_difference(&bytes[range]),
            (_, Some(Extent::Zero { .. })) => expected.first_difference(&[0; BLOCK_SIZE][range]),
            (_, None) => None,
        }
    }

    /// What the write replaces or compares in part is encrypted under another generation of the key than the write's
    /// bytes, or those that it expects; once all edges are there. Blocks that were never written have no key.
    pub(super) fn other_key(&self) -> Option<IoStatus> {
        let Body::Data { checksums, .. } = &self.write.body else { return None };
        let replaces_whole = (self.write.len as usize).is_multiple_of(BLOCK_SIZE)
            && (self.write.offset as usize).is_multiple_of(BLOCK_SIZE);
        let written = (!replaces_whole).then(|| checksums.key());
        let expected = self.write.expected.as_ref().map(|expected| expected.key);
        let held = self.edges.iter().filter_map(|(_, contents)| match contents {
            Some(Extent::Data { checksums, .. }) => Some(checksums.key()),
            Some(Extent::Zero { .. }) | None => None,
        });
        let differs = |held| [written, expected].into_iter().flatten().any(|key| key != held);
        held.into_iter().any(differs).then_some(IoStatus::OtherKey)
    }
}

/// The merges of one group that are reading.
pub(crate) struct Merges {
    pub(super) merges: Vec<Merge>,
    pub(super) started: u64,
}

impl Merges {
    /// Names of merges are never used again, also not in a later reign: a late answer finds its own merge, or none.
    pub(crate) fn new(epoch: Epoch) -> Merges {
        Merges { merges: Vec::new(), started: epoch.0 << REIGN_SHIFT }
    }

    pub(crate) fn touches(&self, blocks: &BlockRange) -> bool {
        let holds = |merge: &&Merge| {
            #[cfg(feature = "sabotage")]
            if merge.write.expected.is_some() && crate::sabotage::compares_beside_writes() {
                return false;
            }
            merge.blocks.overlaps(blocks)
        };
        self.merges.iter().any(|merge| holds(&merge))
    }

    /// A write that is being merged was asked for again: the answer goes to `client`.
    pub(crate) fn adopt(&mut self, client: Client, session: SessionId, request: RequestId) -> bool {
        let same = |merge: &&mut Merge| merge.write.session == session && merge.write.request == request;
        self.merges.iter_mut().find(same).map(|merge| merge.client = client).is_some()
    }

    /// Takes out the merges of some writes; the blocks that they read come in vain.
    pub(crate) fn remove(&mut self, which: impl Fn(&WriteRequest) -> bool) -> Vec<(Client, RequestId)> {
        let removed = self.merges.extract_if(.., |merge| which(&merge.write));
        removed.map(|merge| (merge.client, merge.write.request)).collect()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Client, RequestId)> + '_ {
        self.merges.drain(..).map(|merge| (merge.client, merge.write.request))
    }

    /// The blocks that a merge will write, while it reads.
    pub(super) fn blocks(&self, id: u64) -> Option<BlockRange> {
        self.merges.iter().find(|merge| merge.id == id).map(|merge| merge.blocks)
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.blocks(id).is_some()
    }

    /// Takes out a merge that lacks an edge for good.
    pub(super) fn take(&mut self, id: u64) -> Option<(Client, RequestId)> {
        let at = self.merges.iter().position(|merge| merge.id == id)?;
        let merge = self.merges.remove(at);
        Some((merge.client, merge.write.request))
    }
}

/// The write with whole blocks.
pub(super) fn merged(header: WriteHeader, merge: Merge) -> Pending {
    let Merge { client, write, blocks, edges, .. } = merge;
    let mut buf = PageBuf::new(blocks.count as usize * BLOCK_SIZE);
    for (block, contents) in edges {
        let at = (block.0 - blocks.first.0) as usize * BLOCK_SIZE;
        let held = &mut buf[at..at + BLOCK_SIZE];
        match contents {
            Some(Extent::Data { bytes, .. }) => held.copy_from_slice(&bytes),
            Some(Extent::Zero { .. }) | None => held.fill(0),
        }
    }
    let mut key = KeyGeneration::FIRST;
    if let Body::Data { bytes, checksums } = &write.body {
        let at = write.offset as usize % BLOCK_SIZE;
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        key = checksums.key();
    }
    // Zeros take no space: a block that was trimmed stays so if it is compared with zeros and written as such, which
    // the rotation of a key does.
    let body = if is_zero(&buf) { Body::Zero } else { Body::data(buf.freeze()).under(key) };
    Pending {
        header,
        oldest: write.oldest,
        body: Some(body),
        client: Some(client),
        as_sent: false,
        ordered_at: std::time::Duration::ZERO,
    }
}
