//! Targets of several logical units: listed, made, changed, deleted.

use azekura_api::endpoint::{TargetCreate, TargetDelete, TargetList, TargetShow, UnitAdd, UnitRemove};
use azekura_api::{AddUnit, CreateTarget, ErrorCode, NoContent, RemoveUnits, TargetView, UnitView};
use azekura_model::transitions::targets::UnitSpec;
use azekura_model::{Kind, MetaError, TargetRecord, units_iscsi_name};

use super::call::{Answer, Call, Reply, Routes};
use super::error::ApiError;
use super::known::{Known, Wanted, known};

/// Those of targets.
pub(super) fn routes(routes: Routes) -> Routes {
    routes.serve(list).serve(create).serve(show).serve(delete).serve(add).serve(remove)
}

fn view(record: &TargetRecord) -> TargetView {
    let unit = |(lun, volume): (&u16, &String)| UnitView { lun: *lun, volume: volume.clone() };
    TargetView {
        name: record.name.clone(),
        iscsi_name: units_iscsi_name(&record.name).unwrap_or_default(),
        units: record.units.iter().map(unit).collect(),
        next_lun: record.next,
        created: record.created.clone(),
    }
}

async fn list(Call { api, .. }: Call<TargetList>) -> Answer<TargetList> {
    let Known { model, stale } = known(&api, Wanted::Targets).await?;
    Ok(Reply::as_known(model.targets.values().map(|target| view(target)).collect(), stale))
}

async fn show(Call { api, names: [name], .. }: Call<TargetShow>) -> Answer<TargetShow> {
    let Known { model, stale } = known(&api, Wanted::Targets).await?;
    match model.targets.get(&name) {
        Some(target) => Ok(Reply::as_known(view(target), stale)),
        None => Err(MetaError::NotFound { kind: Kind::Target, name }.into()),
    }
}

async fn create(Call { api, body, caller, .. }: Call<TargetCreate>) -> Answer<TargetCreate> {
    caller.iter().try_for_each(|caller| caller.check_own(&body.name))?;
    let CreateTarget { name, volumes } = body;
    let units: Vec<UnitSpec> = volumes.into_iter().map(|volume| UnitSpec { volume, lun: None }).collect();
    Ok(view(&api.meta.create_target(&name, &units).await?).into())
}

async fn add(Call { api, names: [name], body, .. }: Call<UnitAdd>) -> Answer<UnitAdd> {
    let AddUnit { volume, lun } = body;
    Ok(view(&api.meta.add_unit(&name, &UnitSpec { volume, lun }).await?).into())
}

async fn remove(Call { api, names: [name, lun], query, .. }: Call<UnitRemove>) -> Answer<UnitRemove> {
    let RemoveUnits { force } = query;
    let lun: u16 = lun.parse().map_err(|_| {
        let hint = "give its number, as GET /v1/targets/NAME shows it".to_owned();
        ApiError::new(ErrorCode::Malformed, format!("{lun:?} is no number of a unit"), Some(hint))
    })?;
    Ok(view(&api.meta.remove_unit(&name, lun, force).await?).into())
}

async fn delete(Call { api, names: [name], query, .. }: Call<TargetDelete>) -> Answer<TargetDelete> {
    let RemoveUnits { force } = query;
    api.meta.delete_target(&name, force).await?;
    Ok(NoContent.into())
}
