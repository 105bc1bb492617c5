//! What the tests share: exports, the client's half of the protocol in bytes, and a server with volumes in memory.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // Each test file uses its part of it.

pub mod client;
pub mod server;

pub use azekura_base::VolumeId;
pub use azekura_frontend::Export;
use azekura_frontend::{Exports, Listing, MakeListing};

/// A fixed set of exports.
pub struct Fixed(pub Vec<Export>);

impl Exports for Fixed {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut self.0.iter().map(|export| (&*export.name, &*export.description)))
    }

    fn find(&self, name: &str) -> Option<Export> {
        match (&self.0[..], name) {
            ([only], "") => Some(only.clone()),
            (all, _) => all.iter().find(|export| export.name == name).cloned(),
        }
    }
}
