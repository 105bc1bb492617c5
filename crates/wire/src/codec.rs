//! How messages are laid out: little-endian fields, one after the other, in the order in which [`layout!`] names them
//! (docs/formats/wire.md). The one description of a type serves both directions.

use crate::{ATTACHMENTS_MAX, DIGEST_SPAN_BLOCKS, DIGEST_SPANS, Expected, HEARTBEAT_GROUPS_MAX, LAYERS_MAX};
use azekura_base::{
    BlockIndex, BlockRange, Body, CHUNK_BLOCKS, Checksum, Checksums, ChunkIndex, DeviceId, Epoch, Extent, Generation,
    IoStatus, KeyGeneration, LayerId, NodeId, PgId, RequestId, Run, Sequence, SessionId, Shard, VolumeId,
};
use bytes::Bytes;
use std::num::NonZeroU64;

/// Something that stands in the body of a frame.
pub(crate) trait Layout: Sized {
    /// Puts it behind what is there.
    fn put(&self, out: &mut Vec<u8>);

    /// Cuts it off the front of `from`. `None`: bytes are missing, or say what can't be.
    fn get(from: &mut &[u8]) -> Option<Self>;
}

/// Lays a type out as its fields in the order given. All fields have to be named: one that is forgotten, or unknown,
/// does not compile.
macro_rules! layout {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::codec::Layout for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                let $type { $($field),+ } = self;
                $($crate::codec::Layout::put($field, out);)+
            }

            #[inline]
            fn get(from: &mut &[u8]) -> Option<Self> {
                Some($type { $($field: $crate::codec::Layout::get(from)?),+ })
            }
        }
    };
}
pub(crate) use layout;

macro_rules! numbers {
    ($($type:ident),+) => {$(
        impl Layout for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(from: &mut &[u8]) -> Option<Self> {
                let (head, rest) = from.split_first_chunk()?;
                *from = rest;
                Some($type::from_le_bytes(*head))
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64, u128);

macro_rules! names {
    ($($type:ident),+) => {$(
        impl Layout for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            #[inline]
            fn get(from: &mut &[u8]) -> Option<Self> {
                Layout::get(from).map($type)
            }
        }
    )+};
}

names!(BlockIndex, Checksum, ChunkIndex, DeviceId, Epoch, Generation, LayerId, NodeId);
names!(PgId, RequestId, Sequence, SessionId, Shard, VolumeId);

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Layout),+> Layout for ($($name,)+) {
            #[inline]
            #[allow(non_snake_case)]
            fn put(&self, out: &mut Vec<u8>) {
                let ($($name,)+) = self;
                $($name.put(out);)+
            }

            #[inline]
            fn get(from: &mut &[u8]) -> Option<Self> {
                Some(($($name::get(from)?,)+))
            }
        }
    };
}

tuples!(A B);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G H I);

impl Layout for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<bool> {
        u8::get(from).map(|byte| byte != 0)
    }
}

/// Takes no place in the body: it is the frame's payload, and is put in when that has come.
impl Layout for Bytes {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &mut &[u8]) -> Option<Bytes> {
        Some(Bytes::new())
    }
}

layout!(BlockRange { layer, chunk, first, count });

/// Bits of a number of blocks, below those of a key's generation.
const COUNT_BITS: u32 = 12;

/// At least one checksum, and at most one for each block of a chunk; their number, with the key's generation above it.
impl Layout for Checksums {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u16 | u16::from(self.key().number()) << COUNT_BITS).put(out);
        self.iter().for_each(|sum| sum.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Checksums> {
        let word = u16::get(from)?;
        let (count, key) = (usize::from(word & ((1 << COUNT_BITS) - 1)), KeyGeneration::of_bits(word >> COUNT_BITS));
        if count == 0 || count > CHUNK_BLOCKS {
            return None;
        }
        let (sums, rest) = from.split_at_checked(count * size_of::<u32>())?;
        *from = rest;
        let (sums, _) = sums.as_chunks();
        let sums: Checksums = sums.iter().map(|sum| Checksum(u32::from_le_bytes(*sum))).collect();
        Some(sums.under(key))
    }
}

