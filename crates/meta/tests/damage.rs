//! The embedded server's start with what it may find: another process, a taken port, a broken database.
#![allow(clippy::unwrap_used)]

use crate::support::{Folder, loopback};
use azekura_meta::cluster::MetaClient;
use azekura_meta::server::{EmbeddedServer, ServerError};

#[tokio::test]
async fn a_second_server_on_one_database_or_port() {
    let folder = Folder::new("second");
    let path = folder.0.join("config.redb");
    let first = EmbeddedServer::start(&path, loopback(0)).await.unwrap();
    let second = EmbeddedServer::start(&path, loopback(0)).await.unwrap_err();
    assert!(matches!(second, ServerError::InUse { .. }), "{second}");
    let other = folder.0.join("other.redb");
    let second = EmbeddedServer::start(&other, first.address()).await.unwrap_err();
    assert!(matches!(second, ServerError::Bind { .. }) && second.to_string().contains("another process"), "{second}");
    let address = first.address();
    first.stop().await;
    EmbeddedServer::start(&path, address).await.unwrap().stop().await;
    let nowhere = EmbeddedServer::start("/proc/none/config.redb".as_ref(), loopback(0)).await.unwrap_err();
    assert!(matches!(nowhere, ServerError::Folder { .. }), "{nowhere}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_is_an_error_or_whole() {
    let folder = Folder::new("damage");
    let path = folder.0.join("config.redb");
    let server = EmbeddedServer::start(&path, loopback(0)).await.unwrap();
    let client = MetaClient::connect(vec![format!("http://{}", server.address())]).await.unwrap();
    let id = client.ensure_cluster("lab", azekura_model::SettingsRecord::default(), None).await.unwrap().id;
    drop(client);
    server.stop().await;
    let sound = std::fs::read(&path).unwrap();
    let mut refused = 0;
    // Every kind of page is hit: the header, the tables' pages, free space.
    for step in 0..60 {
        let mut damaged = sound.clone();
        let at = step * 977 * 13 % damaged.len().min(400_000);
        for byte in damaged.iter_mut().skip(at).take(64) {
            *byte ^= 0x5a;
        }
        std::fs::write(&path, &damaged).unwrap();
        match EmbeddedServer::start(&path, loopback(0)).await {
            Err(_) => refused += 1,
            Ok(server) => {
                let endpoint = format!("http://{}", server.address());
                // What is answered is what was written, or an error.
                let found = match MetaClient::connect(vec![endpoint]).await {
                    Ok(client) => client.cluster_identity().await.ok().flatten(),
                    Err(_) => None,
                };
                if let Some(found) = found {
                    assert_eq!(found.id, id);
                }
                server.stop().await;
            }
        }
    }
    assert!(refused > 0, "no damage was noticed");
    std::fs::write(&path, b"not a database at all").unwrap();
    assert!(matches!(EmbeddedServer::start(&path, loopback(0)).await, Err(ServerError::Database { .. })));
}
