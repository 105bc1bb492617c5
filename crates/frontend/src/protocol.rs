//! What a protocol has to do to be served.

use crate::branch::BranchEnd;
use crate::exports::Exports;
use crate::hosts::Named;
use crate::nexuses::Nexus;
use crate::request::Request;
use crate::reservations::{ReservationAnswer, ReservationRequest};
use crate::sharing::Sharing;
use azekura_base::{Inbox, Outbox, PeerKey};
use azekura_gateway::Outcome;
use std::time::Duration;

/// Names a request among those of its connection that have no answer yet. The protocol chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// What a client has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The client wants to open this export, and [`Exports::open`] could not tell yet whether it can: the protocol asks
    /// again at the next [`Protocol::poll`].
    Wanted {
        /// The export's own name.
        name: String,
    },
    /// The client names an export that is not known, and [`Exports::may_come`] says that it may be there: the protocol
    /// asks again at the next [`Protocol::poll`].
    Missing {
        /// What the client calls it.
        name: String,
    },
    /// The client comes to open this export under a name that it may have had before, on a connection that still
    /// stands: what is left of that has to end first. [`Exports::has_nexus`] says when, and the protocol asks again at
    /// the next [`Protocol::poll`]. The same nexus each time, and no other one on this connection.
    WantsNexus {
        /// The name.
        nexus: Nexus,
        /// The export's own name, which [`Exports::open`] has said to be ready.
        export: String,
    },
    /// The client comes on several connections that belong together, of which this one is the head: those that follow
    /// it end with it. [`Exports::has_nexus`] says when it may go on, and the protocol asks again at the next
    /// [`Protocol::poll`]: when nothing is left of those parties of this family whose heads are gone. The same names
    /// each time.
    Leads {
        /// The party's name, which no other has, nor had a moment ago.
        party: Nexus,
        /// The client and what it opens, by name.
        family: Nexus,
        /// The export's own name, which [`Exports::open`] has said to be ready.
        export: String,
    },
    /// This connection follows the head of a party. [`Exports::has_nexus`] says that it may go on, as for
    /// [`Event::Leads`]; it is closed when the party is not there any more.
    Follows {
        /// The party's name.
        party: Nexus,
        /// The export's own name, which [`Exports::open`] has said to be ready.
        export: String,
    },
    /// The head of a party wants those that follow it to end. [`Protocol::swept`] follows with this number, which the
    /// protocol chooses, when nothing that they had asked for can change the export any more.
    Disbands(u64),
    /// From now on the client is to give a sign of life every so often: [`Protocol::was_heard`] is asked.
    Patience(Option<Duration>),
    /// The client has proved that it has this key, or was asked for one and has none: what it may depends on that from
    /// now on. At most once, before it has opened anything.
    Proved(Option<PeerKey>),
    /// The client is a host that [`Exports::admittance`] lets in, and has proved what it had to: what it may depends
    /// on that from now on. At most once, before it has opened anything.
    Named(Named),
    /// What the client has shown to be let in is wrong, as this tells people. The protocol is polled again when it may
    /// say so.
    Mistaken(String),
    /// The client has opened nothing, and may stay all the same: its handshake is over.
    Stays,
    /// The client ends what all others have asked for of the export, for a reason that the protocol knows.
    /// [`Protocol::swept`] follows with this number, which the protocol chooses, when nothing of that can change the
    /// export any more. What other nodes' clients have asked for is not ended.
    Sweeps(u64, u8),
    /// Nothing that the client had asked for before [`Protocol::sweep`] with this number can change the export any
    /// more.
    Swept(u64),
    /// The client has opened an export: its requests follow. Once for each connection, unless it leaves the export.
    Opened {
        /// The export's own name, also where the client asked by another one.
        name: String,
    },
    /// The client has stopped using the export that it has opened, and nothing that it has asked for is without its
    /// answer: it has no nexus from now on, and the process may give the volume back. The connection stays, and may
    /// open the export again.
    Leaves,
    /// A request, which is owed one [`Protocol::reply`].
    Request {
        /// Its name.
        tag: Tag,
        /// The most bytes that the request and its answer take; those for which [`Protocol::wants_room`] asked.
        memory_bytes: usize,
        /// What is wanted.
        request: Request,
    },
    /// The client asks something of the export's reservations, which is owed one [`Protocol::reserved`]. Only where
    /// [`Exports::reservations`] says that there are any.
    Reserves {
        /// Its name.
        tag: Tag,
        /// The most bytes that it takes, and those for which [`Protocol::wants_room`] asked.
        memory_bytes: usize,
        /// What is asked: boxed, since a command is long and rare, and every event would have its size.
        request: Box<ReservationRequest>,
    },
    /// The session wants a further connection, without a socket, which opens an export of its own: a
    /// [`Branch`](crate::Branch), whose other end this is. The number is the protocol's own, and none that another
    /// branch of this connection has which is not over.
    Branches(u32, BranchEnd),
    /// The session has asked something of its branch of this number.
    Tells(u32),
    /// The client said goodbye: what waits to be sent is sent, then the connection is closed.
    Closed,
    /// The client broke the protocol, and how: what waits to be sent is sent, then the connection is closed.
    Violation(String),
}

