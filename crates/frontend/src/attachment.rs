//! What a process has attached, and for whom.

use azekura_base::{Generation, HostName, VolumeId};
use std::fmt;

/// What is attached: a volume, for clients that belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeUse {
    /// The volume's name.
    pub volume: String,
    /// The host whose clients they are; `None`: those of whom no host is known.
    pub host: Option<HostName>,
}

impl From<&str> for VolumeUse {
    fn from(volume: &str) -> VolumeUse {
        VolumeUse { volume: volume.to_owned(), host: None }
    }
}

impl fmt::Display for VolumeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{} (for {host})", self.volume),
            None => f.write_str(&self.volume),
        }
    }
}

/// Which attachment of which volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The volume.
    pub volume: VolumeId,
    /// The attachment's name.
    pub generation: Generation,
    /// The process may write under it; else it may read.
    pub writes: bool,
}

impl From<(VolumeId, Generation)> for Attachment {
    /// One to write.
    fn from((volume, generation): (VolumeId, Generation)) -> Attachment {
        Attachment { volume, generation, writes: true }
    }
}
