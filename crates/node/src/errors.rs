//! Errors of a device: how many are more than a sound device has.

use crate::{DAMAGED_BLOCKS_MAX, REFUSED_READS_MAX};
use azekura_base::{BlockIndex, ChunkIndex, LayerId};
use azekura_store::ReadError;
use std::collections::BTreeSet;

/// Errors of a device since the process started.
#[derive(Default)]
pub(crate) struct Errors {
    /// Blocks that have failed their checksum.
    damaged: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    refused_reads: u32,
    /// They are more than a sound device has, and that has been told.
    too_many: bool,
}

impl Errors {
    /// One error that is too many by itself. True when there was too much already.
    pub(crate) fn is_failing(&mut self) -> bool {
        std::mem::replace(&mut self.too_many, true)
    }

    /// Counts an error of a read in this chunk. What to tell when that makes them too many.
    pub(crate) fn count(&mut self, place: Option<(LayerId, ChunkIndex)>, error: &ReadError) -> Option<String> {
        match (error, place) {
            (ReadError::Checksum { block }, Some((layer, chunk))) if !self.too_many => {
                self.damaged.insert((layer, chunk, *block));
            }
            // One damaged leaf of the map is one error.
            (ReadError::Unknown { .. }, Some((layer, chunk))) if !self.too_many => {
                self.damaged.insert((layer, chunk, BlockIndex(0)));
            }
            (ReadError::Device(_), _) => self.refused_reads += 1,
            _ => {}
        }
        let (damaged, refused) = (self.damaged.len(), self.refused_reads);
        if self.too_many || damaged < DAMAGED_BLOCKS_MAX && refused < REFUSED_READS_MAX {
            return None;
        }
        self.too_many = true;
        Some(format!("{damaged} blocks have failed their checksum and {refused} reads were refused; the last: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_store::DeviceError;

    #[test]
    fn many_damaged_blocks_are_too_many_and_one_that_is_read_often_is_not() {
        let mut errors = Errors::default();
        let at =
            |block: usize| (Some((LayerId(1), ChunkIndex(2))), ReadError::Checksum { block: BlockIndex(block as u16) });
        for _ in 0..10 * DAMAGED_BLOCKS_MAX {
            let (place, error) = at(7);
            assert_eq!(errors.count(place, &error), None);
        }
        let reasons: Vec<String> = (100..100 + DAMAGED_BLOCKS_MAX)
            .filter_map(|block| {
                let (place, error) = at(block);
                errors.count(place, &error)
            })
            .collect();
        assert_eq!(reasons.len(), 1, "the device is given up once");
        assert!(reasons[0].starts_with("256 blocks have failed their checksum and 0 reads"), "{}", reasons[0]);
    }

    #[test]
    fn reads_that_the_device_refuses_are_counted_wherever_they_are() {
        let mut errors = Errors::default();
        let refused = ReadError::Device(DeviceError("Input/output error".into()));
        for _ in 1..REFUSED_READS_MAX {
            assert_eq!(errors.count(None, &refused), None);
        }
        assert_eq!(errors.count(None, &ReadError::NotPrepared), None);
        assert!(errors.count(None, &refused).is_some_and(|why| why.contains("Input/output error")));
        assert_eq!(errors.count(None, &refused), None);
    }
}