/// One client's connection, in the words of its protocol: sans-IO, driven by the [`Frontend`](crate::Frontend).
///
/// The owner polls until there is no event. Then the protocol waits for more from its client, for room to be given, for
/// an export that was wanted, or for replies.
///
/// What a protocol offers follows from what it opens: an [`Export`](crate::Export) says what may be asked of it.
pub trait Protocol {
    /// What the protocol calls itself wherever a node says what it speaks, as in the configuration and the API: a short
    /// word in lower case, never another protocol's.
    fn name() -> &'static str
    where
        Self: Sized;

    /// The next thing that the client has done. `exports` is what this connection may see now.
    fn poll(&mut self, exports: &dyn Exports) -> Option<Event>;

    /// The answer to a request: [`Outcome::Read`] to a read, as long as it asked for; [`Outcome::Status`] to
    /// [`Request::Extents`]; [`Outcome::Done`] to any other; or [`Outcome::Failed`].
    ///
    /// # Panics
    /// When the answer does not fit the request, or the request was answered before.
    fn reply(&mut self, tag: Tag, outcome: Outcome);

    /// The bytes that the next request and its answer take, if the last [`Protocol::poll`] ended because they have not
    /// been given.
    fn wants_room(&self) -> Option<usize>;

    /// Gives the bytes that it wants; to be polled again.
    fn give_room(&mut self);

    /// The bytes that it wants are not there yet. True: it does without them, and is to be polled again. False: it
    /// waits for [`Protocol::give_room`].
    fn room_is_late(&mut self) -> bool {
        false
    }

    /// What comes of [`Event::Reserves`]. Only connections that ask are told.
    fn reserved(&mut self, tag: Tag, answer: ReservationAnswer) {
        let _ = (tag, answer);
    }

    /// True: the protocol knows who its client is, checks what it asks for against [`Exports::reservations`], and is
    /// polled when these change. False: the client may do what is left to those who are not registered.
    fn heeds_reservations(&self) -> bool {
        false
    }

    /// Another client of the export ends what this one has asked for, for this reason: [`Event::Swept`] with this
    /// number is owed. Only connections that want a nexus are told.
    fn sweep(&mut self, sweep: u64, why: u8) {
        let _ = (sweep, why);
    }

    /// What others had asked for before [`Event::Sweeps`] with this number has ended.
    fn swept(&mut self, token: u64) {
        let _ = token;
    }

    /// Whether the client has given a sign of life since this was asked last, or ever: asked after each period of
    /// [`Event::Patience`]. False: the connection is closed. A protocol that can may ask its client for one here.
    fn was_heard(&mut self) -> bool {
        true
    }

    /// True: what was given stays given until a request names it, however much more is given meanwhile. False: what was
    /// given and has not come to be a request when more is wanted is not needed any more.
    fn keeps_room(&self) -> bool {
        false
    }
}

/// A [`Protocol`] that comes as a stream of bytes in both directions.
pub trait StreamProtocol: Protocol {
    /// What to receive into; only while [`StreamProtocol::wants_bytes`], or it may overflow.
    fn inbox_mut(&mut self) -> &mut Inbox;

    /// What to send.
    fn outbox_mut(&mut self) -> &mut Outbox;

    /// True when the last [`Protocol::poll`] ended because it needs more bytes, and none are being received yet.
    fn wants_bytes(&self) -> bool;

    /// What its connections have beside bytes, if clients share memory with this process.
    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        None
    }
}
