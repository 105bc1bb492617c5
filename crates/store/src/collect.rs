//! Garbage collection.

use crate::effect::{DeviceError, IoId};
use crate::groups::Place;
use crate::leaf::LeafKey;
use crate::ops::Step;
use crate::store::Store;
use azekura_base::{BlockIndex, PgId, Sequence};
use bytes::Bytes;

#[derive(Debug, Default)]
pub(crate) struct Collector {}

impl Store {
    pub(crate) fn gc_target(&self) -> u32 {
        0
    }
    pub(crate) fn collect(&mut self) {}
    pub(crate) fn earn_gc_credit(&mut self, _clients: usize, _payload: u32) {}
    pub(crate) fn collect_read(&mut self, _io: IoId, _result: Result<Bytes, DeviceError>) {}
    pub(crate) fn step_probe(&mut self, _key: LeafKey, _first: BlockIndex, _count: u16, _address: u32) -> Step {
        Step::Done
    }
    pub(crate) fn probe_failed(&mut self) {}
    pub(crate) fn moved_pending(&mut self, _pg: PgId, _sequence: Sequence, _place: Place) {}
}
