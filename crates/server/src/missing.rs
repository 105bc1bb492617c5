//! Exports that clients ask for and this node does not know: the configuration may have them already, because another
//! node has just made them. It is read before a client hears that there is none.

use super::dataplane::{Command, DataPlane, Handle, Report};
use azekura_meta::MetaClient;
use azekura_reactor::ConnId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Without an answer of the configuration server for so long, what is not known counts as missing.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Whom it is being found out for.
#[derive(Debug, Default)]
pub struct Missing {
    /// The configuration is being read.
    looking: bool,
    /// Connections that it is read for.
    asked: BTreeSet<ConnId>,
    /// Those that came after the reading had begun.
    next: BTreeSet<ConnId>,
    /// What has been read is of this revision: this node has to know as much.
    awaited: Option<u64>,
    /// For these, what is not known is certainly not there.
    certain: BTreeSet<ConnId>,
}

impl Missing {
    /// Whether what a connection asks for is certainly not there if this node does not know it.
    pub fn is_certain(&self, conn: ConnId) -> bool {
        self.certain.contains(&conn)
    }

    /// It was told, or is gone: another wish has to be found out about anew.
    pub fn told(&mut self, conn: ConnId) {
        self.certain.remove(&conn);
    }

    /// A connection has ended.
    pub fn forget(&mut self, conn: ConnId) {
        for conns in [&mut self.asked, &mut self.next, &mut self.certain] {
            conns.remove(&conn);
        }
    }
}

impl DataPlane {
    /// A client asks for an export that is not known here.
    pub(super) fn look_for_export(&mut self, conn: ConnId) {
        let missing = &mut self.ops.missing;
        if missing.asked.contains(&conn) {
            return;
        }
        missing.next.insert(conn);
        self.look_if_asked();
    }

    fn look_if_asked(&mut self) {
        let missing = &mut self.ops.missing;
        if missing.looking || missing.next.is_empty() {
            return;
        }
        missing.looking = true;
        missing.asked = std::mem::take(&mut missing.next);
        self.report(Report::Look);
    }

    /// The configuration was read, and this node will know it up to `revision`; 0 if it could not be read.
    pub(super) fn looked(&mut self, revision: u64) {
        self.ops.missing.awaited = Some(revision);
        self.answer_missing();
    }

    /// The node may know as much as was read by now.
    pub(super) fn answer_missing(&mut self) {
        let known = self.node.revision();
        let missing = &mut self.ops.missing;
        if missing.awaited.take_if(|awaited| *awaited <= known).is_none() {
            return;
        }
        missing.looking = false;
        let asked = std::mem::take(&mut missing.asked);
        missing.certain.extend(&asked);
        asked.into_iter().for_each(|conn| self.pump_nbd(conn));
        self.look_if_asked();
    }
}

/// Reads the configuration for [`Report::Look`].
pub async fn look(client: MetaClient, handle: Handle) {
    let model = tokio::time::timeout(LOOK_MAX, client.model_of_snapshots()).await;
    let revision = model.ok().and_then(Result::ok).and_then(|model| u64::try_from(model.revision).ok());
    handle.send(Command::Looked(revision.unwrap_or(0)));
}
