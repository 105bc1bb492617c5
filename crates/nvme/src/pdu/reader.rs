//! PDUs out of a stream of bytes, and what is wrong with those that are none.

use super::fatal::{Fatal, Terminate};
use super::header::{HAS_DATA_DIGEST, HAS_HEADER_DIGEST, Kind, LAST, Pdu, SUCCESS};
use super::{COMMON_SIZE, Digests, HEADER_MAX, Terms, digest, u32_at};
use azekura_base::{Checksum, Inbox, checksum, checksum_append};
use bytes::Bytes;

/// Whose reader it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It reads what hosts send.
    Controller,
    /// It reads what controllers send.
    Host,
}

/// A PDU that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What its header says.
    pub pdu: Pdu,
    /// Its data; empty when it was [skipped](Taking::Skip).
    pub data: Bytes,
    /// The data has the digest that was sent with it. Otherwise the command fails, and the connection goes on
    /// (TCP section 3.5.2).
    pub is_intact: bool,
}

/// What is done with the data of a PDU whose header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It is received.
    Take,
    /// It is dropped as it comes, and takes no memory.
    Skip,
    /// It has to wait, and so does all that is behind it: to be asked again.
    Later,
}

/// Which PDUs may come.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// ICReq or ICResp, before anything else.
    Fresh,
    /// It has come, and [`Reader::agree`] has not.
    Agreeing,
    Agreed(Terms),
}

/// How a PDU goes on behind its header.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes up to where data begins, or to the end of a PDU without data.
    head: usize,
    data: usize,
    has_digest: bool,
}

#[derive(Debug)]
enum Stage {
    Header,
    Data(Pdu, Layout),
    /// So many bytes are still to be dropped; the checksum of those that were.
    Skip(Pdu, Layout, usize, Checksum),
    /// A digest, of this data or of what was dropped.
    Digest(Pdu, Bytes, Option<Checksum>),
}

/// Where in a PDU the stream is.
#[derive(Debug)]
pub struct Reader {
    side: Side,
    phase: Phase,
    stage: Stage,
}

impl Reader {
    /// A reader at the beginning of a connection.
    #[must_use]
    pub fn new(side: Side) -> Reader {
        Reader { side, phase: Phase::Fresh, stage: Stage::Header }
    }

    /// ICReq or ICResp has come, and this is what follows from it. Until then nothing else is read.
    ///
    /// # Panics
    /// When none has come, or this was said before.
    pub fn agree(&mut self, terms: Terms) {
        assert!(matches!(self.phase, Phase::Agreeing), "there is nothing to agree on");
        self.phase = Phase::Agreed(terms);
    }

    /// The next PDU; `None` when not all of it has come.
    ///
    /// # Errors
    /// When the connection has to end; the same again when asked again.
    pub fn next(&mut self, inbox: &mut Inbox) -> Result<Option<Received>, Terminate> {
        self.next_if(inbox, &mut |_, _| Ok(Taking::Take))
    }

    /// As [`Reader::next`], where `taking` says what is done with the data of a PDU, of which it has so many bytes, or
    /// what is wrong with its header: [`Transfers`](super::transfers::Transfers) know. `None` also when it has to wait.
    /// `taking` may be asked about a PDU more than once, until it says that data is taken or skipped.
    ///
    /// # Errors
    /// When the connection has to end; the same again when asked again.
    pub fn next_if(
        &mut self,
        inbox: &mut Inbox,
        taking: &mut dyn FnMut(&Pdu, usize) -> Result<Taking, Fatal>,
    ) -> Result<Option<Received>, Terminate> {
        loop {
            match &mut self.stage {
                Stage::Header => {
                    let Some((pdu, layout)) = head(inbox, self.side, &self.phase)? else { return Ok(None) };
                    let kind = pdu.kind();
                    let taken = if kind.is_bare() || layout.data == 0 {
                        Taking::Take
                    } else {
                        taking(&pdu, layout.data).map_err(|fatal| refuse(inbox, fatal, kind.header_size()))?
                    };
                    self.stage = match taken {
                        Taking::Take => Stage::Data(pdu, layout),
                        Taking::Skip => Stage::Skip(pdu, layout, layout.data, checksum(&[])),
                        Taking::Later => return Ok(None),
                    };
                    inbox.consume(layout.head);
                    if matches!(kind, Kind::InitializeRequest | Kind::InitializeResponse) {
                        self.phase = Phase::Agreeing;
                    }
                }
                Stage::Data(pdu, layout) => {
                    let Some(data) = inbox.take_payload(layout.data) else { return Ok(None) };
                    let pdu = *pdu;
                    if !layout.has_digest {
                        self.stage = Stage::Header;
                        return Ok(Some(Received { pdu, data, is_intact: true }));
                    }
                    self.stage = Stage::Digest(pdu, data, None);
                }
                Stage::Skip(pdu, layout, 0, sum) => {
                    let (pdu, sum) = (*pdu, *sum);
                    if !layout.has_digest {
                        self.stage = Stage::Header;
                        return Ok(Some(Received { pdu, data: Bytes::new(), is_intact: true }));
                    }
                    self.stage = Stage::Digest(pdu, Bytes::new(), Some(sum));
                }
                Stage::Skip(_, layout, left, sum) => {
                    let available = inbox.available();
                    let count = available.len().min(*left);
                    if count == 0 {
                        return Ok(None);
                    }
                    if layout.has_digest {
                        *sum = checksum_append(*sum, &available[..count]);
                    }
                    inbox.consume(count);
                    *left -= count;
                }
                Stage::Digest(pdu, data, sum) => {
                    let Some(sent) = inbox.peek(super::DIGEST_SIZE) else { return Ok(None) };
                    let is_intact = sum.unwrap_or_else(|| checksum(data)) == Checksum(u32_at(sent, 0));
                    inbox.consume(super::DIGEST_SIZE);
                    let received = Received { pdu: *pdu, data: std::mem::take(data), is_intact };
                    self.stage = Stage::Header;
                    return Ok(Some(received));
                }
            }
        }
    }
}

