//! Copying by the target (SPC-4 section 5.17): EXTENDED COPY with list identifiers of one byte, which SPC-4 calls LID1,
//! and RECEIVE COPY RESULTS. Blocks are copied inside of a disk, and between those that are units of the same target
//! and have blocks of one size: others are not reachable.

use super::blocks::range;
use super::inquiry::naa;
use super::sense::Sense;
use super::{Cdb, Disk, PARAMETERS_MAX, Plan, Range, Use};

/// The most CSCD descriptors ("copy source, copy destination") of one command.
pub const TARGETS_MAX: u16 = 8;
/// The most segment descriptors of one command.
pub const SEGMENTS_MAX: u16 = 16;
/// Bytes of all descriptors.
pub const DESCRIPTORS_MAX: u32 = TARGETS_MAX as u32 * TARGET_BYTES as u32 + SEGMENTS_MAX as u32 * SEGMENT_BYTES as u32;
/// Logical blocks that one segment copies at the most: as many as its descriptor can name.
pub const SEGMENT_BLOCKS_MAX: u16 = u16::MAX;

const HEADER_BYTES: usize = 16;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
/// Identification descriptor CSCD descriptor (section 6.4).
const IDENTIFICATION: u8 = 0xe4;
/// Block device to block device (section 6.4).
const BLOCK_TO_BLOCK: u8 = 0x02;
/// The service actions of RECEIVE COPY RESULTS.
const COPY_STATUS: u8 = 0x00;
const OPERATING_PARAMETERS: u8 = 0x03;

/// What is copied, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The logical unit that is read.
    pub from_unit: u16,
    /// The source.
    pub from: Range,
    /// The logical unit that is written.
    pub to_unit: u16,
    /// First byte of the destination.
    pub to: u64,
}

impl Segment {
    /// Pieces of it, in an order in which none overwrites what another one is to read.
    pub fn pieces(self, piece_bytes: u64) -> impl Iterator<Item = Segment> {
        let Segment { from_unit, from, to_unit, to } = self;
        let count = from.len.div_ceil(piece_bytes);
        let is_overwritten = from_unit == to_unit && to > from.offset && to < from.offset + from.len;
        (0..count).map(move |number| {
            let at = piece_bytes * if is_overwritten { count - 1 - number } else { number };
            let len = piece_bytes.min(from.len - at);
            Segment { from_unit, from: Range { offset: from.offset + at, len }, to_unit, to: to + at }
        })
    }
}

/// A parameter list of EXTENDED COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// By which RECEIVE COPY RESULTS asks for it; `None`: nobody will ask.
    pub id: Option<u8>,
    /// What to copy, in this order.
    pub segments: Vec<Segment>,
}

/// How a copy is getting on, or has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Segments that are done.
    pub segments: u16,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// COPY MANAGER STATUS: whether a copy goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It does.
    InProgress = 0,
    /// All is copied.
    Done = 1,
    /// It has failed.
    Failed = 2,
}

/// EXTENDED COPY(LID1) (sections 6.4 and 6.5), before its parameters have come.
pub(crate) fn extended_copy(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    let len = cdb.u32(10);
    match cdb.0[1] & 0x1f {
        0 if disk.is_read_only => Plan::Check(Sense::WRITE_PROTECTED),
        0 if len == 0 => Plan::good(),
        0 if len > PARAMETERS_MAX => Plan::Check(Sense::LIST_LENGTH),
        0 => Plan::Take(len, Use::Copy),
        _ => Plan::Check(Sense::FIELD),
    }
}

/// Bytes that one segment copies at the most.
fn segment_bytes_max(disk: &Disk) -> u32 {
    u32::from(SEGMENT_BLOCKS_MAX) * disk.block_bytes()
}

/// RECEIVE COPY RESULTS: two of its service actions.
pub(crate) fn results(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    let room = cdb.u32(10);
    match cdb.0[1] & 0x1f {
        COPY_STATUS => Plan::CopyStatus(cdb.0[2], room),
        OPERATING_PARAMETERS => Plan::data(operating_parameters(disk), room),
        _ => Plan::Check(Sense::FIELD),
    }
}

