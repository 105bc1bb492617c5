//! What tools look at in a store.

use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::map::Map;
use crate::segments::Segments;

/// See the module's description.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inside<'a> {
    pub segments: &'a Segments,
    pub map: &'a Map,
    pub groups: &'a Groups,
    pub jobs: &'a Jobs,
    /// A checkpoint is being saved.
    pub is_saving: bool,
}
