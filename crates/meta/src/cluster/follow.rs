//! Keeps the model up to date: reads everything once, then follows the changes from there.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{BACK_OFF_MAX, BACK_OFF_MIN, EtcdClient, WatchEnd};
use crate::model::{Model, PREFIX};

/// Runs until nobody follows the model any more. `link` says why changes don't arrive, while they don't.
pub(super) async fn follow(etcd: EtcdClient, model: watch::Sender<Arc<Model>>, link: watch::Sender<Option<String>>) {
    let mut pause = BACK_OFF_MIN;
    while !model.is_closed() {
        let next = model.borrow().revision + 1;
        match watch_from(&etcd, next, &model, &link, &mut pause).await {
            WatchEnd::Resync => {
                let deadline = Instant::now() + BACK_OFF_MAX;
                match etcd.range_prefix(PREFIX, deadline).await {
                    Ok((kvs, revision)) => {
                        model.send_replace(Arc::new(Model::from_keys(&kvs, revision)));
                        continue;
                    }
                    Err(error) => link.send_replace(Some(error.to_string())),
                }
            }
            WatchEnd::Lost(reason) => link.send_replace(Some(reason)),
        };
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF_MAX);
    }
}

/// Applies changes from `next` on until the watch ends.
async fn watch_from(
    etcd: &EtcdClient,
    next: i64,
    model: &watch::Sender<Arc<Model>>,
    link: &watch::Sender<Option<String>>,
    pause: &mut std::time::Duration,
) -> WatchEnd {
    let mut watch = match etcd.watch_prefix(PREFIX, next).await {
        Ok(watch) => watch,
        Err(end) => return end,
    };
    link.send_replace(None);
    *pause = BACK_OFF_MIN;
    loop {
        let (events, revision) = match watch.next().await {
            Ok(changes) => changes,
            Err(end) => return end,
        };
        let mut changed = Model::clone(&model.borrow());
        changed.apply(&events, revision);
        model.send_replace(Arc::new(changed));
    }
}
