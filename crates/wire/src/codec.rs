//! Little-endian fields, written to and read from byte slices.

/// Collects a body.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

macro_rules! field {
    ($put:ident, $get:ident, $type:ty) => {
        impl Writer {
            pub(crate) fn $put(&mut self, value: $type) {
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        impl Reader<'_> {
            pub(crate) fn $get(&mut self) -> Option<$type> {
                let (head, rest) = self.bytes.split_first_chunk()?;
                self.bytes = rest;
                Some(<$type>::from_le_bytes(*head))
            }
        }
    };
}

/// Takes a body apart; every getter gives `None` past the end.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
}

field!(put_u8, u8, u8);
field!(put_u16, u16, u16);
field!(put_u32, u32, u32);
field!(put_u64, u64, u64);
field!(put_u128, u128, u128);
