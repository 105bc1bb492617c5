//! Connections without a socket: each is a part of a session that has one, its *trunk*, and opens an export of its own.
//! To the front end a branch is a connection like others: what is by connection elsewhere, as the export and the
//! attachment, turns, the nexus and the era of reservations, is by branch here. Memory alone is the trunk's, since its
//! client is who sends and takes.
//!
//! | state | on | next |
//! |---|---|---|
//! | opening | the export can be opened; it can't | open; refused |
//! | open | the front end closes it, or the session has no more use for it | closing |
//! | closing | nothing that was asked for is under way any more | lost |
//!
//! What a session had asked for when its branch was closed is not carried out later: it is told that the branch is lost
//! when nothing of it can happen any more, and begins another one, which opens the export anew.
//!
//! # What a branch takes
//!
//! One request at a time, when it has room for one, as a connection takes them from its socket. What a client may do is
//! looked at when a request is asked for; one that lay here meanwhile would be let in by rights of before, and a fence
//! of reservations (docs/decisions/0046-reservations.md) does not wait for what the front end has not seen.
//!
//! A host that comes through several nodes takes a write that it sends now for later than all that it has sent by other
//! paths (docs/decisions/0048-paths-of-a-host.md). So a write has to have been sent when its branch was open: what was
//! sent before may be older than a write by another path, whose attachment has ended since. Sessions that open their
//! export when a client connects have that by themselves. A branch knows it by what the client acknowledges: a command
//! was sent later if its client had received a status by then which was sent after the branch had been opened.

use crate::exports::{Export, Exports, Opening};
use crate::nexuses::Nexus;
use crate::protocol::{Event, Protocol, StreamProtocol, Tag};
use crate::request::Request;
use crate::reservations::{ReservationAnswer, ReservationRequest};
use azekura_base::{Inbox, Outbox};
use azekura_gateway::Outcome;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a session asks of a branch: the same events as those of other connections.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    /// [`Event::Request`].
    Request {
        /// Its name among all requests of the session.
        tag: Tag,
        /// The most bytes that the request and its answer take, which the trunk has been given.
        memory_bytes: usize,
        /// What is wanted.
        request: Request,
    },
    /// [`Event::Reserves`].
    Reserves {
        /// Its name among all requests of the session.
        tag: Tag,
        /// The most bytes that it takes, which the trunk has been given.
        memory_bytes: usize,
        /// What is asked.
        request: Box<ReservationRequest>,
    },
    /// [`Event::Sweeps`].
    Sweeps(u64, u8),
    /// [`Event::Swept`].
    Swept(u64),
}

impl Ask {
    fn memory_bytes(&self) -> Option<usize> {
        match self {
            Ask::Request { memory_bytes, .. } | Ask::Reserves { memory_bytes, .. } => Some(*memory_bytes),
            Ask::Sweeps(..) | Ask::Swept(_) => None,
        }
    }

    fn event(self) -> Event {
        match self {
            Ask::Request { tag, memory_bytes, request } => Event::Request { tag, memory_bytes, request },
            Ask::Reserves { tag, memory_bytes, request } => Event::Reserves { tag, memory_bytes, request },
            Ask::Sweeps(token, why) => Event::Sweeps(token, why),
            Ask::Swept(sweep) => Event::Swept(sweep),
        }
    }
}

/// What a session hears of a branch.
#[derive(Debug, PartialEq)]
pub enum BranchNews {
    /// It has opened its export.
    Opened(Export),
    /// Its export can't be opened, and why. Nothing follows.
    Refused(String),
    /// [`Protocol::reply`].
    Answered(Tag, Outcome),
    /// [`Protocol::reserved`].
    Reserved(Tag, ReservationAnswer),
    /// [`Protocol::sweep`].
    Sweep(u64, u8),
    /// [`Protocol::swept`].
    Swept(u64),
    /// It is over: what was asked of it and has not been answered will not be, and can't happen any more. Nothing
    /// follows.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    Over,
}

/// What both ends have together.
#[derive(Debug)]
struct Shared {
    export: String,
    nexus: Nexus,
    stage: Stage,
    /// The session has no more use for it.
    ends: bool,
    /// It was asked for a request, and had none.
    wants_request: bool,
    asks: VecDeque<Ask>,
    news: VecDeque<BranchNews>,
}

impl Shared {
    fn refuse(&mut self, why: String) {
        self.stage = Stage::Over;
        self.news.push_back(BranchNews::Refused(why));
    }
}

