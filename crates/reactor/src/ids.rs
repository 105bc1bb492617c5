//! Names of what is open. Those of what has been closed find nothing, and never mean something newer.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u64);
    )+};
}

ids! {
    /// A connection.
    ConnId,
    /// A listening socket.
    ListenerId,
    /// An open device.
    FileId,
    /// An eventfd of another process.
    BellId,
}
