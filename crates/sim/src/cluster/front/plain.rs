//! A protocol without bytes: a client and the process that serves it share what the one asks and the other answers.

use azekura_base::{HostName, Inbox, IoStatus, Outbox, VolumeId};
use azekura_frontend::{Event, Exports, Named, Opening, Protocol, Request, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use azekura_model::{Access, CommandKind, RegistrantName};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How far a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has said what it wants to open.
    Opening,
    /// It has opened that: the volume, and whether requests carry an attachment.
    Open(VolumeId, bool),
    /// It was told why it can't.
    Refused(String),
}

/// What a client and its connection's other end share.
pub(super) struct Wire {
    name: String,
    /// Who the client is, where that matters.
    host: Option<RegistrantName>,
    /// What the client calls itself, if that is to be told.
    named: Option<HostName>,
    pub(super) stage: Stage,
    asked: VecDeque<(u64, Request)>,
    room_bytes: usize,
    wants_room: Option<usize>,
    pub(super) answers: Vec<(u64, Outcome)>,
}

impl Wire {
    /// A client wants to open `name`.
    pub(super) fn new(name: &str, host: Option<RegistrantName>, named: Option<HostName>) -> Wire {
        Wire {
            name: name.to_owned(),
            host,
            named,
            stage: Stage::Opening,
            asked: VecDeque::new(),
            room_bytes: 0,
            wants_room: None,
            answers: Vec::new(),
        }
    }

    /// What the process has not taken yet.
    pub(super) fn unheard(&self) -> Vec<u64> {
        self.asked.iter().map(|(token, _)| *token).collect()
    }

    /// What the client may not do any more is refused.
    fn refuse_barred(&mut self, volume: VolumeId, exports: &dyn Exports) {
        let Some((host, known)) = self.host.as_ref().zip(exports.reservations(volume)) else { return };
        let rights = known.view.rights(host);
        while let Some((token, request)) = self.asked.front() {
            let is_read = matches!(request, Request::Read { .. });
            let kind = if is_read { CommandKind::Read } else { CommandKind::Write };
            if rights.access(kind) == Access::Allowed {
                return;
            }
            self.answers.push((*token, Outcome::Failed(IoStatus::ReadOnly)));
            self.asked.pop_front();
        }
    }

    /// The client asks for something.
    pub(super) fn ask(&mut self, token: u64, request: Request) {
        self.asked.push_back((token, request));
    }
}

/// The end of a connection that is in the process.
pub(super) struct Plain {
    wire: Rc<RefCell<Wire>>,
    inbox: Inbox,
    outbox: Outbox,
}

impl Plain {
    pub(super) fn new(wire: Rc<RefCell<Wire>>) -> Plain {
        Plain { wire, inbox: Inbox::default(), outbox: Outbox::default() }
    }
}

/// The most bytes that a request and its answer take.
fn memory_bytes(request: &Request) -> usize {
    match request {
        Request::Read { len, .. } => *len as usize,
        Request::Write { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

impl Protocol for Plain {
    fn name() -> &'static str {
        "plain"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        let wire = &mut *self.wire.borrow_mut();
        wire.wants_room = None;
        if let Some(host) = wire.named.take() {
            return Some(Event::Named(Named { host: Some(host), grant: None }));
        }
        match &wire.stage {
            Stage::Refused(_) => return None,
            Stage::Open(volume, _) => {
                let volume = *volume;
                wire.refuse_barred(volume, exports);
            }
            Stage::Opening => match exports.open(&wire.name) {
                Opening::Ready(export) => {
                    wire.stage = Stage::Open(export.id, !export.is_read_only());
                    return Some(Event::Opened { name: export.name });
                }
                Opening::Later(name) => return Some(Event::Wanted { name }),
                Opening::Unknown if exports.may_come(&wire.name) => {
                    return Some(Event::Missing { name: wire.name.clone() });
                }
                Opening::Unknown => {
                    wire.stage = Stage::Refused("there is none of this name".into());
                    return None;
                }
                Opening::Refused(why) => {
                    wire.stage = Stage::Refused(why);
                    return None;
                }
            },
        }
        let memory_bytes = memory_bytes(&wire.asked.front()?.1);
        if wire.room_bytes < memory_bytes {
            wire.wants_room = Some(memory_bytes);
            return None;
        }
        wire.room_bytes = 0;
        let (token, request) = wire.asked.pop_front()?;
        Some(Event::Request { tag: Tag(token), memory_bytes, request })
    }

    fn heeds_reservations(&self) -> bool {
        self.wire.borrow().host.is_some()
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.wire.borrow_mut().answers.push((tag.0, outcome));
    }

    fn wants_room(&self) -> Option<usize> {
        self.wire.borrow().wants_room
    }

    fn give_room(&mut self) {
        let wire = &mut *self.wire.borrow_mut();
        wire.room_bytes = wire.wants_room.take().unwrap_or(0);
    }
}

impl StreamProtocol for Plain {
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
