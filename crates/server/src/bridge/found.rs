//! Bad blocks that scrubs and readers have found, noted in the configuration, where every node's status shows them.

use crate::bridge::scrubs::Noting;
use azekura_base::PgId;
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::{BlockFlaw, FOUND_BLOCKS_MAX, FoundBlockRecord, MetaError, ScrubRecord};
use azekura_node::{FoundBlock, ScrubWish};
use azekura_replica::{Flaw, ScrubKind, ScrubReport};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What readers meet in this time is noted together: a decaying device has many bad blocks at once.
const MET_PAUSE: Duration = Duration::from_secs(1);
/// Pause before noting is tried again that the configuration server did not confirm.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

fn record(found: FoundBlock, at: u64) -> FoundBlockRecord {
    FoundBlockRecord {
        volume: found.place.volume,
        layer: found.place.layer,
        offset_bytes: found.place.offset,
        device: found.device,
        flaw: match found.flaw {
            Flaw::Damaged => BlockFlaw::Damaged,
            Flaw::Differs => BlockFlaw::Differs,
        },
        mended: found.mended,
        at,
    }
}

/// Tells of a scrub, and notes it: what it has mended, no other will find.
pub async fn scrubbed(
    client: MetaClient,
    noting: Noting,
    pg: PgId,
    wish: ScrubWish,
    (report, found): (ScrubReport, Vec<FoundBlock>),
) {
    if report.findings() > 0 {
        let places = found.iter().take(FOUND_BLOCKS_MAX).map(|found| format!("; {}", record(found.clone(), 0)));
        tracing::error!(
            group = %pg,
            "group {pg}: {} scrub: {} blocks were damaged, {} blocks differed between copies and were written anew, {} chunks \
             could not be read{}",
            if report.kind == ScrubKind::Light { "light" } else { "deep" },
            report.damaged,
            report.differing,
            report.unreadable,
            places.collect::<String>()
        );
    }
    let (done, findings) = (unix_seconds(), report.findings());
    let note = |scrub: &mut ScrubRecord| {
        if report.kind == ScrubKind::Deep {
            // All that readers have met was looked at again.
            if scrub.deep.done == wish.deep.done {
                scrub.met = 0;
                scrub.found.clear();
            }
            scrub.deep.ended(done, wish.deep.wanted, wish.deep.done, findings);
        }
        scrub.light.ended(done, wish.light.wanted, wish.light.done, findings);
        let at = if report.kind == ScrubKind::Deep { scrub.deep.done } else { scrub.light.done };
        scrub.note_found(found.iter().take(FOUND_BLOCKS_MAX).map(|found| record(found.clone(), at)));
    };
    loop {
        match client.update_scrub(pg, note).await {
            // Who looks what is due sees it.
            Ok(revision) => break drop(client.model_at(revision).await),
            // Its class is gone.
            Err(MetaError::NotFound { .. }) => break,
            Err(error) => tracing::warn!(group = %pg, "can't note that group {pg} was scrubbed: {error}"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    noting.end(pg);
}

/// Bad blocks of one group that readers have met: how many, and the newest.
#[derive(Default)]
struct MetInGroup {
    count: u64,
    newest: Vec<FoundBlockRecord>,
}

/// Bad blocks that readers have met and that are still to be noted, by group.
#[derive(Clone, Default)]
pub struct Met(Arc<Mutex<BTreeMap<PgId, MetInGroup>>>);

impl Met {
    /// Notes one, together with those that follow at once.
    pub fn note(&self, client: &MetaClient, pg: PgId, found: FoundBlock) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let met = waiting.entry(pg).or_default();
        met.count += 1;
        met.newest.truncate(FOUND_BLOCKS_MAX - 1);
        met.newest.push(record(found, unix_seconds()));
        if met.count == 1 {
            tokio::spawn(self.clone().flush(client.clone(), pg));
        }
    }

    async fn flush(self, client: MetaClient, pg: PgId) {
        tokio::time::sleep(MET_PAUSE).await;
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pg);
        let Some(MetInGroup { count, newest }) = taken else { return };
        let note = |scrub: &mut ScrubRecord| {
            scrub.met += count;
            scrub.note_found(newest.iter().cloned());
        };
        while let Err(error) = client.update_scrub(pg, note).await {
            tracing::warn!(group = %pg, "can't note that readers have met {count} bad blocks in group {pg}: {error}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}
