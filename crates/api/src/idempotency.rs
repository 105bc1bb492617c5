//! Requests that may be sent again (draft-ietf-httpapi-idempotency-key-header-07).

use azekura_base::Needs;

use crate::{Method, Route};

/// The header by which a request is known when it is sent again: 1 to 255 characters of ASCII without spaces, best a
/// UUID, also in quotes.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
/// The header of an answer that was given before, to a request with the same key: `true`.
pub const REPLAYED_HEADER: &str = "azekura-replayed";

impl Route {
    /// Whether requests to it may bring a key: those that change something, but for what is between nodes.
    #[must_use]
    pub fn takes_idempotency_key(&self) -> bool {
        let asked_by_people =
            matches!(self.needs, Needs::UseVolumes | Needs::Operate | Needs::Administer | Needs::Grants);
        self.method != Method::Get && asked_by_people
    }
}
