//! What the data plane reports, carried out against the cluster's configuration.

use crate::bridge::attachments::Keeper;
use crate::bridge::found::{Met, scrubbed};
use crate::bridge::nexuses::NexusKeeper;
use crate::bridge::scrubs::Noting;
use crate::bridge::statistics::Failures;
use crate::driver::clients;
use crate::driver::commands::Command;
use crate::driver::messages::{Handles, Report};
use azekura_base::{DeviceId, LayerId, PgId, Shard, Warning};
use azekura_meta::MetaClient;
use azekura_meta::cluster::CasOutcome;
use azekura_meta::time::now_rfc3339;
use azekura_model::transitions::groups::{self, Proposed};
use azekura_model::{DeviceFailure, FailureKind, MetaError};
use azekura_node::{Breakdown, proposal_of};
use azekura_replica::GroupConfig;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pause before a change is tried again that the configuration server did not confirm.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Tells of what the data plane warns of.
fn warn(warning: &Warning) {
    let Warning { text, volume, group, device, layer, peer } = warning;
    tracing::warn!(
        volume = volume.as_deref(),
        group = group.map(tracing::field::display),
        device = device.map(tracing::field::display),
        layer = layer.map(tracing::field::display),
        peer = peer.map(tracing::field::display),
        "{text}"
    );
}

/// Tells that a device hangs, or does not any more.
fn warn_of_silence(device: DeviceId, hangs: bool, ms: u128) {
    match hangs {
        true => tracing::warn!(
            device = %device,
            "device {device} has not answered for {ms} ms: nobody waits for its copies"
        ),
        false => tracing::warn!(device = %device, "device {device} answers again; it was silent for {ms} ms"),
    }
}

/// Works off reports until the data plane ends.
pub async fn carry_out(
    client: MetaClient,
    shards: Handles,
    failures: Failures,
    keeper: Keeper,
    noting: Noting,
    mut reports: mpsc::UnboundedReceiver<(Shard, Report)>,
) {
    let met = Met::default();
    let mut nexuses = NexusKeeper::new(shards.clone());
    while let Some((shard, report)) = reports.recv().await {
        match report {
            Report::Warn(what) => warn(&what),
            Report::DeviceOpen(device, Ok(())) => {
                tracing::info!(device = %device, "device {device} is open");
                failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&device);
                tokio::spawn(note_failure(client.clone(), device, None));
            }
            Report::DeviceOpen(device, Err(Breakdown { reason, for_good })) => {
                tracing::error!(
                    device = %device,
                    "device {device} is out of service: {reason}; its copies are not served from this node"
                );
                failures.lock().unwrap_or_else(PoisonError::into_inner).insert(device, reason.clone());
                let kind = if for_good { FailureKind::Lost } else { FailureKind::Stopped };
                tokio::spawn(note_failure(client.clone(), device, Some((kind, reason))));
            }
            Report::DeviceFailing(device, reason) => {
                tracing::error!(device = %device, "device {device} is failing: {reason}; its copies get new homes");
                tokio::spawn(note_failure(client.clone(), device, Some((FailureKind::Failing, reason))));
            }
            Report::DeviceHangs(device, hangs, silence) => warn_of_silence(device, hangs, silence.as_millis()),
            Report::DeviceSlow(device, time) => tracing::warn!(
                device = %device,
                "device {device} is slow: a write takes {} ms there, many times longer than on others: nobody waits for \
                 its copies for a while (look at the drive's health, or drain it: azekura device drain {device})",
                time.as_millis()
            ),
            Report::LayerDropped(device, layer) | Report::LayerMerged(device, layer) => {
                tokio::spawn(note_layer_gone(client.clone(), device, layer));
            }
            Report::Scrubbed(pg, wish, scrub) => {
                noting.begin(pg);
                tokio::spawn(scrubbed(client.clone(), noting.clone(), pg, wish, scrub));
            }
            Report::Found(pg, found) => met.note(&client, pg, found),
            Report::CopyForgotten(device, pg) => {
                let client = client.clone();
                tokio::spawn(async move {
                    while let Err(error) = client.confirm_copy_forgotten(pg, device).await {
                        tracing::warn!(device = %device, group = %pg, "can't note that device {device} has no copy of group {pg} any more: {error}");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                });
            }
            Report::Attach(volume) => keeper.wanted(shard, &volume),
            Report::AttachToWrite(volume) => keeper.wanted_to_write(&volume),
            Report::GiveBack(volume, attachment) => keeper.idle(shard, &volume, attachment),
            Report::Ended(volume, attachment) => keeper.ended(shard, &volume, attachment),
            Report::Nexus(number, news) => nexuses.heard(shard, number, news),
            Report::Reserves(token, volume, id, request) => {
                keeper.reservations.asked(shard, token, volume, id, *request);
            }
            Report::Heeds(volume, number) => keeper.reservations.heeds(shard, volume, number),
            Report::ReadConfiguration => {
                drop(tokio::spawn(clients::read_configuration(client.clone(), shards.clone(), shard)))
            }
            Report::Propose(pg, device, config) => {
                tokio::spawn(propose(client.clone(), shards.clone(), shard, pg, device, config));
            }
        }
    }
}

/// Notes in the configuration that a device has nothing of a layer any more.
async fn note_layer_gone(client: MetaClient, device: DeviceId, layer: LayerId) {
    while let Err(error) = client.confirm_layer_gone(layer, device).await {
        tracing::warn!(
            layer = %layer,
            device = %device,
            "can't note that layer {layer} is gone from device {device}: {error}"
        );
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Notes in the configuration what is wrong with a device, or that nothing is.
async fn note_failure(client: MetaClient, device: DeviceId, failure: Option<(FailureKind, String)>) {
    let failure = failure.map(|(kind, reason)| DeviceFailure { kind, reason, since: now_rfc3339() });
    while let Err(error) = client.note_device_failure(device, failure.as_ref()).await {
        if matches!(error, MetaError::NotFound { .. }) {
            return; // It was removed from the cluster.
        }
        tracing::warn!(device = %device, "can't note the state of device {device}: {error}");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Changes a group's configuration if it is still what the proposal was made from.
async fn propose(client: MetaClient, shards: Handles, shard: Shard, pg: PgId, device: DeviceId, config: GroupConfig) {
    let asked = Instant::now();
    let proposal = proposal_of(&config);
    let accepted = loop {
        let model = client.model();
        let (wanted, mod_revision) = match groups::propose(&model, pg, &proposal) {
            Proposed::Stands => break Some(model.revision),
            Proposed::Void => break None,
            Proposed::Replace(wanted, mod_revision) => (wanted, mod_revision),
        };
        match client.update_group(&wanted, mod_revision).await {
            Ok(CasOutcome::Updated { mod_revision }) => break Some(mod_revision),
            Ok(CasOutcome::Conflict { current }) => {
                // The refused copy must see what stands instead before it tries again.
                if let Some(current) = current {
                    let _ = client.model_at(current.mod_revision).await;
                }
                break None;
            }
            Err(error) => {
                tracing::warn!(group = %pg, "group {pg}: can't change its configuration: {error}");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    };
    tracing::debug!(
        group = %pg,
        device = %config.primary,
        "group {pg}: version {}, epoch {} of device {}, in sync {:?}: {} after {} ms",
        config.version,
        config.epoch,
        config.primary,
        config.in_sync,
        if accepted.is_some() { "stands" } else { "refused" },
        asked.elapsed().as_millis()
    );
    let accepted = accepted.and_then(|revision| u64::try_from(revision).ok());
    shards.send(shard, Command::ProposalDone(pg, device, config.version, accepted));
}
