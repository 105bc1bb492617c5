//! Lists a page at a time.

use serde::{Deserialize, Serialize};

/// Most things of one page.
pub const PAGE_MAX: usize = 1_000;
/// The header of an answer that is a page: what the next one is asked for with, as `after`. Without it, it was the
/// last.
pub const NEXT_HEADER: &str = "azekura-next";

/// Query of lists that can be had a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// At most so many, 1 to 1,000; all if nothing is said. The header `azekura-next` says where the next page begins;
    /// without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only what stands behind this: `azekura-next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
