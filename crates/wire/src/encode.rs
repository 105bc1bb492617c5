//! Messages to bytes.

use crate::frame::{frame_checksum, is_urgent, payload_bytes, payloads, put_body};
use crate::message::Message;
use crate::{HEADER_SIZE, MAGIC};
use azekura_base::Outbox;

/// Appends `message` to `out`; payloads go by reference.
pub fn encode(message: &Message, out: &mut Outbox) {
    let mut frame = Vec::with_capacity(128);
    frame.resize(HEADER_SIZE, 0);
    let kind = put_body(message, &mut frame);
    let body_len = frame.len() - HEADER_SIZE;
    let header = &mut frame[..HEADER_SIZE];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4] = kind;
    header[8..12].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(payload_bytes(message) as u32).to_le_bytes());
    let sum = frame_checksum(&frame);
    frame[16..20].copy_from_slice(&sum.0.to_le_bytes());
    if is_urgent(message) {
        out.put_urgent(&frame);
        return;
    }
    out.put(&frame);
    for payload in payloads(message) {
        out.put_payload(payload.clone());
    }
    out.end_frame();
}
