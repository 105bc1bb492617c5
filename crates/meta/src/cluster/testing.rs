//! What the tests of this folder share.
#![allow(clippy::unwrap_used)]

use azekura_model::{AuditProof, AuditRecord, Role, Unknown, audit_time};

use super::{MetaClient, SettingsChange};
use crate::server::EmbeddedServer;

/// A record of somebody's change at this time, seconds since 1970.
pub(super) fn record(seconds: u64) -> AuditRecord {
    AuditRecord {
        at: audit_time(seconds, 0),
        who: "ann".to_owned(),
        proof: AuditProof::Token,
        grant: None,
        role: Role::Admin,
        from: "10.0.0.9".to_owned(),
        node: "n1".to_owned(),
        operation: "SettingsChange".to_owned(),
        method: "POST".to_owned(),
        path: "/v1/settings".to_owned(),
        details: serde_json::Value::Null,
        unknown: Unknown::default(),
    }
}

/// A configuration server of its own, and a client of it.
pub(super) async fn start(folder: &tempfile::TempDir) -> (EmbeddedServer, MetaClient) {
    let database = folder.path().join("config.redb");
    let server = EmbeddedServer::start(&database, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let meta = MetaClient::connect(vec![format!("http://{}", server.address())]).await.unwrap();
    (server, meta)
}

/// A change that is easily told.
pub(super) fn moves(number: u32) -> SettingsChange {
    SettingsChange { moves_at_once: Some(number), ..SettingsChange::default() }
}