/// What the first byte of a [`Body`], and of an [`Extent`], says.
mod contents {
    pub(super) const ZERO: u8 = 0;
    pub(super) const DATA: u8 = 1;
    pub(super) const HELD: u8 = 2;
    pub(super) const LOST: u8 = 3;
    pub(super) const EXPECTED: u8 = 4;
    pub(super) const EXPECTED_UNDER: u8 = 5;
}

impl Layout for Body {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Body::Zero => contents::ZERO.put(out),
            Body::Data { checksums, .. } => {
                contents::DATA.put(out);
                checksums.put(out);
            }
            Body::Lost { checksums } => {
                contents::LOST.put(out);
                checksums.put(out);
            }
        }
    }

    #[inline]
    fn get(from: &mut &[u8]) -> Option<Body> {
        Some(match u8::get(from)? {
            contents::ZERO => Body::Zero,
            contents::DATA => Body::Data { bytes: Bytes::new(), checksums: Layout::get(from)? },
            contents::LOST => Body::Lost { checksums: Layout::get(from)? },
            _ => return None,
        })
    }
}

/// Before a [`Body`], and nothing where nothing is expected.
impl Layout for Option<Box<Expected>> {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(expected) = self {
            let Expected { bytes: _, checksum, or_zeros, key } = **expected;
            if key == KeyGeneration::FIRST {
                contents::EXPECTED.put(out);
            } else {
                (contents::EXPECTED_UNDER, key.number()).put(out);
            }
            (checksum, or_zeros).put(out);
        }
    }

    #[inline]
    fn get(from: &mut &[u8]) -> Option<Option<Box<Expected>>> {
        let kind = match from.first() {
            Some(kind @ (&contents::EXPECTED | &contents::EXPECTED_UNDER)) => *kind,
            _ => return Some(None),
        };
        u8::get(from)?;
        let key = match kind {
            contents::EXPECTED => KeyGeneration::FIRST,
            _ => KeyGeneration::new(u8::get(from)?)?,
        };
        let (checksum, or_zeros) = Layout::get(from)?;
        Some(Some(Box::new(Expected { bytes: Bytes::new(), checksum, or_zeros, key })))
    }
}

/// In the place of a [`Body`]: the checksums of blocks that the receiver holds.
pub(crate) fn put_held(checksums: &Checksums, out: &mut Vec<u8>) {
    contents::HELD.put(out);
    checksums.put(out);
}

/// What [`put_held`] put.
pub(crate) fn get_held(from: &mut &[u8]) -> Option<Checksums> {
    u8::get(from).filter(|kind| *kind == contents::HELD)?;
    Layout::get(from)
}

impl Layout for Extent {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Extent::Zero { count } => {
                contents::ZERO.put(out);
                count.put(out);
            }
            Extent::Data { checksums, .. } => {
                contents::DATA.put(out);
                checksums.put(out);
            }
        }
    }

    fn get(from: &mut &[u8]) -> Option<Extent> {
        match u8::get(from)? {
            contents::ZERO => {
                let count = u16::get(from).filter(|count| (1..=CHUNK_BLOCKS as u16).contains(count))?;
                Some(Extent::Zero { count })
            }
            contents::DATA => Some(Extent::Data { bytes: Bytes::new(), checksums: Layout::get(from)? }),
            _ => None,
        }
    }
}

