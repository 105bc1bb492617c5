//! A session with two logical units, without bytes: its trunk, and a branch for each. Unit 0 is the clients' volume,
//! unit 1 the second one, to which the session writes by itself whenever a client asks for something.
//!
//! A client that sends a command knows of so many statuses, and says so; the network may hold the command back for as
//! long as it likes. What comes of that is the front end's: [`Branch`].

use super::plain::Stage;
use crate::cluster::records::{SECOND, VOLUME};
use azekura_base::{HostName, Inbox, Outbox};
use azekura_frontend::{Ask, Branch, BranchNews, Event, Exports, Named, Nexus, Protocol, Request, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

const UNITS: [&str; 2] = [VOLUME, SECOND];
/// Tags of what the session writes by itself.
const OWN: u64 = 1 << 62;
/// Bytes that such a write has.
const OWN_BYTES: usize = 4096;

/// What a client has sent.
struct Sent {
    /// It had received all statuses before this one.
    expected_status: u32,
    token: u64,
    request: Request,
}

/// What a client and its session share.
pub(super) struct SessionWire {
    name: String,
    named: Option<HostName>,
    /// How far the unit is that clients use.
    pub(super) stage: Stage,
    stays: bool,
    /// Its client's former session with the process is over.
    is_alone: bool,
    branches: BTreeMap<u32, Branch>,
    /// Units that can't be opened.
    refused: BTreeSet<u32>,
    next_status: u32,
    expected_status: u32,
    /// What the network holds back.
    late: VecDeque<Sent>,
    asked: VecDeque<Sent>,
    /// What was asked of unit 0 and has not been answered.
    under_way: BTreeSet<u64>,
    room_bytes: usize,
    wants_room: Option<usize>,
    answers: Vec<(u64, Outcome)>,
    /// What is not carried out, or will not be answered.
    turned_back: Vec<u64>,
}

impl SessionWire {
    /// The session of this name of a host: the only one with a process.
    pub(super) fn new(name: String, named: Option<HostName>) -> SessionWire {
        SessionWire {
            name,
            named,
            stage: Stage::Opening,
            stays: false,
            is_alone: false,
            branches: BTreeMap::new(),
            refused: BTreeSet::new(),
            next_status: 1,
            expected_status: 1,
            late: VecDeque::new(),
            asked: VecDeque::new(),
            under_way: BTreeSet::new(),
            room_bytes: 0,
            wants_room: None,
            answers: Vec::new(),
            turned_back: Vec::new(),
        }
    }

    /// The client asks for something, which the network brings at once, or holds back.
    pub(super) fn ask(&mut self, token: u64, request: Request, is_late: bool) {
        let sent = Sent { expected_status: self.expected_status, token, request };
        if is_late { self.late.push_back(sent) } else { self.asked.push_back(sent) }
    }

    /// What was held back comes.
    pub(super) fn bring(&mut self) {
        self.asked.append(&mut self.late);
    }

    /// The client receives what there is for it: answers, and what is to be asked again.
    pub(super) fn receive(&mut self) -> (Vec<(u64, Outcome)>, Vec<u64>) {
        self.expected_status = self.next_status;
        (std::mem::take(&mut self.answers), std::mem::take(&mut self.turned_back))
    }

    /// What the process has not taken yet.
    pub(super) fn unheard(&self) -> Vec<u64> {
        self.late.iter().chain(&self.asked).map(|sent| sent.token).collect()
    }

    fn turn_back(&mut self, token: u64) {
        self.turned_back.push(token);
        self.next_status = self.next_status.wrapping_add(1);
    }

    fn hear(&mut self, unit: u32, news: BranchNews) {
        match news {
            BranchNews::Opened(export) if unit == 0 => self.stage = Stage::Open(export.id, !export.is_read_only()),
            // What goes on although its branch is lost is nobody's any more, and the session's own never was.
            BranchNews::Answered(tag, outcome) if self.under_way.remove(&tag.0) => {
                self.answers.push((tag.0, outcome));
                self.next_status = self.next_status.wrapping_add(1);
            }
            BranchNews::Refused(why) => {
                self.branches.remove(&unit);
                self.refused.insert(unit);
                if unit == 0 {
                    self.stage = Stage::Refused(why);
                }
            }
            BranchNews::Lost => {
                self.branches.remove(&unit);
                if unit == 0 {
                    self.stage = Stage::Opening;
                    let ended = std::mem::take(&mut self.under_way);
                    ended.into_iter().for_each(|token| self.turn_back(token));
                }
            }
            _ => {}
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        self.wants_room = None;
        if let Some(host) = self.named.take() {
            return Some(Event::Named(Named { host: Some(host), grant: None }));
        }
        if !self.is_alone {
            return Some(Event::WantsNexus { nexus: self.name.as_str().into(), export: String::new() });
        }
        if !std::mem::replace(&mut self.stays, true) {
            return Some(Event::Stays);
        }
        for unit in 0..UNITS.len() as u32 {
            let next_status = self.next_status;
            while let Some(news) = self.branches.get_mut(&unit).and_then(|branch| branch.next_news(next_status)) {
                self.hear(unit, news);
            }
        }
        for (unit, volume) in (0..).zip(UNITS) {
            if !self.branches.contains_key(&unit) && !self.refused.contains(&unit) {
                let nexus: Nexus = format!("{}, unit {unit}", self.name).into();
                let (branch, end) = Branch::new(volume, nexus);
                self.branches.insert(unit, branch);
                return Some(Event::Branches(unit, end));
            }
        }
        self.next_command()
    }

    /// The first command, if it can be asked for now. What can't be is turned back, or waits.
    fn next_command(&mut self) -> Option<Event> {
        loop {
            let Sent { expected_status, token, request } = self.asked.front()?;
            let (token, is_read) = (*token, matches!(request, Request::Read { .. }));
            let Some(branch) = self.branches.get_mut(&0) else {
                self.asked.pop_front();
                self.turn_back(token);
                continue;
            };
            branch.acknowledged(*expected_status);
            if !is_read && !branch.takes_writes() {
                self.asked.pop_front();
                self.turn_back(token);
                continue;
            }
            if is_read && !branch.is_open() || !branch.takes_request() {
                return None;
            }
            let memory_bytes = match request {
                Request::Read { len, .. } => *len as usize,
                Request::Write { bytes, .. } => bytes.len(),
                _ => 0,
            };
            if self.room_bytes < memory_bytes + OWN_BYTES {
                self.wants_room = Some(memory_bytes + OWN_BYTES);
                return None;
            }
            let Sent { token, request, .. } = self.asked.pop_front()?;
            self.room_bytes = 0;
            branch.ask(Ask::Request { tag: Tag(token), memory_bytes: memory_bytes + OWN_BYTES, request });
            self.under_way.insert(token);
            return Some(Event::Tells(0));
        }
    }
}

/// The session's end in the process.
pub(super) struct Session {
    wire: Rc<RefCell<SessionWire>>,
    /// Its other unit is to be told something.
    tells: bool,
    made: u64,
    inbox: Inbox,
    outbox: Outbox,
}

impl Session {
    pub(super) fn new(wire: Rc<RefCell<SessionWire>>) -> Session {
        Session { wire, tells: false, made: OWN, inbox: Inbox::default(), outbox: Outbox::default() }
    }

    /// The session writes to its other unit, beside what its client has asked for.
    fn write_second(&mut self) {
        let wire = &mut *self.wire.borrow_mut();
        let Some(branch) = wire.branches.get_mut(&1).filter(|branch| branch.is_open()) else { return };
        self.made += 1;
        let (tag, bytes) = (Tag(self.made), Bytes::from_static(&[1; OWN_BYTES]));
        branch.ask(Ask::Request { tag, memory_bytes: 0, request: Request::Write { offset: 0, bytes } });
        self.tells = true;
    }
}

impl Protocol for Session {
    fn name() -> &'static str {
        "session"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        if std::mem::take(&mut self.tells) {
            return Some(Event::Tells(1));
        }
        self.wire.borrow_mut().is_alone = exports.has_nexus();
        let event = self.wire.borrow_mut().next_event()?;
        if event == Event::Tells(0) {
            self.write_second();
        }
        Some(event)
    }

    fn reply(&mut self, _: Tag, _: Outcome) {}

    fn wants_room(&self) -> Option<usize> {
        self.wire.borrow().wants_room
    }

    fn give_room(&mut self) {
        let wire = &mut *self.wire.borrow_mut();
        wire.room_bytes = wire.wants_room.take().unwrap_or(0);
    }
}

impl StreamProtocol for Session {
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
