//! What a session sends: every answer carries where its commands and statuses are (RFC 7143 section 4.2.2).

use crate::login::keys::Parameters;
use crate::pdu::target::{DATA_IN, NOP_IN, R2T, REJECT, RejectReason, SCSI_RESPONSE, put};
use crate::pdu::{BHS_SIZE, Bhs, NO_TAG};
use crate::scsi::sense::Failure;
use azekura_base::Outbox;
use azekura_gateway::Piece;
use bytes::Bytes;
use std::collections::VecDeque;

/// Zeros to send.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The residual count of a command (section 11.4.5): flags and bytes.
fn residual(expected: u64, length: u64) -> (u8, u32) {
    const OVERFLOW: u8 = 0x04;
    const UNDERFLOW: u8 = 0x02;
    let flags = match length.cmp(&expected) {
        std::cmp::Ordering::Greater => OVERFLOW,
        std::cmp::Ordering::Less => UNDERFLOW,
        std::cmp::Ordering::Equal => 0,
    };
    (flags, u32::try_from(length.abs_diff(expected)).unwrap_or(u32::MAX))
}

/// What answers are numbered and cut by.
#[derive(Debug)]
pub(crate) struct Answers {
    pub parameters: Parameters,
    pub stat_sn: u32,
    /// The number of the next command, and of the last one that may come.
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
    /// Bytes of answers for which nobody has asked for memory, since the outbox was short last.
    pub unmetered: usize,
}

impl Answers {
    /// A header with the numbers in it. A PDU without status names the next status and does not count as one.
    fn header(&mut self, opcode: u8, itt: u32, has_status: bool) -> Bhs {
        let mut bhs = Bhs::new(opcode);
        bhs.0[1] = 0x80;
        bhs.put_u32(16, itt);
        bhs.put_u32(24, self.stat_sn);
        if has_status {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        bhs.put_u32(28, self.exp_cmd_sn);
        bhs.put_u32(32, self.max_cmd_sn);
        bhs
    }

    /// A response with a status number, after `fill` has put its own fields.
    pub fn respond(&mut self, outbox: &mut Outbox, opcode: u8, itt: u32, fill: impl FnOnce(&mut Bhs), data: Bytes) {
        let mut bhs = self.header(opcode, itt, true);
        fill(&mut bhs);
        self.unmetered += BHS_SIZE + data.len();
        put(outbox, self.parameters.digests, bhs, &[data]);
    }

    /// SCSI Response (section 11.4).
    pub fn status(&mut self, outbox: &mut Outbox, itt: u32, expected: u64, length: u64, failure: Option<Failure>) {
        const CHECK_CONDITION: u8 = 0x02;
        const BUSY: u8 = 0x08;
        const RESERVATION_CONFLICT: u8 = 0x18;
        const TASK_SET_FULL: u8 = 0x28;
        const TASK_ABORTED: u8 = 0x40;
        let (mut status, mut sense) = (0, Bytes::new());
        match failure {
            None => {}
            Some(Failure::Busy) => status = BUSY,
            Some(Failure::TaskSetFull) => status = TASK_SET_FULL,
            Some(Failure::ReservationConflict) => status = RESERVATION_CONFLICT,
            Some(Failure::TaskAborted) => status = TASK_ABORTED,
            Some(Failure::Check(why)) => {
                status = CHECK_CONDITION;
                let fixed = why.fixed();
                sense = [&(fixed.len() as u16).to_be_bytes()[..], &fixed].concat().into();
            }
        }
        let (flags, count) = residual(expected, length);
        let fill = |bhs: &mut Bhs| {
            bhs.0[1] |= flags;
            bhs.0[3] = status;
            bhs.put_u32(44, count);
        };
        self.respond(outbox, SCSI_RESPONSE, itt, fill, sense);
    }

    /// Data-In PDUs (section 11.7), the last of them with the status: of `length` bytes, as many as are expected.
    pub fn data(&mut self, outbox: &mut Outbox, itt: u32, expected: u64, length: u64, pieces: Vec<Piece>) {
        let total = expected.min(length) as usize;
        if total == 0 {
            return self.status(outbox, itt, expected, length, None);
        }
        let mut pieces = VecDeque::from(pieces);
        let (mut at, mut in_burst, mut data_sn) = (0, 0, 0);
        while at < total {
            let burst_left = self.parameters.burst_max as usize - in_burst;
            let len = (total - at).min(self.parameters.send_segment_max as usize).min(burst_left);
            let data = cut(&mut pieces, len);
            let is_last = at + len == total;
            let ends_burst = len == burst_left;
            in_burst = if ends_burst { 0 } else { in_burst + len };
            let mut bhs = self.header(DATA_IN, itt, is_last);
            if is_last {
                let (flags, count) = residual(expected, length);
                bhs.0[1] |= flags | 1;
                bhs.put_u32(44, count);
            } else {
                bhs.0[1] = u8::from(ends_burst) << 7;
                // Without status there is no number of one (section 11.7.4).
                bhs.put_u32(24, 0);
            }
            bhs.put_u32(20, NO_TAG);
            bhs.put_u32(36, data_sn);
            bhs.put_u32(40, at as u32);
            put(outbox, self.parameters.digests, bhs, &data);
            data_sn += 1;
            at += len;
        }
    }

    /// R2T (section 11.8): `len` bytes from `at` on.
    pub fn r2t(&mut self, outbox: &mut Outbox, lun: [u8; 8], itt: u32, r2t_sn: u32, at: usize, len: usize) {
        let mut bhs = self.header(R2T, itt, false);
        bhs.put(8, &lun);
        // One R2T of a task is outstanding at a time: its number will do as a tag.
        bhs.put_u32(20, r2t_sn);
        bhs.put_u32(36, r2t_sn);
        bhs.put_u32(40, at as u32);
        bhs.put_u32(44, len as u32);
        put(outbox, self.parameters.digests, bhs, &[]);
    }

    /// NOP-In of the target's own accord (section 11.19): to be answered with this tag. It names the next status and
    /// does not count as one.
    pub fn ping(&mut self, outbox: &mut Outbox, tag: u32) {
        let mut bhs = self.header(NOP_IN, NO_TAG, false);
        bhs.put_u32(20, tag);
        put(outbox, self.parameters.digests, bhs, &[]);
    }

    /// Reject (section 11.17), with the header of what is refused.
    pub fn reject(&mut self, outbox: &mut Outbox, reason: RejectReason, refused: &Bhs) {
        let fill = |bhs: &mut Bhs| bhs.0[2] = reason as u8;
        self.respond(outbox, REJECT, NO_TAG, fill, Bytes::copy_from_slice(&refused.0));
    }
}

/// The next `len` bytes of what was read. What is missing at the end is zeros, which does not happen.
fn cut(pieces: &mut VecDeque<Piece>, len: usize) -> Vec<Bytes> {
    let (mut data, mut left) = (Vec::new(), len);
    while left > 0 {
        let piece = pieces.pop_front().unwrap_or(Piece::Zero(left));
        let (count, rest) = match piece {
            Piece::Data(mut bytes) => {
                let count = bytes.len().min(left);
                data.push(bytes.split_to(count));
                (count, Piece::Data(bytes))
            }
            Piece::Zero(zeros) => {
                let count = zeros.min(left).min(ZEROS.len());
                data.push(Bytes::from_static(&ZEROS[..count]));
                (count, Piece::Zero(zeros - count))
            }
        };
        left -= count;
        if !matches!(&rest, Piece::Zero(0)) && !matches!(&rest, Piece::Data(bytes) if bytes.is_empty()) {
            pieces.push_front(rest);
        }
    }
    data
}