/// The service action RECEIVE COPY OPERATING PARAMETERS.
fn operating_parameters(disk: &Disk) -> Vec<u8> {
    const SNLID: u8 = 1;
    let mut bytes = vec![0; 44];
    bytes[4] = SNLID;
    bytes[8..10].copy_from_slice(&TARGETS_MAX.to_be_bytes());
    bytes[10..12].copy_from_slice(&SEGMENTS_MAX.to_be_bytes());
    bytes[12..16].copy_from_slice(&DESCRIPTORS_MAX.to_be_bytes());
    bytes[16..20].copy_from_slice(&segment_bytes_max(disk).to_be_bytes());
    // Copies at a time: of all nexuses, and of one; they are tasks like all others.
    bytes[34..36].copy_from_slice(&u16::MAX.to_be_bytes());
    (bytes[36], bytes[37]) = (crate::TASKS_MAX as u8, disk.block.power());
    bytes[43] = 2;
    bytes.extend_from_slice(&[BLOCK_TO_BLOCK, IDENTIFICATION]);
    let following = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&following.to_be_bytes());
    bytes
}

/// The answer to RECEIVE COPY STATUS(LID1). There is no held data.
#[must_use]
pub fn status_data(state: State, progress: Progress) -> Vec<u8> {
    const HELD_DATA_DISCARDED: u8 = 0x80;
    const IN_BYTES: u8 = 0;
    let [high, low] = progress.segments.to_be_bytes();
    let count = u32::try_from(progress.bytes).unwrap_or(u32::MAX);
    [&[0, 0, 0, 8, HELD_DATA_DISCARDED | state as u8, high, low, IN_BYTES][..], &count.to_be_bytes()].concat()
}

