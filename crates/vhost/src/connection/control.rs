//! Messages of a connection, and what they change.

use super::{CHANNEL, Connection, INFLIGHT, LOG, LOG_BELL, Loading};
use crate::block;
use crate::inflight::{self, Inflight};
use crate::log::Log;
use crate::memory::{Regions, why_no_region};
use crate::message::{
    self, ConfigAt, HEADER_BYTES, Header, InflightAt, LogAt, Message, RegionAt, Violation, answer, features,
};
use crate::ring::RingFeatures;
use crate::{QUEUES_MAX, RING_ENTRIES_MAX};
use azekura_base::SharedMemory;
use azekura_frontend::{Exports, Wish};
use std::os::fd::OwnedFd;

/// A message that is being dealt with.
struct Letter {
    request: u32,
    name: &'static str,
    /// Its sender waits, where acknowledgements were negotiated.
    needs_reply: bool,
}

/// What an acknowledgement says (Protocol, *REPLY_ACK*).
const DONE: u64 = 0;
const NOT_DONE: u64 = 1;

impl Connection {
    /// Takes messages until there is none, or one needs time.
    pub(super) fn take_messages(&mut self, exports: &dyn Exports) -> Result<(), Violation> {
        while self.loading.is_none() && self.stopping.is_none() {
            let Some(head) = self.inbox.peek(HEADER_BYTES) else {
                self.starved = true;
                return Ok(());
            };
            let header = Header::read(head.try_into().expect("a header's bytes"))?;
            let Some(bytes) = self.inbox.peek(HEADER_BYTES + header.payload_bytes) else {
                self.starved = true;
                return Ok(());
            };
            let message = Message::read(header.request, &bytes[HEADER_BYTES..])?;
            self.inbox.consume(HEADER_BYTES + header.payload_bytes);
            let name = message::name(header.request).unwrap_or_default();
            self.obey(Letter { request: header.request, name, needs_reply: header.needs_reply }, message, exports)?;
        }
        Ok(())
    }

    fn answer(&mut self, letter: &Letter, payload: &[u8]) {
        self.outbox.put(&answer(letter.request, payload));
    }

    fn answer_number(&mut self, letter: &Letter, number: u64) -> Result<(), Violation> {
        self.answer(letter, &number.to_ne_bytes());
        Ok(())
    }

    /// The message that is to be acknowledged, if this one is.
    fn owes(&self, letter: &Letter) -> Option<u32> {
        (letter.needs_reply && self.protocol_features & features::REPLY_ACK != 0).then_some(letter.request)
    }

    fn acknowledge(&mut self, owed: Option<u32>, outcome: u64) -> Result<(), Violation> {
        if let Some(request) = owed {
            self.outbox.put(&answer(request, &outcome.to_ne_bytes()));
        }
        Ok(())
    }

    fn descriptor(&mut self, letter: &Letter) -> Result<OwnedFd, Violation> {
        self.descriptors.pop_front().ok_or(Violation::NoDescriptor(letter.name))
    }

    fn offered(&self) -> u64 {
        self.export.as_ref().map_or(0, block::offered) | features::PROTOCOL_FEATURES | features::LOG_ALL
    }

