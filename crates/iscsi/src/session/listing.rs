//! Text requests (RFC 7143 sections 11.10 and 11.11), and SendTargets (appendix C).

use super::answers::Answers;
use crate::LISTING_MAX;
use crate::login::keys::Answer;
use crate::login::text::{TEXT_MAX, parse, put};
use crate::names::{target_name, units_name, units_of, volume_name};
use crate::pdu::reader::Pdu;
use crate::pdu::target::{RejectReason, TEXT_RESPONSE};
use crate::pdu::{Bhs, NO_TAG};
use azekura_base::Outbox;
use azekura_frontend::{Exports, Listed, Listing, Portal};
use bytes::Bytes;
use std::net::SocketAddr;

/// The tag of a text that goes on: one goes on at a time.
const GOES_ON: u32 = 1;

/// Text that has not come, or gone, wholly.
#[derive(Debug, Default)]
pub(crate) struct Text {
    come: Vec<u8>,
    to_go: Bytes,
    /// Targets that follow that.
    listed: Targets,
}

/// Targets that are still to be listed, each with its addresses. The names may be very many: they are kept once for all
/// connections, and what is said of them is made when it goes.
#[derive(Debug, Default)]
struct Targets {
    /// Each with a zero byte behind it.
    names: Bytes,
    /// Values of TargetAddress.
    addresses: Vec<String>,
}

impl Targets {
    /// What is said of the next one (appendix C).
    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.names.iter().position(|byte| *byte == 0)?;
        let name = self.names.split_to(end + 1);
        let mut text = Vec::new();
        put(&mut text, "TargetName", std::str::from_utf8(&name[..end]).ok()?);
        self.addresses.iter().for_each(|address| put(&mut text, "TargetAddress", address));
        Some(text)
    }
}

impl Text {
    /// Deals with a text request of a session with the target `here.0`, at the portal `here.1`.
    pub fn request(
        &mut self,
        pdu: &Pdu,
        answers: &mut Answers,
        outbox: &mut Outbox,
        exports: &dyn Exports,
        here: (Option<&str>, Option<SocketAddr>),
    ) {
        let goes_on = pdu.bhs.0[1] & 0x40 != 0;
        let is_next = pdu.bhs.u32(20) == GOES_ON;
        if is_next && !self.is_all() && pdu.data.is_empty() {
            return self.answer(pdu, answers, outbox);
        }
        (self.to_go, self.listed) = (Bytes::new(), Targets::default());
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
            self.listed = targets(value, exports, here);
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

    /// Nothing is left to be sent.
    fn is_all(&self) -> bool {
        self.to_go.is_empty() && self.listed.names.is_empty()
    }

    /// Sends as much of the answer as fits into one PDU.
    fn answer(&mut self, pdu: &Pdu, answers: &mut Answers, outbox: &mut Outbox) {
        let most = answers.parameters.send_segment_max as usize;
        if self.to_go.len() < most {
            let mut text = self.to_go.to_vec();
            while text.len() < most
                && let Some(next) = self.listed.next()
            {
                text.extend(next);
            }
            self.to_go = text.into();
        }
        let data = self.to_go.split_to(self.to_go.len().min(most));
        let is_all = self.is_all();
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
fn targets(value: &str, exports: &dyn Exports, (here, portal): (Option<&str>, Option<SocketAddr>)) -> Targets {
    let one = |target: &str| Bytes::from([target.as_bytes(), &[0]].concat());
    let names = match (value, here) {
        ("All", None) => exports.units_listing("iscsi", &|all| list(all)).unwrap_or_default(),
        ("", Some(here)) => one(here),
        (target, _) => {
            let volume = volume_name(target).filter(|name| exports.find(name).is_some());
            let units = || units_of(target).filter(|name| exports.units(name).is_some());
            let target = volume.and_then(|name| target_name(&name)).or_else(|| units_name(&units()?));
            target.map(|target| one(&target)).unwrap_or_default()
        }
    };
    let address = |portal: Portal| format!("{},{}", portal.address, Portal::group(portal.node));
    let portals = portal.map(|own| exports.portals().all("iscsi", own).map(address));
    Targets { names, addresses: portals.into_iter().flatten().collect() }
}

/// Names of targets, each with a zero byte behind it.
fn list(all: &mut dyn Iterator<Item = Listed<'_>>) -> Listing {
    let mut bytes = Vec::new();
    let name = |listed| match listed {
        Listed::Export(volume) => target_name(volume),
        Listed::Units(target) => units_name(target),
    };
    for target in all.filter_map(name) {
        bytes.extend_from_slice(target.as_bytes());
        bytes.push(0);
        if bytes.len() > LISTING_MAX {
            return None;
        }
    }
    Some(bytes.into())
}
