//! The data keys of encrypted volumes, and others in their place (docs/decisions/0038).

use azekura_api::endpoint::{NodeDataKeysShow, VolumeKeyRotate, VolumeKeyShow};
use azekura_api::{ErrorCode, KeyGenerationView, RekeyPass, RekeyView, VolumeKeyView};
use azekura_base::{KeyId, VolumeId};
use azekura_model::{CSI_PROVIDER, DataKeyRecord, Kind, MetaError, Model, Versioned};
use azekura_plans::rotation::{Next, Seen, next};

use super::Api;
use super::call::{Answer, Call};
use super::error::ApiError;
use crate::rotation;

pub(super) async fn node(Call { api, .. }: Call<NodeDataKeysShow>) -> Answer<NodeDataKeysShow> {
    let silent = || ApiError::new(ErrorCode::Unavailable, "the data plane does not answer".to_owned(), None);
    Ok(rotation::own(&api, &api.meta.model()).await.ok_or_else(silent)?.into())
}

pub(super) async fn show(Call { api, names: [name], .. }: Call<VolumeKeyShow>) -> Answer<VolumeKeyShow> {
    let model = api.meta.model_of_volumes().await?;
    let record = record_of(&model, &name)?;
    Ok(view(&api, &model, record).await.into())
}

pub(super) async fn rotate(Call { api, names: [name], .. }: Call<VolumeKeyRotate>) -> Answer<VolumeKeyRotate> {
    let model = api.meta.model_of_volumes().await?;
    let record = record_of(&model, &name)?;
    if record.current().is_some_and(|generation| generation.provider == CSI_PROVIDER) {
        let message = format!(
            "the data key of volume '{name}' is not rotated: it is wrapped with a secret of the volume's own, which no \
             node keeps, and the work is done by a node that need not have the volume"
        );
        let hint = "'azekura volume change-secret' changes the secret; for another data key copy the volume's data to \
                    a new one";
        return Err(ApiError::new(ErrorCode::Refused, message, Some(hint.to_owned())));
    }
    let drawn = api.keys.draw_next(&model, record.id).await?;
    let (_, revision) = api.meta.add_generation(record.id, &drawn).await?;
    let model = api.meta.model_at(revision).await?;
    let record = record_of(&model, &name)?;
    Ok(view(&api, &model, record).await.into())
}

/// The data key of a volume.
fn record_of<'a>(model: &'a Model, name: &str) -> Result<&'a Versioned<DataKeyRecord>, ApiError> {
    let not_found = || MetaError::NotFound { kind: Kind::Volume, name: name.to_owned() };
    let volume = model.volumes.get(name).ok_or_else(not_found)?;
    let refused = |why: &str| ApiError::new(ErrorCode::Refused, format!("volume '{name}' {why}"), None);
    let key = volume.key.ok_or_else(|| refused("is not encrypted: it has no data key"))?;
    let record = model.data_keys.get(&key).map(|record| &**record);
    record.ok_or_else(|| refused("has a data key that is not in the configuration"))
}

async fn view(api: &Api, model: &Model, record: &Versioned<DataKeyRecord>) -> VolumeKeyView {
    let newest = record.newest_of_several().map(|generation| generation.number);
    let answers = if newest.is_some() { rotation::answers(api, model).await } else { Vec::new() };
    let pass_of = |volume: VolumeId| -> Option<RekeyPass> {
        answers.iter().flat_map(|(_, answer)| answer).find_map(|answer| answer.passes.get(&volume.0)).copied()
    };
    let volume = |(name, done, pass): (&String, bool, Option<RekeyPass>)| RekeyView { name: name.clone(), done, pass };
    let volumes = model.volumes.values().filter(|volume| volume.key == Some(record.id));
    let volumes = volumes.map(|of| {
        let done = newest.is_none() || of.rekeyed == newest;
        volume((&of.name, done, pass_of(of.id).filter(|_| !done)))
    });
    let waits = match next(model, record, &seen(model, record.id, &answers), &Default::default()) {
        Some(Next::Wait(waits)) => rotation::waits_text(model, &waits),
        _ => Vec::new(),
    };
    let current = record.current().map(|generation| generation.number);
    let generation = |generation: &azekura_model::WrappedKey| KeyGenerationView {
        number: generation.number.number(),
        provider: generation.provider.clone(),
        created: generation.created.clone(),
        writing: Some(generation.number) == current,
    };
    VolumeKeyView {
        id: record.id.0,
        generations: record.generations.iter().map(generation).collect(),
        volumes: volumes.collect(),
        snapshots: newest.map_or_else(Vec::new, |newest| snapshots(model, record.id, newest)),
        waits,
    }
}

fn seen(model: &Model, key: KeyId, answers: &[(azekura_base::NodeId, Option<azekura_api::NodeDataKeys>)]) -> Seen {
    rotation::by_key(model, answers).remove(&key).unwrap_or_default()
}

/// The snapshots that need a former generation.
fn snapshots(model: &Model, key: KeyId, newest: azekura_base::KeyGeneration) -> Vec<String> {
    let former = model.former_keys(key, newest).snapshots;
    let needs = |snapshot: &azekura_model::SnapshotRecord| former.contains(&snapshot.layer);
    let name = |snapshot: &azekura_model::SnapshotRecord| {
        let volume = model.volumes.values().find(|volume| volume.id == snapshot.volume);
        format!("{}@{}", volume.map_or("?", |volume| volume.name.as_str()), snapshot.name)
    };
    model.snapshots.values().map(|snapshot| &snapshot.record).filter(|snapshot| needs(snapshot)).map(name).collect()
}
