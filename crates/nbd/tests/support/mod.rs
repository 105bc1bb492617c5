//! What the tests share: exports, the client's half of the protocol in bytes, and a server with volumes in memory.
#![allow(dead_code, clippy::unwrap_used)] // Each test file uses its part of it.

pub mod client;
pub mod server;

use azekura_nbd::{Export, Exports, Listing};

/// A fixed set of exports.
pub struct Fixed(pub Vec<Export>);

impl Exports for Fixed {
    fn list(&self) -> Listing {
        Listing::of(self.0.iter().map(|export| (&*export.name, &*export.description)))
    }

    fn find(&self, name: &str) -> Option<Export> {
        match (&self.0[..], name) {
            ([only], "") => Some(only.clone()),
            (all, _) => all.iter().find(|export| export.name == name).cloned(),
        }
    }
}