/// A session's end of a branch.
#[derive(Debug)]
pub struct Branch {
    shared: Rc<RefCell<Shared>>,
    /// The number of the first status that was sent after it had been opened, until the client has acknowledged one
    /// such.
    unproved: Option<u32>,
    is_open: bool,
}

impl Branch {
    /// One that opens this export, as the only one of this nexus: the session's, and which of its branches that is. The
    /// other end is for [`Event::Branches`].
    #[must_use]
    pub fn new(export: &str, nexus: Nexus) -> (Branch, BranchEnd) {
        let (stage, asks, news) = (Stage::Opening, VecDeque::new(), VecDeque::new());
        let export = export.to_owned();
        let shared = Shared { export, nexus, stage, ends: false, wants_request: false, asks, news };
        let shared = Rc::new(RefCell::new(shared));
        (Branch { shared: Rc::clone(&shared), unproved: None, is_open: false }, BranchEnd(shared))
    }

    /// Asks for something: requests only when it [takes one](Branch::takes_request). [`Event::Tells`] is to follow.
    pub fn ask(&mut self, ask: Ask) {
        let shared = &mut *self.shared.borrow_mut();
        shared.wants_request &= ask.memory_bytes().is_none();
        shared.asks.push_back(ask);
    }

    /// A request that is asked for now is looked at now. When there is none, the session is polled once there is.
    #[must_use]
    pub fn takes_request(&self) -> bool {
        self.shared.borrow().wants_request
    }

    /// What has become of it and of what was asked. `next_status` is the number of the next status that the session
    /// sends.
    pub fn next_news(&mut self, next_status: u32) -> Option<BranchNews> {
        let news = self.shared.borrow_mut().news.pop_front();
        match &news {
            Some(BranchNews::Opened(_)) => (self.is_open, self.unproved) = (true, Some(next_status)),
            Some(BranchNews::Refused(_) | BranchNews::Lost) => (self.is_open, self.unproved) = (false, None),
            _ => {}
        }
        news
    }

    /// The client had received all statuses before this number when it sent what has come now.
    pub fn acknowledged(&mut self, expected_status: u32) {
        // Numbers wrap around.
        self.unproved.take_if(|first| expected_status.wrapping_sub(*first) as i32 > 0);
    }

    /// It has opened its export, as far as is known here.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// A write that has come now was sent when it was open already. Others are not to be asked for.
    #[must_use]
    pub fn takes_writes(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::writes_wait() {
            return true;
        }
        self.is_open && self.unproved.is_none()
    }

    /// The session has no more use for it. [`Event::Tells`] is to follow, and [`BranchNews::Lost`] comes when nothing
    /// of it is under way any more.
    pub fn end(&mut self) {
        self.shared.borrow_mut().ends = true;
    }

    /// Memory of what was asked for and has not been taken, one for each: of a branch that is over.
    #[must_use]
    pub fn take_unused(&mut self) -> Vec<usize> {
        self.shared.borrow_mut().asks.drain(..).filter_map(|ask| ask.memory_bytes()).collect()
    }
}

/// The front end's end of a branch.
#[derive(Debug)]
pub struct BranchEnd(Rc<RefCell<Shared>>);

impl PartialEq for BranchEnd {
    fn eq(&self, other: &BranchEnd) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BranchEnd {}

impl BranchEnd {
    /// The same end, for whoever has to tell the session something.
    pub(crate) fn handle(&self) -> BranchEnd {
        BranchEnd(Rc::clone(&self.0))
    }

    /// It can't be opened.
    pub(crate) fn refuse(&self, why: &str) {
        self.0.borrow_mut().refuse(why.to_owned());
    }

    /// Nothing of it is under way any more.
    pub(crate) fn lost(&self) {
        let shared = &mut *self.0.borrow_mut();
        shared.stage = Stage::Over;
        shared.news.push_back(BranchNews::Lost);
    }

    /// What was asked of a former branch of the same number comes first.
    #[cfg(feature = "sabotage")]
    pub(crate) fn goes_on_with(&self, asks: Vec<Ask>) {
        let shared = &mut *self.0.borrow_mut();
        asks.into_iter().rev().for_each(|ask| shared.asks.push_front(ask));
    }

