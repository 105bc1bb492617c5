//! How large a volume shall be.

use azekura_base::{BLOCK_SIZE, VOLUME_SIZE_MAX};
use tonic::Status;

use crate::Outcome;
use crate::proto::CapacityRange;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The size of a volume of which nobody says how large it shall be.
const DEFAULT_BYTES: u64 = 1 << 30;

/// Sizes that will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// At least so many bytes.
    pub(crate) least: u64,
    /// At most so many.
    pub(crate) most: u64,
}

impl Range {
    /// The sizes that a request asks for.
    pub(crate) fn read(range: Option<&CapacityRange>) -> Outcome<Range> {
        let CapacityRange { required_bytes, limit_bytes } = range.copied().unwrap_or_default();
        let read = |name: &str, value: i64| {
            let negative = |_| Status::invalid_argument(format!("{name} is {value}: a size is not less than 0"));
            u64::try_from(value).map_err(negative)
        };
        let least = read("required_bytes", required_bytes)?;
        let most = match read("limit_bytes", limit_bytes)? {
            0 => VOLUME_SIZE_MAX,
            limit => limit.min(VOLUME_SIZE_MAX),
        };
        if limit_bytes > 0 && required_bytes > limit_bytes {
            let reason = format!("required_bytes ({required_bytes}) is more than limit_bytes ({limit_bytes})");
            return Err(Status::invalid_argument(reason));
        }
        Ok(Range { least, most })
    }

    /// Whether a volume of this size will do.
    pub(crate) fn has(self, bytes: u64) -> bool {
        (self.least..=self.most).contains(&bytes)
    }

    /// The size to take for a volume that is empty: whole blocks, and not less than `floor` bytes, which its file
    /// system needs.
    pub(crate) fn choose_empty(self, floor: u64) -> Outcome<u64> {
        if self.most < floor {
            let reason = format!("the file system needs at least {floor} bytes, and at most {} are wanted", self.most);
            return Err(Status::out_of_range(reason));
        }
        Ok(self.choose(None)?.max(floor))
    }

    /// The size to take: whole blocks, and not less than `content` that is to be in it.
    pub(crate) fn choose(self, content: Option<u64>) -> Outcome<u64> {
        let wanted = match (self.least, content) {
            (0, None) => DEFAULT_BYTES.min(self.most / BLOCK * BLOCK),
            (least, content) => least.max(content.unwrap_or(0)),
        };
        let bytes = wanted.max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        if bytes > self.most {
            let reason = format!(
                "a volume here has whole blocks of {BLOCK} bytes, at most {VOLUME_SIZE_MAX} bytes, and not less than \
                 its content ({} bytes): none fits between {} and {} bytes",
                content.unwrap_or(0),
                self.least,
                self.most
            );
            return Err(Status::out_of_range(reason));
        }
        Ok(bytes)
    }
}

/// As the messages have sizes.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> Outcome<Range> {
        Range::read(Some(&CapacityRange { required_bytes, limit_bytes }))
    }

    #[test]
    fn sizes_are_whole_blocks() {
        assert_eq!(Range::read(None).unwrap().choose(None).unwrap(), DEFAULT_BYTES);
        assert_eq!(range(1, 0).unwrap().choose(None).unwrap(), BLOCK);
        assert_eq!(range(5000, 8192).unwrap().choose(None).unwrap(), 8192);
        assert_eq!(range(0, 10_000).unwrap().choose(None).unwrap(), 8192);
        assert_eq!(range(4096, 0).unwrap().choose(Some(12_288)).unwrap(), 12_288);
    }

    #[test]
    fn a_file_system_has_the_room_that_it_needs() {
        const FLOOR: u64 = 300 << 20;
        assert_eq!(range(1, 0).unwrap().choose_empty(FLOOR).unwrap(), FLOOR);
        assert_eq!(range(1 << 30, 0).unwrap().choose_empty(FLOOR).unwrap(), 1 << 30);
        assert_eq!(range(0, 0).unwrap().choose_empty(FLOOR).unwrap(), DEFAULT_BYTES);
        assert_eq!(range(0, 300 << 20).unwrap().choose_empty(FLOOR).unwrap(), FLOOR);
        let short = range(1, (300 << 20) - 1).unwrap().choose_empty(FLOOR).unwrap_err();
        assert_eq!(short.code(), tonic::Code::OutOfRange);
        assert!(short.message().contains("file system needs"), "{}", short.message());
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let code = |outcome: Outcome<Range>| outcome.and_then(|range| range.choose(None)).unwrap_err().code();
        assert_eq!(code(range(-1, 0)), tonic::Code::InvalidArgument);
        assert_eq!(code(range(0, -1)), tonic::Code::InvalidArgument);
        assert_eq!(code(range(8192, 4096)), tonic::Code::InvalidArgument);
        assert_eq!(code(range(4097, 5000)), tonic::Code::OutOfRange);
        assert_eq!(code(range(0, 4095)), tonic::Code::OutOfRange);
        assert_eq!(code(range(i64::MAX, 0)), tonic::Code::OutOfRange);
        let content = range(4096, 8192).unwrap().choose(Some(12_288)).unwrap_err();
        assert_eq!(content.code(), tonic::Code::OutOfRange);
        assert!(content.message().contains("12288"), "{}", content.message());
    }
}