    fn obey(&mut self, letter: Letter, message: Message, exports: &dyn Exports) -> Result<(), Violation> {
        match message {
            // Answered by what was asked for.
            Message::GetFeatures => return self.answer_number(&letter, self.offered()),
            Message::GetProtocolFeatures => return self.answer_number(&letter, features::OFFERED),
            Message::GetQueues => return self.answer_number(&letter, QUEUES_MAX as u64),
            Message::GetConfig(at) => return self.get_config(&letter, &at, exports),
            Message::GetRingBase { queue } => return self.stop_ring(queue),
            Message::GetInflight(at) => return self.lend_inflight(&letter, at),
            // Acknowledged later.
            Message::SetMemory(regions) => return self.set_memory(&letter, regions),
            Message::SetInflight(at) => return self.set_inflight(&letter, at),
            Message::SetLog(at) => return self.set_log(&letter, at),
            // Nothing of the configuration can be written.
            Message::SetConfig(_) => return self.acknowledge(self.owes(&letter), NOT_DONE),
            Message::SetFeatures(acked) => self.set_features(&letter, acked)?,
            Message::SetProtocolFeatures(acked) => {
                only(&letter, acked, features::OFFERED)?;
                self.protocol_features = acked;
            }
            Message::SetOwner => {}
            Message::ResetOwner => self.queues.disable_all(),
            Message::SetRingEntries { queue, entries } => {
                let number = u16::try_from(entries).ok();
                let fits = number.filter(|number| number.is_power_of_two() && *number <= RING_ENTRIES_MAX);
                let wrong = || Violation::value(letter.name, format!("a ring of {entries} entries"));
                let entries = fits.ok_or_else(wrong)?;
                self.expect_standing(&letter, queue)?;
                self.queues.set_entries(queue, entries)?;
            }
            Message::SetRingBase { queue, base } => {
                let wrong = || Violation::value(letter.name, format!("a ring that goes on at {base}"));
                let base = u16::try_from(base).ok().ok_or_else(wrong)?;
                self.expect_standing(&letter, queue)?;
                self.queues.set_base(queue, base);
            }
            Message::SetRingAddresses { queue, at } => self.queues.set_addresses(queue, at)?,
            Message::SetLogBell => {
                let eventfd = self.descriptor(&letter)?;
                self.has_log_bell = true;
                self.wishes.push_back(Wish::Keep { queue: LOG_BELL, eventfd });
            }
            Message::SetBackend => {
                let socket = self.descriptor(&letter)?;
                self.has_channel = true;
                self.wishes.push_back(Wish::Reach { queue: CHANNEL, socket });
            }
            Message::SetKick { has_descriptor: false, .. } => {
                return Err(Violation::value(letter.name, "a ring without an eventfd would have to be polled"));
            }
            Message::SetKick { queue, .. } => {
                let eventfd = self.descriptor(&letter)?;
                self.wishes.push_back(Wish::Hear { queue: queue as u32, eventfd });
                self.queues.set_kick(queue)?;
            }
            Message::SetCall { queue, has_descriptor } => {
                self.queues.set_call(queue, has_descriptor);
                if has_descriptor {
                    let eventfd = self.descriptor(&letter)?;
                    self.wishes.push_back(Wish::Keep { queue: queue as u32, eventfd });
                    // Something may have been used of which the driver was not told: by an earlier process, or when
                    // the ring was stopped, here or where the guest has come from.
                    self.ring(queue as u32);
                }
            }
            // A ring that is broken ends the connection, which says as much.
            Message::SetError { has_descriptor, .. } => {
                if has_descriptor {
                    drop(self.descriptor(&letter)?);
                }
            }
            Message::EnableRing { queue, enabled } => self.queues.enable(queue, enabled),
        }
        self.acknowledge(self.owes(&letter), DONE)
    }

    fn set_features(&mut self, letter: &Letter, acked: u64) -> Result<(), Violation> {
        only(letter, acked, self.offered())?;
        self.features = acked;
        let has = |feature| acked & feature != 0;
        let (indirect, event_idx) = (has(block::features::INDIRECT_DESC), has(block::features::EVENT_IDX));
        // Without protocol features there is no message to enable a ring (Protocol, *Ring states*).
        let all_enabled = !has(features::PROTOCOL_FEATURES);
        self.queues.set_features(RingFeatures { indirect, event_idx }, all_enabled, has(features::LOG_ALL));
        Ok(())
    }

    /// A volume may have grown since it was opened.
    fn get_config(&mut self, letter: &Letter, at: &ConfigAt, exports: &dyn Exports) -> Result<(), Violation> {
        let Some(export) = &mut self.export else { return Ok(()) };
        if let Some(now) = exports.find(&export.name).filter(|now| now.id == export.id) {
            *export = now;
        }
        self.told_size = export.size;
        let space = block::configuration(export, QUEUES_MAX as u16);
        self.answer(letter, &message::config(at, &space));
        Ok(())
    }

    fn expect_standing(&mut self, letter: &Letter, queue: usize) -> Result<(), Violation> {
        if self.queues.runs(queue) {
            return Err(Violation::value(letter.name, format!("ring {queue} runs")));
        }
        Ok(())
    }

    /// The answer waits until nothing of the ring is under way.
    fn stop_ring(&mut self, queue: usize) -> Result<(), Violation> {
        self.stopping = Some(queue);
        if self.queues.stop(queue) {
            self.ring_stands(queue);
        }
        Ok(())
    }

