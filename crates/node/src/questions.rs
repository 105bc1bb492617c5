//! Questions about layers that no client asks: what two of them show differently, what the end of one would give back.
//!
//! The control plane asks each node about what is on its own devices, so nothing of this travels between data planes. A
//! question names the revision of the configuration that it was made from: a node that does not know it yet may not
//! know on what a layer lies.

use crate::effect::Effect;
use crate::node::Node;
use crate::pending::PendingOp;
use azekura_base::{CompareLayers, DeviceId, Differences, LayerId, MeasureLayer, Measured, NotTold};

impl Node {
    /// Finds out which blocks of a group's chunks two layers show differently, as of the configuration's revision that
    /// it names or later. [`Effect::Compared`] with `token` answers: [`azekura_store::Store::compare_layers`] says
    /// what is in it.
    pub fn compare_layers(&mut self, token: u64, asked: CompareLayers) {
        if let Err(refusal) = self.begin_comparison(token, asked) {
            self.effects.push_back(Effect::Compared(token, Err(refusal)));
        }
    }

    fn begin_comparison(&mut self, token: u64, asked: CompareLayers) -> Result<(), NotTold> {
        if asked.revision > self.directory.revision {
            return Err(NotTold::Later);
        }
        let key = self.primary_copy(asked.pg).ok_or(NotTold::Later)?;
        if !self.with_group(key, |group, now| group.may_tell_of_layers(now)).unwrap_or(false) {
            return Err(NotTold::Later);
        }
        let (_, device) = key;
        self.check_both(device, asked.from, asked.to)?;
        let pending = PendingOp::Compare { asker: token, from: asked.from, to: asked.to };
        self.with_store(device, pending, |store, token| store.compare_layers(token, asked));
        Ok(())
    }

    /// A layer that is being merged or dropped does not show what it did.
    fn check_both(&self, device: DeviceId, from: Option<LayerId>, to: LayerId) -> Result<(), NotTold> {
        if from.is_some_and(|from| self.is_gone(device, from)) || self.is_gone(device, to) {
            Err(NotTold::Gone)
        } else {
            Ok(())
        }
    }

    /// A store has compared two layers.
    pub(crate) fn compared(&mut self, device: DeviceId, token: u64, result: Result<Differences, NotTold>) {
        let pending = self.devices.get_mut(&device).and_then(|device| device.take_pending(token));
        let Some(PendingOp::Compare { asker, from, to }) = pending else { return };
        // They must have been there all the time.
        let still = self.check_both(device, from, to);
        self.effects.push_back(Effect::Compared(asker, still.and(result)));
    }

    /// Finds out what the end of a layer would give back on one of this node's devices, as of the configuration's
    /// revision that it names or later. [`Effect::Measured`] with `token` answers:
    /// [`azekura_store::Store::measure_layer`] says what is in it.
    pub fn measure_layer(&mut self, token: u64, asked: MeasureLayer) {
        if asked.revision > self.directory.revision || self.store(asked.device).is_none() {
            self.effects.push_back(Effect::Measured(token, Err(NotTold::Later)));
            return;
        }
        let pending = PendingOp::Measure { asker: token };
        self.with_store(asked.device, pending, |store, token| store.measure_layer(token, asked));
    }

    /// The store that was asked has stopped.
    pub(crate) fn no_answer(&mut self, pending: &PendingOp) {
        match pending {
            PendingOp::Compare { asker, .. } => self.effects.push_back(Effect::Compared(*asker, Err(NotTold::Later))),
            PendingOp::Measure { asker } => self.effects.push_back(Effect::Measured(*asker, Err(NotTold::Later))),
            _ => {}
        }
    }

    /// A store has measured a layer.
    pub(crate) fn measured(&mut self, device: DeviceId, token: u64, result: Result<Measured, NotTold>) {
        let pending = self.devices.get_mut(&device).and_then(|device| device.take_pending(token));
        let Some(PendingOp::Measure { asker }) = pending else { return };
        self.effects.push_back(Effect::Measured(asker, result));
    }
}
