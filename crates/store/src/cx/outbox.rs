//! What the store wants done and has to tell, until its driver asks for it.

use crate::cx::io::Io;
use crate::effect::{Completion, Effect, IoId};
use crate::hash::FixedMap;
use crate::report::Report;
use std::collections::VecDeque;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub effects: VecDeque<Effect>,
    pub completions: VecDeque<Completion>,
    pub reports: VecDeque<Report>,
    /// What was asked for and has not ended.
    under_way: FixedMap<u64, Io>,
    last_io: u64,
}

impl Outbox {
    pub fn new_io(&mut self, what: Io) -> IoId {
        self.last_io += 1;
        self.under_way.insert(self.last_io, what);
        IoId(self.last_io)
    }

    pub fn take_io(&mut self, io: IoId) -> Io {
        self.under_way.remove(&io.0).expect("an effect ends once")
    }
}
