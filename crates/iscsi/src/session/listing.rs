//! Text requests (RFC 7143 sections 11.10 and 11.11), and SendTargets (appendix C).

use super::answers::Answers;
use crate::LISTING_MAX;
use crate::login::keys::Answer;
use crate::login::text::{TEXT_MAX, parse, put};
use crate::names::{target_name, volume_name};
use crate::pdu::reader::Pdu;
use crate::pdu::target::{RejectReason, TEXT_RESPONSE};
use crate::pdu::{Bhs, NO_TAG};
use azekura_base::Outbox;
use azekura_frontend::{Exports, Listing};
use bytes::Bytes;

/// The tag of a text that goes on: one goes on at a time.
const GOES_ON: u32 = 1;

/// Text that has not come, or gone, wholly.
#[derive(Debug, Default)]
pub(crate) struct Text {
    come: Vec<u8>,
    to_go: Bytes,
}

impl Text {
    /// Deals with a text request of a session with the volume `here.0`, at the portal `here.1`.
    pub fn request(
        &mut self,
        pdu: &Pdu,
        answers: &mut Answers,
        outbox: &mut Outbox,
        exports: &dyn Exports,
        here: (Option<&str>, &str),
    ) {
        let goes_on = pdu.bhs.0[1] & 0x40 != 0;
        let is_next = pdu.bhs.u32(20) == GOES_ON;
        if is_next && !self.to_go.is_empty() && pdu.data.is_empty() {
            return self.answer(pdu, answers, outbox);
        }
        self.to_go.clear();
        if !is_next {
            self.come.clear();
        }
        if self.come.len() + pdu.data.len() > TEXT_MAX {
            self.come.clear();
            return answers.reject(outbox, RejectReason::InvalidField, &pdu.bhs);
        }
        self.come.extend_from_slice(&pdu.data);
        if goes_on {
            return respond(pdu, answers, outbox, Bytes::new(), (false, false));
        }
        let text = std::mem::take(&mut self.come);
        let Ok(pairs) = parse(&text) else {
            return answers.reject(outbox, RejectReason::InvalidField, &pdu.bhs);
        };
        // A list may be long: it is sent as it is kept for all connections, and so by itself.
        let asks_for_targets = |(key, _): &(&str, &str)| *key == "SendTargets";
        if let [one @ (_, value)] = pairs[..]
            && asks_for_targets(&one)
        {
            self.to_go = targets(value, exports, here);
            return self.answer(pdu, answers, outbox);
        }
        if pairs.iter().any(asks_for_targets) {
            return answers.reject(outbox, RejectReason::InvalidField, &pdu.bhs);
        }
        let mut answer = Vec::new();
        for (key, value) in pairs {
            // Section 13: of what is negotiated in a login, only this can be declared again.
            let said = match key {
                "MaxRecvDataSegmentLength" => answers.parameters.answer(key, value),
                _ => match answers.parameters.clone().answer(key, value) {
                    Answer::NotUnderstood => Answer::NotUnderstood,
                    _ => Answer::Reject,
                },
            };
            said.text().into_iter().for_each(|value| put(&mut answer, key, value));
        }
        self.to_go = answer.into();
        self.answer(pdu, answers, outbox);
    }

    /// Sends as much of the answer as fits into one PDU.
    fn answer(&mut self, pdu: &Pdu, answers: &mut Answers, outbox: &mut Outbox) {
        let most = answers.parameters.send_segment_max as usize;
        let data = self.to_go.split_to(self.to_go.len().min(most));
        let is_all = self.to_go.is_empty();
        respond(pdu, answers, outbox, data, (is_all, !is_all));
    }
}

fn respond(pdu: &Pdu, answers: &mut Answers, outbox: &mut Outbox, data: Bytes, (is_final, goes_on): (bool, bool)) {
    let fill = |bhs: &mut Bhs| {
        bhs.0[1] = u8::from(is_final) << 7 | u8::from(goes_on) << 6;
        bhs.put(8, &pdu.bhs.lun());
        bhs.put_u32(20, if is_final { NO_TAG } else { GOES_ON });
    };
    answers.respond(outbox, TEXT_RESPONSE, pdu.bhs.itt(), fill, data);
}

/// The targets that are meant by the value of SendTargets: all in a discovery session, else one.
fn targets(value: &str, exports: &dyn Exports, (volume, portal): (Option<&str>, &str)) -> Bytes {
    let one = |name: &str| list(&mut [name].into_iter(), portal).unwrap_or_default();
    match (value, volume) {
        ("All", None) => {
            let make =
                |exports: &mut dyn Iterator<Item = (&str, &str)>| list(&mut exports.map(|(name, _)| name), portal);
            exports.listing("iscsi", &make).unwrap_or_default()
        }
        ("", Some(volume)) => one(volume),
        (target, _) => {
            let name = volume_name(target).filter(|name| exports.find(name).is_some());
            name.map(|name| one(&name)).unwrap_or_default()
        }
    }
}

/// Names and addresses (appendix C). Without a portal's address the target is where it was asked for.
fn list(names: &mut dyn Iterator<Item = &str>, portal: &str) -> Listing {
    let mut text = Vec::new();
    for target in names.filter_map(target_name) {
        put(&mut text, "TargetName", &target);
        if !portal.is_empty() {
            put(&mut text, "TargetAddress", &format!("{portal},1"));
        }
        if text.len() > LISTING_MAX {
            return None;
        }
    }
    Some(text.into())
}
