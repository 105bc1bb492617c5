//! Keeps the model up to date: reads everything once, then follows the changes from there.

use std::sync::Arc;

use azekura_model::{EtcdError, Model, PREFIX};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{BACK_OFF_MAX, BACK_OFF_MIN, EtcdClient, WatchEnd};

use super::LinkLoss;

/// Whenever the connection was lost, everything is read again, and counted in [`Model::readings`]: the server may be
/// another one by then, whose revisions are those of other changes.
///
/// Runs until nobody follows the model any more. `link` says why changes don't arrive, while they don't.
pub(super) async fn follow(etcd: EtcdClient, model: watch::Sender<Arc<Model>>, link: watch::Sender<Option<LinkLoss>>) {
    let mut pause = BACK_OFF_MIN;
    while !model.is_closed() {
        let next = model.borrow().revision + 1;
        if let WatchEnd::Lost(reason) = watch_from(&etcd, next, &model, &link, &mut pause).await {
            lost(&link, reason);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
        while let Err(error) = read_again(&etcd, &model).await {
            if model.is_closed() {
                return;
            }
            lost(&link, error.to_string());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
    }
}

/// Reads everything.
async fn read_again(etcd: &EtcdClient, model: &watch::Sender<Arc<Model>>) -> Result<(), EtcdError> {
    let (kvs, revision) = etcd.range_prefix(PREFIX, BACK_OFF_MAX).await?;
    let readings = model.borrow().readings + 1;
    model.send_replace(Arc::new(Model { readings, ..Model::from_keys(&kvs, revision) }));
    Ok(())
}

/// Changes do not arrive, perhaps for some time already.
fn lost(link: &watch::Sender<Option<LinkLoss>>, reason: String) {
    link.send_modify(|link| {
        let since = link.as_ref().map_or_else(Instant::now, |loss| loss.since);
        *link = Some(LinkLoss { reason, since });
    });
}

/// Applies changes from `next` on until the watch ends.
async fn watch_from(
    etcd: &EtcdClient,
    next: i64,
    model: &watch::Sender<Arc<Model>>,
    link: &watch::Sender<Option<LinkLoss>>,
    pause: &mut std::time::Duration,
) -> WatchEnd {
    let mut watch = match etcd.watch_prefix(PREFIX, next).await {
        Ok(watch) => watch,
        Err(end) => return end,
    };
    link.send_replace(None);
    *pause = BACK_OFF_MIN;
    loop {
        let (changes, revision) = match watch.next().await {
            Ok(news) => news,
            Err(end) => return end,
        };
        let mut changed = Model::clone(&model.borrow());
        changed.apply(&changes, revision);
        model.send_replace(Arc::new(changed));
    }
}