    /// The protocol of the connection.
    pub(crate) fn protocol(self, heeds_reservations: bool) -> Part {
        Part { shared: self.0, heeds_reservations, inbox: Inbox::default(), outbox: Outbox::default() }
    }
}

/// A branch as a protocol: without bytes.
#[derive(Debug)]
pub(crate) struct Part {
    shared: Rc<RefCell<Shared>>,
    heeds_reservations: bool,
    inbox: Inbox,
    outbox: Outbox,
}

impl Part {
    fn tell(&self, news: BranchNews) {
        self.shared.borrow_mut().news.push_back(news);
    }
}

impl Protocol for Part {
    fn name() -> &'static str {
        "branch"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        let shared = &mut *self.shared.borrow_mut();
        if shared.ends && shared.stage != Stage::Over {
            shared.stage = Stage::Over;
            return Some(Event::Closed);
        }
        let why = match shared.stage {
            Stage::Over => return None,
            Stage::Open => {
                let ask = shared.asks.pop_front();
                shared.wants_request |= ask.is_none();
                return ask.map(Ask::event);
            }
            Stage::Opening => match exports.open(&shared.export) {
                Opening::Ready(export) if !exports.has_nexus() => {
                    return Some(Event::WantsNexus { nexus: Nexus::clone(&shared.nexus), export: export.name });
                }
                Opening::Ready(export) => {
                    shared.stage = Stage::Open;
                    let name = export.name.clone();
                    shared.news.push_back(BranchNews::Opened(export));
                    return Some(Event::Opened { name });
                }
                Opening::Later(name) => return Some(Event::Wanted { name }),
                Opening::Unknown if exports.may_come(&shared.export) => {
                    return Some(Event::Missing { name: shared.export.clone() });
                }
                Opening::Unknown => format!("there is no {} for this client", shared.export),
                Opening::Refused(why) => why,
            },
        };
        shared.refuse(why);
        Some(Event::Closed)
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.tell(BranchNews::Answered(tag, outcome));
    }

    fn reserved(&mut self, tag: Tag, answer: ReservationAnswer) {
        self.tell(BranchNews::Reserved(tag, answer));
    }

    fn heeds_reservations(&self) -> bool {
        self.heeds_reservations
    }

    fn sweep(&mut self, sweep: u64, why: u8) {
        self.tell(BranchNews::Sweep(sweep, why));
    }

    fn swept(&mut self, token: u64) {
        self.tell(BranchNews::Swept(token));
    }

    /// Its session has asked for it already.
    fn wants_room(&self) -> Option<usize> {
        None
    }

    fn give_room(&mut self) {}
}

impl StreamProtocol for Part {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn wants_bytes(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::VolumeId;

    fn opened() -> (Branch, BranchEnd) {
        let (branch, end) = Branch::new("vol1", "nexus".into());
        end.0.borrow_mut().news.push_back(BranchNews::Opened(Export::new("vol1", VolumeId(1), 4096)));
        (branch, end)
    }

    #[test]
    fn a_write_counts_as_sent_later_when_its_client_knows_of_a_later_status() {
        for first in [0, 5, u32::MAX, i32::MAX as u32] {
            let (mut branch, _) = opened();
            branch.acknowledged(first.wrapping_add(9));
            assert!(!branch.takes_writes() && !branch.is_open());
            assert!(matches!(branch.next_news(first), Some(BranchNews::Opened(_))));
            for before in [first, first.wrapping_sub(1), first.wrapping_sub(1000)] {
                branch.acknowledged(before);
                assert!(branch.is_open() && !branch.takes_writes(), "{before} of {first}");
            }
            branch.acknowledged(first.wrapping_add(1));
            assert!(branch.takes_writes());
            // What comes behind on the same connection was sent behind.
            branch.acknowledged(first);
            assert!(branch.takes_writes());
        }
    }

    #[test]
    fn a_branch_that_is_over_gives_back_what_was_not_taken() {
        let (mut branch, end) = opened();
        assert!(branch.next_news(1).is_some());
        branch.acknowledged(2);
        for (tag, memory_bytes) in [(Tag(1), 10), (Tag(2), 20)] {
            branch.ask(Ask::Request { tag, memory_bytes, request: Request::Flush });
        }
        branch.ask(Ask::Swept(3));
        end.lost();
        assert_eq!(branch.next_news(3), Some(BranchNews::Lost));
        assert_eq!((branch.takes_writes(), branch.take_unused()), (false, vec![10, 20]));
    }
}
