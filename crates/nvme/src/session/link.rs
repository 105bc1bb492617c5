//! What goes back to the host: completions, in the order in which commands end, and data.

use crate::completion::{Completion, Status};
use crate::pdu::writer::put;
use crate::pdu::{DataHeader, Pdu, Terms};
use azekura_base::Outbox;
use azekura_gateway::Piece;
use bytes::Bytes;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// One queue's way to its host.
#[derive(Debug)]
pub(super) struct Link {
    terms: Terms,
    /// Entries of the submission queue; 0 before there is one.
    entries: u16,
    /// SQHD.
    head: u16,
    has_flow_control: bool,
    /// Bytes that were sent without having asked for memory, since the host has taken nearly all.
    unmetered: usize,
}

impl Link {
    pub fn new(terms: Terms) -> Link {
        Link { terms, entries: 0, head: 0, has_flow_control: true, unmetered: 0 }
    }

    /// The connection is a queue of so many entries from now on.
    pub fn begin(&mut self, entries: u16, has_flow_control: bool) {
        (self.entries, self.head, self.has_flow_control) = (entries, 0, has_flow_control);
    }

    pub fn is_stalled(&mut self, outbox: &Outbox) -> bool {
        if outbox.len() <= crate::UNMETERED_MAX / 4 {
            self.unmetered = 0;
        }
        self.unmetered > crate::UNMETERED_MAX
    }

    /// A place of the submission queue is free again when its command is completed, not when it has come: so there are
    /// never more commands under way than the queue has entries.
    fn next_head(&mut self) -> u16 {
        if !self.has_flow_control {
            // Base section 6.3: what the answer to Connect says when flow control is off.
            return 0xffff;
        }
        self.head = (self.head + 1) % self.entries.max(1);
        self.head
    }

    /// Completes a command.
    pub fn complete(&mut self, outbox: &mut Outbox, command: u16, status: Status, result: u64) {
        let queue_head = self.next_head();
        let entry = Completion { result, queue_head, queue: 0, command, status }.entry();
        self.unmetered += 24;
        put(outbox, &self.terms, &Pdu::Response(entry), &[]);
    }

    /// Completes a command with data, for which memory was asked before.
    pub fn complete_read(&mut self, outbox: &mut Outbox, command: u16, pieces: Vec<Piece>, len: usize) {
        // Without flow control nobody needs the queue's head, and so the last data can complete the command (TCP
        // section 3.3.2.1).
        let is_success = !self.has_flow_control;
        let header = DataHeader { command, transfer: 0, offset: 0, len: len as u32, is_last: true, is_success };
        put(outbox, &self.terms, &Pdu::ControllerData(header), &bytes(pieces, len));
        if !is_success {
            self.complete(outbox, command, Status::SUCCESS, 0);
        }
    }

    /// Completes a command with data of this side's own.
    pub fn complete_with(&mut self, outbox: &mut Outbox, command: u16, data: Vec<u8>) {
        let len = data.len();
        self.unmetered += len;
        self.complete_read(outbox, command, vec![Piece::Data(data.into())], len);
    }

    /// Asks for data.
    pub fn ask(&mut self, outbox: &mut Outbox, r2t: crate::pdu::ReadyToTransfer) {
        put(outbox, &self.terms, &Pdu::ReadyToTransfer(r2t), &[]);
    }
}

/// What was read, as so many bytes. What is missing at the end is zeros, which does not happen.
fn bytes(pieces: Vec<Piece>, len: usize) -> Vec<Bytes> {
    let (mut data, mut left) = (Vec::new(), len);
    for piece in pieces.into_iter().chain([Piece::Zero(len)]) {
        match piece {
            Piece::Data(mut bytes) => {
                bytes.truncate(left);
                left -= bytes.len();
                if !bytes.is_empty() {
                    data.push(bytes);
                }
            }
            Piece::Zero(zeros) => {
                let mut zeros = zeros.min(left);
                left -= zeros;
                while zeros > 0 {
                    let count = zeros.min(ZEROS.len());
                    data.push(Bytes::from_static(&ZEROS[..count]));
                    zeros -= count;
                }
            }
        }
    }
    data
}
