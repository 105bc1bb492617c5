//! Whether the keys that wrap data keys are still there.

use azekura_control::DataKeys;
use azekura_meta::MetaClient;
use std::time::Duration;
use tokio::sync::watch;

/// They are looked for so often: in a file, or on a server.
const INTERVAL: Duration = Duration::from_secs(30);

/// Looks again and again, and tells which the node lacks.
pub(crate) async fn look(client: MetaClient, keys: DataKeys, lacking: watch::Sender<Vec<String>>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        let model = client.model();
        let found = keys.lacking(&model).await;
        lacking.send_if_modified(|told| std::mem::replace(told, found.clone()) != found);
    }
}
