//! Blocks kept in memory by their address. An address is written once between two uses of its segment, so a cached
//! block never goes stale: the key holds the segment's generation, and old ones fall out by themselves.
//!
//! The policy is S3-FIFO (Yang et al., SOSP 2023): a small queue that most blocks pass through once, a main queue for
//! those asked for again, and a memory of what has recently left the small queue.

use crate::hash::FixedMap;
use azekura_base::BLOCK_SIZE;
use bytes::Bytes;
use std::collections::VecDeque;

/// Memory of one cached block, about.
const ENTRY_BYTES: usize = BLOCK_SIZE + 160;
/// Share of the memory that the small queue has, in percent.
const SMALL_PERCENT: usize = 10;
/// Uses that a block is credited with at most.
const USES_MAX: u8 = 3;

#[derive(Debug)]
struct Cached {
    block: Bytes,
    uses: u8,
}

/// An address and the generation of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub address: u32,
    pub generation: u64,
}

/// The cache. See the module's description.
#[derive(Debug)]
pub(crate) struct ReadCache {
    blocks: FixedMap<CacheKey, Cached>,
    small: VecDeque<CacheKey>,
    main: VecDeque<CacheKey>,
    ghosts: VecDeque<CacheKey>,
    ghost_set: FixedMap<CacheKey, ()>,
    blocks_max: usize,
    pub hits: u64,
    pub misses: u64,
}

impl ReadCache {
    pub fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            blocks: FixedMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_set: FixedMap::default(),
            blocks_max: bytes_max / ENTRY_BYTES,
            hits: 0,
            misses: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        self.blocks_max > 0
    }

    pub fn bytes(&self) -> usize {
        self.blocks.len() * ENTRY_BYTES
    }

    pub fn get(&mut self, key: CacheKey) -> Option<Bytes> {
        match self.blocks.get_mut(&key) {
            Some(cached) => {
                cached.uses = (cached.uses + 1).min(USES_MAX);
                self.hits += 1;
                Some(cached.block.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Keeps `block`, which must own no more memory than a block.
    pub fn put(&mut self, key: CacheKey, block: Bytes) {
        if !self.is_on() || self.blocks.contains_key(&key) {
            return;
        }
        while self.blocks.len() >= self.blocks_max {
            self.evict();
        }
        if self.ghost_set.remove(&key).is_some() {
            self.main.push_back(key);
        } else {
            self.small.push_back(key);
        }
        self.blocks.insert(key, Cached { block, uses: 0 });
    }

    fn evict(&mut self) {
        let small_is_over = self.small.len() * 100 >= self.blocks_max * SMALL_PERCENT || self.main.is_empty();
        if small_is_over && let Some(key) = self.small.pop_front() {
            if self.blocks.get(&key).is_some_and(|c| c.uses > 0) {
                self.main.push_back(key);
            } else {
                self.blocks.remove(&key);
                self.remember(key);
            }
        } else if let Some(key) = self.main.pop_front() {
            match self.blocks.get_mut(&key) {
                Some(cached) if cached.uses > 0 => {
                    cached.uses -= 1;
                    self.main.push_back(key);
                }
                _ => {
                    self.blocks.remove(&key);
                }
            }
        }
    }

    fn remember(&mut self, key: CacheKey) {
        if self.ghosts.len() >= self.blocks_max
            && let Some(oldest) = self.ghosts.pop_front()
        {
            self.ghost_set.remove(&oldest);
        }
        self.ghosts.push_back(key);
        self.ghost_set.insert(key, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: u32) -> CacheKey {
        CacheKey { address, generation: 1 }
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let mut cache = ReadCache::new(100 * ENTRY_BYTES);
        for address in 0..50 {
            cache.put(key(address), Bytes::new());
            cache.get(key(address));
            cache.get(key(address));
        }
        for address in 1000..3000 {
            cache.put(key(address), Bytes::new());
        }
        assert!(cache.blocks.len() <= 100);
        let kept = (0..50).filter(|a| cache.get(key(*a)).is_some()).count();
        assert!(kept >= 45, "a scan left only {kept} of 50 blocks that had been used");
    }

    #[test]
    fn generations_are_apart() {
        let mut cache = ReadCache::new(1 << 20);
        cache.put(CacheKey { address: 7, generation: 1 }, Bytes::from_static(b"old"));
        assert!(cache.get(CacheKey { address: 7, generation: 2 }).is_none());
        assert_eq!(cache.get(CacheKey { address: 7, generation: 1 }).unwrap(), "old");
    }
}