/// A PDU at the beginning of the inbox can't be: its header has so many bytes, of which all have come.
fn refuse(inbox: &Inbox, fatal: Fatal, header_size: usize) -> Terminate {
    let header = inbox.peek(header_size.min(HEADER_MAX)).unwrap_or_default();
    Terminate { fatal, header: Bytes::copy_from_slice(header) }
}

/// What the next header says, once all has come that is before data. Nothing is consumed.
fn head(inbox: &Inbox, side: Side, phase: &Phase) -> Result<Option<(Pdu, Layout)>, Terminate> {
    if matches!(phase, Phase::Agreeing) {
        return Ok(None);
    }
    let Some(common) = inbox.peek(COMMON_SIZE) else { return Ok(None) };
    let terms = if let Phase::Agreed(terms) = phase { Some(terms) } else { None };
    let kind = begin(common, side, terms).map_err(|fatal| refuse(inbox, fatal, COMMON_SIZE))?;
    let digests =
        if kind.is_bare() { Digests::default() } else { terms.map(|terms| terms.digests).unwrap_or_default() };
    let size = kind.header_size();
    let Some(all) = inbox.peek(size + digests.header_bytes()) else { return Ok(None) };
    let (header, sent) = all.split_at(size);
    if digests.header && digest(header) != sent {
        return Err(refuse(inbox, Fatal::HeaderDigest(u32_at(sent, 0)), size));
    }
    let refused = |fatal| refuse(inbox, fatal, size);
    let layout = match terms {
        Some(terms) if !kind.is_bare() => layout(kind, header, terms).map_err(refused)?,
        _ => bare_layout(kind, header).map_err(refused)?,
    };
    Ok(inbox.peek(layout.head).map(|_| (Pdu::of(kind, header), layout)))
}

/// What has to be right before the rest of a header can be waited for: what it is, whether its time has come, whether a
/// digest follows, and how long it is (TCP sections 3.4 and 3.6.1).
fn begin(common: &[u8], side: Side, terms: Option<&Terms>) -> Result<Kind, Fatal> {
    let kind = Kind::of(common[0]).filter(|kind| kind.is_from_host() == (side == Side::Controller));
    let kind = kind.ok_or(Fatal::InvalidField(0))?;
    let begins = matches!(kind, Kind::InitializeRequest | Kind::InitializeResponse);
    let ends = matches!(kind, Kind::HostTerminates | Kind::ControllerTerminates);
    if begins != terms.is_none() && !ends {
        return Err(Fatal::Sequence);
    }
    let has_digest = terms.is_some_and(|terms| terms.digests.header);
    if !kind.is_bare() && (common[1] & HAS_HEADER_DIGEST != 0) != has_digest {
        return Err(Fatal::InvalidField(1));
    }
    if kind == Kind::ControllerData && common[1] & (SUCCESS | LAST) == SUCCESS {
        return Err(Fatal::InvalidField(1));
    }
    if usize::from(common[2]) != kind.header_size() {
        return Err(Fatal::InvalidField(2));
    }
    Ok(kind)
}

/// PDUs that have no digests: ICReq and ICResp have no data either, and the others the header that had an error, of at
/// most 128 bytes (TCP sections 3.6.2.2 to 3.6.2.5).
fn bare_layout(kind: Kind, header: &[u8]) -> Result<Layout, Fatal> {
    let (size, plen) = (kind.header_size(), u32_at(header, 4) as usize);
    let data_max = if size == HEADER_MAX { 0 } else { HEADER_MAX };
    match plen.checked_sub(size) {
        Some(data) if data <= data_max => Ok(Layout { head: size, data, has_digest: false }),
        _ => Err(Fatal::InvalidField(4)),
    }
}

/// PDUs of an open connection: where their data is, and whether it may be that much (TCP sections 3.6.2.6 to 3.6.2.10).
/// Of several wrong fields the first is named.
fn layout(kind: Kind, header: &[u8], terms: &Terms) -> Result<Layout, Fatal> {
    let end = kind.header_size() + terms.digests.header_bytes();
    let (head, plen) = (usize::from(header[3]), u32_at(header, 4) as usize);
    let must_have_data = matches!(kind, Kind::HostData | Kind::ControllerData);
    let may_have_data = must_have_data || kind == Kind::Command;
    if !may_have_data || plen == end && !must_have_data {
        return if plen == end {
            Ok(Layout { head: end, data: 0, has_digest: false })
        } else {
            Err(Fatal::InvalidField(4))
        };
    }
    if (header[1] & HAS_DATA_DIGEST != 0) != terms.digests.data {
        return Err(Fatal::InvalidField(1));
    }
    if head < end || !head.is_multiple_of(terms.alignment_bytes()) {
        return Err(Fatal::InvalidField(3));
    }
    let data = plen.checked_sub(head + terms.digests.data_bytes()).filter(|data| *data > 0);
    let data = data.ok_or(Fatal::InvalidField(4))?;
    if must_have_data && data > terms.data_max as usize {
        return Err(Fatal::LimitExceeded);
    }
    if !must_have_data && data > terms.capsule_data_max as usize {
        return Err(Fatal::InvalidField(4));
    }
    if must_have_data && u32_at(header, 16) as usize != data {
        return Err(Fatal::InvalidField(16));
    }
    Ok(Layout { head, data, has_digest: terms.digests.data })
}