    /// Nothing of a ring is under way: whoever waits for that is told.
    pub(super) fn ring_stands(&mut self, queue: usize) {
        if self.stopping.take_if(|stopping| *stopping == queue).is_some() {
            let base = self.queues.base(queue);
            self.outbox.put(&answer(message::GET_VRING_BASE, &message::ring_base(queue, base)));
            self.queues.set_call(queue, false);
            self.wishes.push_back(Wish::Forget { queue: queue as u32 });
            self.leave_if_moved();
            self.want_poll();
        }
    }

    fn set_memory(&mut self, letter: &Letter, regions: Vec<RegionAt>) -> Result<(), Violation> {
        for (index, at) in regions.iter().enumerate() {
            if let Some(why) = why_no_region(at) {
                return Err(Violation::value(letter.name, why));
            }
            let file = self.descriptor(letter)?;
            let len = usize::try_from(at.size).expect("a region that was looked at");
            self.wishes.push_back(Wish::Map { region: index as u32, file, offset: at.offset, len });
        }
        let acknowledge = self.owes(letter);
        let regions: Vec<_> = regions.into_iter().map(|at| (at, None)).collect();
        if regions.is_empty() {
            self.queues.set_regions(Regions::default())?;
            return self.acknowledge(acknowledge, DONE);
        }
        self.loading = Some(Loading::Regions { regions, acknowledge });
        Ok(())
    }

    /// A file for the record of what is under way, which the client keeps and sends back.
    fn lend_inflight(&mut self, letter: &Letter, at: InflightAt) -> Result<(), Violation> {
        if !self.outbox.is_empty() {
            return Err(Violation::value(letter.name, "it was sent before earlier messages were answered"));
        }
        let at = InflightAt { size: inflight::bytes(at.queues, at.entries), offset: 0, ..at };
        let bytes = answer(letter.request, &message::inflight(&at));
        self.wishes.push_back(Wish::Lend { bytes, len: at.size });
        Ok(())
    }

    fn set_inflight(&mut self, letter: &Letter, at: InflightAt) -> Result<(), Violation> {
        let file = self.descriptor(letter)?;
        let needed = inflight::bytes(at.queues, at.entries);
        if at.size < needed {
            let why = format!("{} bytes, and {} queues of {} entries take {needed}", at.size, at.queues, at.entries);
            return Err(Violation::value(letter.name, why));
        }
        let len = usize::try_from(needed).expect("a few megabytes");
        self.wishes.push_back(Wish::Map { region: INFLIGHT, file, offset: at.offset, len });
        self.loading = Some(Loading::Inflight { at, acknowledge: self.owes(letter) });
        Ok(())
    }

    fn set_log(&mut self, letter: &Letter, at: LogAt) -> Result<(), Violation> {
        let file = self.descriptor(letter)?;
        let len = usize::try_from(at.size).expect("a size that was looked at");
        self.wishes.push_back(Wish::Map { region: LOG, file, offset: at.offset, len });
        self.loading = Some(Loading::Log { at, acknowledge: letter.request });
        Ok(())
    }

    /// Memory that was asked for is there.
    pub(super) fn loaded(&mut self, region: u32, memory: Box<dyn SharedMemory>) -> Result<(), Violation> {
        match self.loading.take() {
            Some(Loading::Inflight { at, acknowledge }) if region == INFLIGHT => {
                self.queues.set_inflight(Inflight::new(&at, memory));
                self.acknowledge(acknowledge, DONE)
            }
            Some(Loading::Log { at, acknowledge }) if region == LOG => {
                self.queues.set_log(Log::new(&at, memory));
                self.acknowledge(Some(acknowledge), DONE)
            }
            Some(Loading::Regions { mut regions, acknowledge }) => {
                if let Some((_, place)) = regions.get_mut(region as usize) {
                    *place = Some(memory);
                }
                if regions.iter().any(|(_, memory)| memory.is_none()) {
                    self.loading = Some(Loading::Regions { regions, acknowledge });
                    return Ok(());
                }
                let all = regions.into_iter().filter_map(|(at, memory)| Some((at, memory?)));
                self.queues.set_regions(Regions::new(all.collect()))?;
                self.acknowledge(acknowledge, DONE)
            }
            other => {
                self.loading = other;
                Ok(())
            }
        }
    }
}

/// A client takes no feature that it was not offered.
fn only(letter: &Letter, acked: u64, offered: u64) -> Result<(), Violation> {
    match acked & !offered {
        0 => Ok(()),
        more => Err(Violation::value(letter.name, format!("features {more:#x}, which were not offered"))),
    }
}
