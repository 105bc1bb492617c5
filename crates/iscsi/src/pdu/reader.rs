//! PDUs out of a stream of bytes.

use super::{BHS_SIZE, Bhs, Digests, digest, padding};
use azekura_base::{Checksum, Inbox, checksum, checksum_append};
use bytes::Bytes;
use std::fmt;

/// One PDU that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Its header.
    pub bhs: Bhs,
    /// It has additional header segments: a long CDB, or a bidirectional command (section 11.2.2).
    pub has_ahs: bool,
    /// Its data segment; empty when it was [skipped](Taking::Skip).
    pub data: Bytes,
}

/// What is done with the data segment of a PDU whose header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It is received.
    Take,
    /// It is dropped as it comes, and takes no memory.
    Skip,
    /// It has to wait: to be asked again.
    Later,
}

/// Why what comes can't be read any further: the connection ends, which at error recovery level 0 is what a session
/// does after any such error (section 7.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPdu {
    /// The header's digest is wrong (section 7.8).
    HeaderDigest,
    /// The data's digest is wrong.
    DataDigest,
    /// The data segment is longer than this side has said that it takes.
    TooLong {
        /// Bytes that it has.
        bytes: usize,
        /// Bytes that it may have.
        max: usize,
    },
    /// An additional header segment goes beyond the end of all.
    Ahs,
}

impl fmt::Display for BadPdu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPdu::HeaderDigest => f.write_str("a header came with a wrong digest"),
            BadPdu::DataDigest => f.write_str("a data segment came with a wrong digest"),
            BadPdu::TooLong { bytes, max } => {
                write!(f, "a data segment of {bytes} bytes came, although no more than {max} are taken")
            }
            BadPdu::Ahs => f.write_str("an additional header segment goes beyond its end"),
        }
    }
}

impl std::error::Error for BadPdu {}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Header,
    /// Nothing of the data segment has been taken.
    Head(Bhs),
    Data(Bhs),
    /// So many bytes are still to be dropped; the checksum of those that were.
    Skip(Bhs, usize, Checksum),
    /// Padding and digest of this data segment, or of one that was dropped and had this checksum.
    Trailer(Bhs, Bytes, Option<Checksum>),
}

/// Where in a PDU the stream is.
#[derive(Debug, Default)]
pub struct Reader {
    /// Digests that come from now on.
    pub digests: Digests,
    stage: Stage,
}

impl Reader {
    /// The next PDU, whose data segment may have `data_max` bytes; `None` when not all of it has come.
    ///
    /// # Errors
    /// When the stream can't be read any further.
    pub fn next(&mut self, inbox: &mut Inbox, data_max: usize) -> Result<Option<Pdu>, BadPdu> {
        self.next_if(inbox, data_max, &mut |_| Taking::Take)
    }

    /// As [`Reader::next`], where `taking` says what is done with a data segment. `None` also when it has to wait.
    ///
    /// # Errors
    /// When the stream can't be read any further.
    pub fn next_if(
        &mut self,
        inbox: &mut Inbox,
        data_max: usize,
        taking: &mut dyn FnMut(&Bhs) -> Taking,
    ) -> Result<Option<Pdu>, BadPdu> {
        loop {
            match &mut self.stage {
                Stage::Header => {
                    let Some(bhs) = header(inbox, self.digests.header, data_max)? else { return Ok(None) };
                    self.stage = Stage::Head(bhs);
                }
                Stage::Head(bhs) => {
                    self.stage = match taking(bhs) {
                        Taking::Take => Stage::Data(*bhs),
                        Taking::Skip => Stage::Skip(*bhs, bhs.data_bytes(), checksum(&[])),
                        Taking::Later => return Ok(None),
                    }
                }
                Stage::Data(bhs) => {
                    let Some(data) = inbox.take_payload(bhs.data_bytes()) else { return Ok(None) };
                    self.stage = Stage::Trailer(*bhs, data, None);
                }
                Stage::Skip(bhs, 0, sum) => self.stage = Stage::Trailer(*bhs, Bytes::new(), Some(*sum)),
                Stage::Skip(_, left, sum) => {
                    let available = inbox.available();
                    let count = available.len().min(*left);
                    if count == 0 {
                        return Ok(None);
                    }
                    if self.digests.data {
                        *sum = checksum_append(*sum, &available[..count]);
                    }
                    inbox.consume(count);
                    *left -= count;
                }
                Stage::Trailer(bhs, data, sum) => {
                    let pad = padding(bhs.data_bytes());
                    let has_digest = self.digests.data && bhs.data_bytes() > 0;
                    let len = pad + if has_digest { 4 } else { 0 };
                    let Some(trailer) = inbox.peek(len) else { return Ok(None) };
                    let (pad, sent) = trailer.split_at(pad);
                    let of_data = || sum.unwrap_or_else(|| checksum(data));
                    if has_digest && checksum_append(of_data(), pad) != Checksum(le32(sent)) {
                        return Err(BadPdu::DataDigest);
                    }
                    let pdu = Pdu { bhs: *bhs, has_ahs: bhs.ahs_bytes() > 0, data: std::mem::take(data) };
                    inbox.consume(len);
                    self.stage = Stage::Header;
                    return Ok(Some(pdu));
                }
            }
        }
    }
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn header(inbox: &mut Inbox, has_digest: bool, data_max: usize) -> Result<Option<Bhs>, BadPdu> {
    let Some(bytes) = inbox.peek(BHS_SIZE).and_then(|bytes| bytes.first_chunk()) else { return Ok(None) };
    let bhs = Bhs(*bytes);
    let len = BHS_SIZE + bhs.ahs_bytes();
    let Some(all) = inbox.peek(len + if has_digest { 4 } else { 0 }) else { return Ok(None) };
    if has_digest && digest(&all[..len]) != all[len..] {
        return Err(BadPdu::HeaderDigest);
    }
    let all_len = all.len();
    check_ahs(&all[BHS_SIZE..len])?;
    if bhs.data_bytes() > data_max {
        return Err(BadPdu::TooLong { bytes: bhs.data_bytes(), max: data_max });
    }
    inbox.consume(all_len);
    Ok(Some(bhs))
}

/// Additional header segments (section 11.2.2): AHSLength counts what follows the three bytes of length and type, and
/// each is padded to four bytes.
fn check_ahs(mut bytes: &[u8]) -> Result<(), BadPdu> {
    while let [high, low, _, ..] = bytes {
        let len = 3 + usize::from(u16::from_be_bytes([*high, *low]));
        bytes = bytes.get(len + padding(len)..).ok_or(BadPdu::Ahs)?;
    }
    Ok(())
}