/// The third-party copy page (section 7.8.17), without its header.
pub(crate) fn vital_product_data(disk: &Disk) -> Vec<u8> {
    const COMMANDS: u16 = 0x0001;
    const PARAMETERS: u16 = 0x0004;
    const DESCRIPTORS: u16 = 0x0008;
    const IDS: u16 = 0x000c;
    const OPERATIONS: u16 = 0x8001;
    use super::opcodes::{EXTENDED_COPY, RECEIVE_COPY_RESULTS};
    let mut bytes = Vec::new();
    let mut put = |kind: u16, mut body: Vec<u8>| {
        body.resize(body.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&body);
    };
    put(COMMANDS, vec![7, EXTENDED_COPY, 1, 0, RECEIVE_COPY_RESULTS, 2, COPY_STATUS, OPERATING_PARAMETERS]);
    let counts = [TARGETS_MAX.to_be_bytes(), SEGMENTS_MAX.to_be_bytes()].concat();
    put(PARAMETERS, [&[0; 4][..], &counts, &DESCRIPTORS_MAX.to_be_bytes(), &[0; 16]].concat());
    put(DESCRIPTORS, vec![2, BLOCK_TO_BLOCK, IDENTIFICATION]);
    put(IDS, vec![0, 0]);
    let copies =
        [u32::from(u16::MAX).to_be_bytes(), crate::TASKS_MAX.to_be_bytes(), segment_bytes_max(disk).to_be_bytes()];
    put(OPERATIONS, [&copies.concat()[..], &[disk.block.power()], &[0; 19]].concat());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The parameter list of EXTENDED COPY (section 6.4), where there are these disks, by the numbers of their logical
/// units. All of it is looked at before anything is copied.
///
/// # Errors
/// When it is cut off or longer than was said, or names what there is not.
pub fn parse(disks: &[(u16, &Disk)], bytes: &[u8]) -> Result<List, Sense> {
    const RESERVED_USAGE: u8 = 1;
    const NO_ID: u8 = 3;
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(Sense::LIST_LENGTH)?;
    let targets = number(&header[2..4]) as usize;
    let segments = number(&header[8..12]) as usize;
    if targets + segments > DESCRIPTORS_MAX as usize {
        return Err(Sense::LIST_LENGTH);
    }
    if number(&header[12..16]) > 0 {
        return Err(Sense::INLINE_DATA);
    }
    let id = match header[1] >> 3 & 3 {
        RESERVED_USAGE => return Err(Sense::PARAMETER),
        NO_ID => None,
        _ => Some(header[0]),
    };
    let (targets, rest) = rest.split_at_checked(targets).ok_or(Sense::LIST_LENGTH)?;
    let (segments, _) = rest.split_at_checked(segments).ok_or(Sense::LIST_LENGTH)?;
    let targets = targets_of(targets)?;
    Ok(List { id, segments: segments_of(disks, targets, segments)? })
}

/// The CSCD descriptors of a list.
fn targets_of(bytes: &[u8]) -> Result<&[[u8; TARGET_BYTES]], Sense> {
    let (targets, rest) = bytes.as_chunks::<TARGET_BYTES>();
    if targets.len() > usize::from(TARGETS_MAX) {
        return Err(Sense::TOO_MANY_TARGETS);
    }
    if targets.iter().map(|target| target[0]).chain(rest.first().copied()).any(|code| code != IDENTIFICATION) {
        return Err(Sense::TARGET_TYPE);
    }
    if rest.is_empty() { Ok(targets) } else { Err(Sense::PARAMETER) }
}

/// The segment descriptors of a list. One of another kind has another length, too: what is behind it is not looked at.
fn segments_of(disks: &[(u16, &Disk)], targets: &[[u8; TARGET_BYTES]], bytes: &[u8]) -> Result<Vec<Segment>, Sense> {
    let (descriptors, rest) = bytes.as_chunks::<SEGMENT_BYTES>();
    if descriptors.len() > usize::from(SEGMENTS_MAX) {
        return Err(Sense::TOO_MANY_SEGMENTS);
    }
    let mut segments = Vec::new();
    for descriptor in descriptors {
        if descriptor[0] != BLOCK_TO_BLOCK {
            return Err(Sense::SEGMENT_TYPE);
        }
        if number(&descriptor[2..4]) as usize != SEGMENT_BYTES - 4 {
            return Err(Sense::PARAMETER);
        }
        let reached = |index: &[u8]| {
            let target = targets.get(number(index) as usize).ok_or(Sense::UNREACHABLE_TARGET)?;
            reach(disks, target)
        };
        let ((from_unit, source), (to_unit, destination)) = (reached(&descriptor[4..6])?, reached(&descriptor[6..8])?);
        // Blocks of both are of one size, so that DC and CAT say nothing.
        if source.block != destination.block {
            return Err(Sense::PARAMETER);
        }
        if destination.is_read_only {
            return Err(Sense::WRITE_PROTECTED);
        }
        let count = number(&descriptor[10..12]);
        let place = |disk, first: &[u8]| range(disk, number(first), count).map_err(|_| Sense::COPY_ABORTED);
        let (from, to) = (place(source, &descriptor[12..20])?, place(destination, &descriptor[20..28])?);
        segments.push(Segment { from_unit, from, to_unit, to: to.offset });
    }
    match rest.first() {
        None => Ok(segments),
        Some(&BLOCK_TO_BLOCK) => Err(Sense::PARAMETER),
        Some(_) => Err(Sense::SEGMENT_TYPE),
    }
}

/// The disk that a CSCD descriptor (section 6.4) names, by its NAA designator: no other one of those that the page has
/// fits into the descriptor.
fn reach<'a>(disks: &[(u16, &'a Disk)], target: &[u8; TARGET_BYTES]) -> Result<(u16, &'a Disk), Sense> {
    const BINARY: u8 = 1;
    const OF_UNIT_NAA: u8 = 3;
    let (kind, code_set, designator_type, len) = (target[1] & 0x1f, target[4] & 0x0f, target[5] & 0x3f, target[7]);
    if kind != 0 {
        return Err(Sense::WRONG_TARGET_TYPE);
    }
    if len as usize > target[8..28].len() {
        return Err(Sense::PARAMETER);
    }
    let is_name = code_set == BINARY && designator_type == OF_UNIT_NAA;
    let is_it = |(_, disk): &&(u16, &Disk)| is_name && target[8..8 + usize::from(len)] == naa(disk);
    let (unit, disk) = *disks.iter().find(is_it).ok_or(Sense::TARGET_NOT_REACHABLE)?;
    if number(&target[29..32]) == u64::from(disk.block_bytes()) { Ok((unit, disk)) } else { Err(Sense::PARAMETER) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::LogicalBlock;
    use azekura_frontend::PathState;
    use proptest::prelude::*;

    const BLOCK: u64 = 512;

    fn disk() -> Disk {
        Disk {
            name: "vol1".to_owned(),
            target: "iqn.2026-01.io.azekura:vol1".to_owned(),
            id: 7,
            block: LogicalBlock::Bytes512,
            blocks: 1000,
            is_read_only: false,
            reserves: false,
            compares: true,
            path: PathState::Optimized,
            port: 1,
        }
    }

    fn target(naa: [u8; 8]) -> Vec<u8> {
        let mut bytes = vec![0; TARGET_BYTES];
        (bytes[0], bytes[4], bytes[5], bytes[7], bytes[30]) = (IDENTIFICATION, 1, 3, 8, 2);
        bytes[8..16].copy_from_slice(&naa);
        bytes
    }

    fn segment(from: (u16, u64), to: (u16, u64), count: u16) -> Vec<u8> {
        let head = [&[BLOCK_TO_BLOCK, 0, 0, 24][..], &from.0.to_be_bytes(), &to.0.to_be_bytes(), &[0; 2]].concat();
        [&head[..], &count.to_be_bytes(), &from.1.to_be_bytes(), &to.1.to_be_bytes()].concat()
    }

    fn list(usage: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
        let (targets, segments) = (targets.concat(), segments.concat());
        let mut header = vec![0; HEADER_BYTES];
        (header[0], header[1]) = (5, usage << 3);
        header[2..4].copy_from_slice(&(targets.len() as u16).to_be_bytes());
        header[8..12].copy_from_slice(&(segments.len() as u32).to_be_bytes());
        [header, targets, segments].concat()
    }

    fn own() -> Vec<u8> {
        target(naa(&disk()))
    }

    /// A segment inside of the only disk.
    fn inside(from: Range, to: u64) -> Segment {
        Segment { from_unit: 0, from, to_unit: 0, to }
    }

    #[test]
    fn segments_go_from_unit_to_unit() {
        let other = Disk { id: 8, blocks: 500, ..disk() };
        let targets = [own(), target(naa(&other))];
        let one =
            |disks: &[(u16, &Disk)], segment| parse(disks, &list(0, &targets, &[segment])).map(|list| list.segments);
        let (own, disks) = (disk(), [(0, &disk()), (5, &other)]);
        let from = Range { offset: 600 * BLOCK, len: 8 * BLOCK };
        let to = 492 * BLOCK;
        assert_eq!(
            one(&disks, segment((0, 600), (1, 492), 8)),
            Ok(vec![Segment { from_unit: 0, from, to_unit: 5, to }])
        );
        assert_eq!(one(&disks, segment((0, 600), (1, 493), 8)), Err(Sense::COPY_ABORTED), "beyond the other's end");
        assert_eq!(one(&disks, segment((1, 493), (0, 0), 8)), Err(Sense::COPY_ABORTED));
        assert_eq!(one(&disks[..1], segment((0, 0), (1, 0), 8)), Err(Sense::TARGET_NOT_REACHABLE));
        let read_only = Disk { is_read_only: true, ..other.clone() };
        assert_eq!(one(&[(0, &own), (5, &read_only)], segment((0, 0), (1, 0), 8)), Err(Sense::WRITE_PROTECTED));
        assert!(one(&[(0, &own), (5, &read_only)], segment((1, 0), (0, 0), 8)).is_ok());
        // What is read in one place and written in another overwrites nothing of itself.
        let whole = Segment { from_unit: 0, from: Range { offset: 0, len: 4 * BLOCK }, to_unit: 5, to: BLOCK };
        let firsts: Vec<u64> = whole.pieces(BLOCK).map(|piece| piece.from.offset / BLOCK).collect();
        assert_eq!(firsts, [0, 1, 2, 3]);
    }

    #[test]
    fn segments_name_blocks_of_the_disk() {
        let bytes = list(0, &[own()], &[segment((0, 1), (0, 500), 3), segment((0, 9), (0, 0), 0)]);
        let expected = |from, count, to| inside(Range { offset: from * BLOCK, len: count * BLOCK }, to * BLOCK);
        let segments = vec![expected(1, 3, 500), expected(9, 0, 0)];
        assert_eq!(parse(&[(0, &disk())], &bytes), Ok(List { id: Some(5), segments }));
        for (usage, id) in [(0, Ok(Some(5))), (1, Err(Sense::PARAMETER)), (2, Ok(Some(5))), (3, Ok(None))] {
            assert_eq!(parse(&[(0, &disk())], &list(usage, &[own()], &[])).map(|list| list.id), id);
        }
        for cut in [1, 28, 57, 88] {
            assert_eq!(parse(&[(0, &disk())], &bytes[..bytes.len() - cut]), Err(Sense::LIST_LENGTH), "{cut}");
        }
    }

    #[test]
    fn what_can_not_be_reached_is_told_apart() {
        let one =
            |target: Vec<u8>, segment: Vec<u8>| parse(&[(0, &disk())], &list(0, &[target], &[segment])).map(|_| ());
        let some = || segment((0, 0), (0, 8), 8);
        let with = |at: usize, byte: u8| {
            let mut bytes = own();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(one(own(), some()), Ok(()));
        assert_eq!(one(with(1, 0xc0), some()), Ok(()), "LU ID TYPE is ignored");
        assert_eq!(
            one(target([0x30, 0, 0, 0, 0, 0, 0, 8]), some()),
            Err(Sense::TARGET_NOT_REACHABLE),
            "another volume"
        );
        assert_eq!(one(with(5, 0x13), some()), Err(Sense::TARGET_NOT_REACHABLE), "a port");
        assert_eq!(one(with(1, 5), some()), Err(Sense::WRONG_TARGET_TYPE), "no disk");
        assert_eq!(one(with(7, 21), some()), Err(Sense::PARAMETER), "longer than there is room for");
        assert_eq!(one(with(30, 0x10), some()), Err(Sense::PARAMETER), "4 KiB blocks");
        assert_eq!(one(with(0, 0xe0), some()), Err(Sense::TARGET_TYPE));
        assert_eq!(one(own(), segment((0, 0), (1, 8), 8)), Err(Sense::UNREACHABLE_TARGET), "no such descriptor");
        assert_eq!(one(own(), segment((0, 0), (0, 993), 8)), Err(Sense::COPY_ABORTED), "beyond the end");
        assert_eq!(one(own(), segment((0, u64::MAX), (0, 0), 8)), Err(Sense::COPY_ABORTED));
        let mut stream = some();
        stream[0] = 3;
        assert_eq!(one(own(), stream), Err(Sense::SEGMENT_TYPE));
        let mut long = some();
        long[3] = 25;
        assert_eq!(one(own(), long), Err(Sense::PARAMETER));
        let mut inline = list(0, &[own()], &[some()]);
        inline[15] = 1;
        assert_eq!(parse(&[(0, &disk())], &inline), Err(Sense::INLINE_DATA));
        // Another volume that no segment names does no harm.
        let unused = list(0, &[own(), target([0; 8])], &[some()]);
        assert!(parse(&[(0, &disk())], &unused).is_ok());
    }

    #[test]
    fn no_more_is_taken_than_is_said() {
        let (targets, segments) = (usize::from(TARGETS_MAX), usize::from(SEGMENTS_MAX));
        let made = |targets, segments| list(0, &vec![own(); targets], &vec![segment((0, 0), (0, 8), 8); segments]);
        assert!(parse(&[(0, &disk())], &made(targets, segments)).is_ok());
        assert_eq!(parse(&[(0, &disk())], &made(targets + 1, 1)), Err(Sense::TOO_MANY_TARGETS));
        assert_eq!(parse(&[(0, &disk())], &made(1, segments + 1)), Err(Sense::TOO_MANY_SEGMENTS));
        assert_eq!(parse(&[(0, &disk())], &made(targets, segments + 1)), Err(Sense::LIST_LENGTH));
        let said = operating_parameters(&disk());
        assert_eq!((number(&said[..4]) as usize, said.len()), (said.len() - 4, 46));
        assert_eq!((number(&said[8..10]), number(&said[10..12]), number(&said[12..16])), (8, 16, 704));
    }

    #[test]
    fn a_disk_of_larger_blocks_copies_more_of_them() {
        let disk = Disk { block: LogicalBlock::Bytes4096, ..disk() };
        let mut target = own();
        let one = |target: &[u8]| parse(&[(0, &disk)], &list(0, &[target.to_vec()], &[segment((0, 1), (0, 500), 3)]));
        assert_eq!(one(&target), Err(Sense::PARAMETER), "blocks of 512 bytes are none of the disk's");
        target[29..32].copy_from_slice(&[0, 0x10, 0]);
        let from = Range { offset: 4096, len: 3 * 4096 };
        assert_eq!(one(&target).unwrap().segments, [inside(from, 500 * 4096)]);
        let said = operating_parameters(&disk);
        assert_eq!((number(&said[16..20]), said[37]), (65_535 * 4096, 12));
        let page = vital_product_data(&disk);
        let operations = &page[page.len() - 32..];
        assert_eq!((number(&operations[8..12]), operations[12]), (65_535 * 4096, 12));
    }

    #[test]
    fn the_page_is_made_of_whole_descriptors() {
        let page = vital_product_data(&disk());
        let (mut rest, mut kinds) = (&page[..], Vec::new());
        while !rest.is_empty() {
            let len = number(&rest[2..4]) as usize;
            assert_eq!(len % 4, 0);
            kinds.push((number(&rest[..2]), len));
            rest = &rest[4 + len..];
        }
        assert_eq!(kinds, [(1, 8), (4, 28), (8, 4), (12, 4), (0x8001, 32)]);
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), own_first in any::<bool>()) {
            let bytes = if own_first { [list(0, &[own()], &[]), bytes].concat() } else { bytes };
            if let Ok(list) = parse(&[(0, &disk())], &bytes) {
                for Segment { from, to, .. } in list.segments {
                    prop_assert!(from.offset + from.len <= 1000 * BLOCK && to + from.len <= 1000 * BLOCK);
                }
            }
        }

        #[test]
        fn segments_are_whatever_their_fields_say(count in any::<u16>(), from in 0..2000_u64, to in 0..2000_u64, index in 0..3_u16) {
            let bytes = list(2, &[own(), target([9; 8])], &[segment((0, from), (index, to), count)]);
            let end = 1000_u64.checked_sub(u64::from(count));
            let fits = end.is_some_and(|end| from <= end && to <= end);
            let expected = match index {
                0 if fits => Ok(()),
                0 => Err(Sense::COPY_ABORTED),
                1 => Err(Sense::TARGET_NOT_REACHABLE),
                _ => Err(Sense::UNREACHABLE_TARGET),
            };
            prop_assert_eq!(parse(&[(0, &disk())], &bytes).map(|_| ()), expected);
        }

        /// Piece after piece, read and then written, is the same as all at once.
        #[test]
        fn pieces_copy_what_the_segment_says(len in 0..300_usize, from in 0..200_usize, to in 0..200_usize, piece in 1..100_u64) {
            let before: Vec<u8> = (0..600).map(|number| (number % 251) as u8).collect();
            let (mut expected, mut copied) = (before.clone(), before);
            expected.copy_within(from..from + len, to);
            let segment = inside(Range { offset: from as u64, len: len as u64 }, to as u64);
            for Segment { from, to, .. } in segment.pieces(piece) {
                prop_assert!(from.len > 0 && from.len <= piece);
                copied.copy_within(from.offset as usize..(from.offset + from.len) as usize, to as usize);
            }
            prop_assert_eq!(copied, expected);
        }
    }
}
