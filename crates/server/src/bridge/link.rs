//! Tells people when the configuration does not answer, and when it does again.

use azekura_meta::cluster::LinkLoss;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Shorter losses, such as a restart of a server's member, are no news; another reason is told after so long.
const GRACE: Duration = Duration::from_secs(3);
/// The same reason is told so often.
const REPEAT: Duration = Duration::from_secs(60);

/// Runs until nobody follows the configuration any more.
pub(crate) async fn tell(mut link: watch::Receiver<Option<LinkLoss>>) {
    while link.wait_for(Option::is_some).await.is_ok() {
        let mut told: Option<(String, Instant)> = None;
        loop {
            match tokio::time::timeout(GRACE, link.wait_for(Option::is_none)).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            let Some(LinkLoss { reason, since }) = link.borrow().clone() else { continue };
            if told.as_ref().is_none_or(|(last, when)| *last != reason || when.elapsed() >= REPEAT) {
                tracing::warn!("the configuration has not answered for {} s: {reason}", since.elapsed().as_secs());
                told = Some((reason, Instant::now()));
            }
        }
        if told.is_some() {
            tracing::info!("the configuration answers again");
        }
    }
}
