//! What a connection comes to when it deals with what the client said.

use crate::event::Event;
use crate::request::Opened;

/// What one step came to.
pub(crate) enum Step {
    /// There may be more to do.
    Again,
    /// Nothing goes on without more bytes.
    Starved,
    /// Nothing goes on before there are so many bytes for the next request.
    Full(u32),
    /// Nothing goes on before it is known whether this export can be opened.
    Wait(String),
    /// Nothing goes on before it is certain that there is no export of this name.
    Missing(String),
    /// The option haggling is over.
    Open(String, Opened),
    /// Something for the session's owner.
    Give(Event),
    /// The client said goodbye.
    Close,
}
