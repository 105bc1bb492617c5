//! What people should know.

use std::fmt;

use crate::{DeviceId, Endpoint, LayerId, NodeId, PgId};

/// A sentence, and what the sentence is about: whoever sorts warnings need not read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warning {
    /// The sentence. It names what is below, too.
    pub text: String,
    /// A volume's name, or `VOLUME@SNAPSHOT`.
    pub volume: Option<String>,
    /// A placement group.
    pub group: Option<PgId>,
    /// A device.
    pub device: Option<DeviceId>,
    /// A layer.
    pub layer: Option<LayerId>,
    /// Another node.
    pub peer: Option<NodeId>,
}

impl Warning {
    /// A sentence about nothing of these.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Warning {
        Warning { text: text.into(), ..Warning::default() }
    }

    /// It is about this volume, or snapshot.
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>) -> Warning {
        self.volume = Some(name.into());
        self
    }

    /// It is about this placement group.
    #[must_use]
    pub fn group(mut self, group: PgId) -> Warning {
        self.group = Some(group);
        self
    }

    /// It is about this device.
    #[must_use]
    pub fn device(mut self, device: DeviceId) -> Warning {
        self.device = Some(device);
        self
    }

    /// It is about this layer.
    #[must_use]
    pub fn layer(mut self, layer: LayerId) -> Warning {
        self.layer = Some(layer);
        self
    }

    /// It is about the node of this shard.
    #[must_use]
    pub fn peer(mut self, peer: Endpoint) -> Warning {
        self.peer = Some(peer.node);
        self
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
