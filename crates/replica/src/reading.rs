//! Questions about committed blocks.

use crate::action::{Action, Client};
use crate::pending::Blocks;
use azekura_base::{BlockIndex, CHUNK_BLOCKS, IoStatus, RequestId};
use azekura_wire::{ReadRequest, StatusRequest};

/// What a gateway wants to know.
pub(crate) enum Asked {
    Read(ReadRequest),
    Status(StatusRequest),
}

/// A gateway's question.
pub(crate) struct Look {
    pub(crate) client: Client,
    pub(crate) asked: Asked,
}

impl Look {
    pub(crate) fn blocks(&self) -> Blocks {
        match &self.asked {
            Asked::Read(ReadRequest { layer, chunk, first, count, .. }) => {
                Blocks { layer: *layer, chunk: *chunk, first: *first, count: *count }
            }
            Asked::Status(StatusRequest { layer, chunk, .. }) => {
                Blocks { layer: *layer, chunk: *chunk, first: BlockIndex(0), count: CHUNK_BLOCKS as u16 }
            }
        }
    }

    pub(crate) fn id(&self) -> RequestId {
        match &self.asked {
            Asked::Read(read) => read.request,
            Asked::Status(status) => status.request,
        }
    }

    pub(crate) fn serve(self) -> Action {
        match self.asked {
            Asked::Read(read) => Action::ServeRead(self.client, read),
            Asked::Status(status) => Action::ServeStatus(self.client, status),
        }
    }

    pub(crate) fn refuse(self) -> Action {
        Action::Refuse(self.client, self.id(), IoStatus::Redirect)
    }
}
