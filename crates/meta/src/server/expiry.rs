//! Ends the leases that nobody renews.

use std::time::Instant;

use super::execute::Execution;
use super::limits::LEASE_CHECK;
use super::stopping::Stopping;
use super::writer::Writer;

/// Revokes leases whose time is over. When this task itself was held up (a paused machine), so were the renewals, and
/// every lease gets the lost time back.
pub async fn expire(writer: Writer, mut stopping: Stopping) {
    let mut last = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LEASE_CHECK) => {}
            () = stopping.told() => return,
        }
        let now = Instant::now();
        let lost = now.duration_since(last).saturating_sub(LEASE_CHECK * 4);
        last = now;
        let expired = {
            let mut leases = writer.shared.leases();
            leases.extend_all(lost);
            leases.expired(now)
        };
        for id in expired {
            let revoke = move |execution: Execution<'_>| {
                let over = execution.leases.get(id).is_some_and(|lease| lease.deadline <= Instant::now());
                if over { execution.revoke(id) } else { Ok(()) }
            };
            // A failed database is reported by every request; the lease is looked at again in the next round.
            let _outcome = writer.write(revoke).await;
        }
    }
}