/// The number of blocks; then a byte: 0 for zeros, 1 for data, with the key's generation in its upper half.
impl Layout for Run {
    fn put(&self, out: &mut Vec<u8>) {
        let data = self.data.map_or(contents::ZERO, |key| contents::DATA | key.number() << 4);
        (self.count, data).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Run> {
        let (count, data): (u16, u8) = Layout::get(from)?;
        let data = match data & 0xf {
            contents::ZERO if data == contents::ZERO => None,
            contents::DATA => Some(KeyGeneration::of_bits(u16::from(data >> 4))),
            _ => return None,
        };
        Some(Run { count, data })
    }
}

/// Something that stands in lists.
pub(crate) trait Listed: Layout {
    /// Most of them in a list.
    const MAX: usize;
}

impl Listed for Extent {
    const MAX: usize = CHUNK_BLOCKS;
}

impl Listed for Run {
    const MAX: usize = CHUNK_BLOCKS;
}

impl Listed for Generation {
    const MAX: usize = ATTACHMENTS_MAX;
}

impl Listed for (VolumeId, LayerId) {
    const MAX: usize = LAYERS_MAX;
}

impl Listed for (LayerId, LayerId) {
    const MAX: usize = LAYERS_MAX;
}

impl Listed for crate::GroupBeat {
    const MAX: usize = HEARTBEAT_GROUPS_MAX;
}

impl Listed for crate::CopyBeat {
    const MAX: usize = HEARTBEAT_GROUPS_MAX;
}

fn put_list<T: Listed>(list: &[T], out: &mut Vec<u8>) {
    (list.len() as u16).put(out);
    list.iter().for_each(|item| item.put(out));
}

impl<T: Listed> Layout for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn get(from: &mut &[u8]) -> Option<Vec<T>> {
        let count = u16::get(from).filter(|count| usize::from(*count) <= T::MAX)?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

/// Digests: one for each span of a chunk, or for each block of a span. As many as that is, without their number.
impl Layout for Vec<u64> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|digest| digest.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Vec<u64>> {
        (0..DIGEST_SPANS).map(|_| u64::get(from)).collect()
    }
}

const _: () = assert!(DIGEST_SPANS == DIGEST_SPAN_BLOCKS);

/// The spans that differ: their number in one byte.
impl Layout for Vec<crate::Span> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u8).put(out);
        self.iter().for_each(|span| span.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Vec<crate::Span>> {
        let count = u8::get(from).filter(|count| usize::from(*count) <= DIGEST_SPANS)?;
        (0..count).map(|_| Layout::get(from)).collect()
    }
}

/// A place that is there whether or not it is used.
impl Layout for Option<Sequence> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.unwrap_or_default().put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Option<Sequence>> {
        let (is_some, sequence) = Layout::get(from)?;
        Some(Some(sequence).filter(|_| is_some))
    }
}

/// Zero stands for nothing.
impl Layout for Option<NonZeroU64> {
    fn put(&self, out: &mut Vec<u8>) {
        self.map_or(0, NonZeroU64::get).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Option<NonZeroU64>> {
        u64::get(from).map(NonZeroU64::new)
    }
}

/// A list that is there, empty, also where nothing is given.
impl Layout for Option<Vec<Extent>> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        put_list(self.as_deref().unwrap_or_default(), out);
    }

    fn get(from: &mut &[u8]) -> Option<Option<Vec<Extent>>> {
        let (is_some, extents) = Layout::get(from)?;
        Some(Some(extents).filter(|_| is_some))
    }
}

/// One byte: 0 for success. The place of a miscompare follows.
impl Layout for Result<(), IoStatus> {
    fn put(&self, out: &mut Vec<u8>) {
        self.map_or_else(IoStatus::code, |()| 0).put(out);
        if let Err(IoStatus::Miscompare(at)) = self {
            at.put(out);
        }
    }

    fn get(from: &mut &[u8]) -> Option<Result<(), IoStatus>> {
        match u8::get(from)? {
            0 => Some(Ok(())),
            code => Some(Err(match IoStatus::from_code(code)? {
                IoStatus::Miscompare(_) => IoStatus::Miscompare(u16::get(from)?),
                status => status,
            })),
        }
    }
}

/// A status, and a list that is there, empty, also in the case of failure.
impl<T: Listed> Layout for Result<Vec<T>, IoStatus> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_ref().map(drop).map_err(|status| *status).put(out);
        put_list(self.as_deref().unwrap_or_default(), out);
    }

    fn get(from: &mut &[u8]) -> Option<Result<Vec<T>, IoStatus>> {
        let (status, list): (Result<(), IoStatus>, _) = Layout::get(from)?;
        Some(status.map(|()| list))
    }
}
