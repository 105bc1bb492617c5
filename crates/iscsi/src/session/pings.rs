//! Pings: NOP-In that the target sends to an initiator that is silent (RFC 7143 section 11.19). A host that has died,
//! or that the network has lost, is noticed by that also where nothing is on its way to it; TCP would never notice.

use super::full::Full;
use crate::PING_PERIOD;
use azekura_base::Outbox;
use azekura_frontend::Event;

/// Questions without an answer after which a host is taken for dead.
const UNANSWERED_MAX: u32 = 2;

/// What of its initiator a session has heard.
#[derive(Debug, Default)]
pub(super) struct Pings {
    /// The front end is to be told that it has to ask.
    begins: bool,
    /// Something has come since the last look.
    is_heard: bool,
    /// Questions since then.
    unanswered: u32,
    /// The next question's tag.
    tag: u32,
}

impl Pings {
    /// The session has begun.
    pub fn begin(&mut self) {
        (self.begins, self.is_heard) = (true, true);
    }

    /// What the front end is to be told.
    pub fn next_event(&mut self) -> Option<Event> {
        std::mem::take(&mut self.begins).then_some(Event::Patience(Some(PING_PERIOD)))
    }

    /// The initiator has sent something.
    pub fn heard(&mut self) {
        self.is_heard = true;
    }

    /// A period is over. False: the initiator does not answer any more.
    pub fn look(&mut self, full: &mut Full, outbox: &mut Outbox) -> bool {
        if std::mem::take(&mut self.is_heard) {
            self.unanswered = 0;
            return true;
        }
        if self.unanswered >= UNANSWERED_MAX {
            return false;
        }
        self.unanswered += 1;
        // 0xffffffff is no tag.
        self.tag = (self.tag + 1) & 0xffff;
        full.ping(self.tag, outbox);
        true
    }
}
