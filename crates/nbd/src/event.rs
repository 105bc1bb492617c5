//! What a session tells its owner.

use crate::request::{Command, RequestToken};
use crate::violation::Violation;

/// What a client has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over: requests for this export will follow.
    Opened {
        /// The export's own name, also where the client asked for the default export.
        name: String,
    },
    /// The client wants to open this export, and [`Exports::open`] could not tell yet whether it can: poll again when
    /// it can.
    ///
    /// [`Exports::open`]: azekura_frontend::Exports::open
    Wanted {
        /// The export's own name.
        name: String,
    },
    /// The client names an export that is not known, and [`Exports::may_come`] says that it may be there: poll again
    /// when that is certain.
    ///
    /// [`Exports::may_come`]: azekura_frontend::Exports::may_come
    Missing {
        /// What the client calls it.
        name: String,
    },
    /// Of a [secured](crate::Session::secured) session: the client begins TLS when it has what the outbox holds. From
    /// now on the inbox is to be given what TLS yields, and the outbox is for TLS to encrypt.
    StartsTls,
    /// A request that is owed one reply.
    Request {
        /// To be given back with the reply.
        token: RequestToken,
        /// What is wanted.
        command: Command,
    },
    /// The client said goodbye: answer what is in flight, send the outbox, close.
    Closed,
    /// The client broke the protocol: send the outbox, close.
    Violation(Violation),
}
