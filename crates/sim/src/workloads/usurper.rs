//! An operator ends attachments of the volume by force, all the time.

mod steps;

use crate::kernel::random::Random;

/// Draws whose attachments end, and when.
pub(crate) struct Usurper {
    random: Random,
}

impl Usurper {
    pub(crate) fn new(random: Random) -> Usurper {
        Usurper { random }
    }
}
