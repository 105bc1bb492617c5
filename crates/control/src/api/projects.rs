//! Projects: listed, made, changed, deleted. Whoever has to do with one sees that one alone.

use azekura_api::endpoint::{ProjectChange, ProjectCreate, ProjectDelete, ProjectList, ProjectShow};
use azekura_api::{ChangeProject, CreateProject, NoContent, ProjectQuota, ProjectUse, ProjectView};
use azekura_base::DEFAULT_PROJECT;
use azekura_model::transitions::projects::{self, ProjectSpec};
use azekura_model::{Kind, MetaError, Model, ProjectRecord, Unknown};

use super::call::{Answer, Call, Reply};
use super::known::{Known, Wanted, known};

fn view(model: &Model, record: &ProjectRecord) -> ProjectView {
    let (quota, used) = (record.quota, record.used);
    ProjectView {
        name: record.name.clone(),
        classes: record.classes.as_ref().map(|classes| classes.iter().cloned().collect()),
        quota: ProjectQuota {
            bytes: quota.bytes,
            volumes: quota.volumes,
            snapshots: quota.snapshots,
            iops: quota.iops,
        },
        used: ProjectUse {
            bytes: used.bytes,
            volumes: used.volumes,
            snapshots: used.snapshots,
            iops: used.iops,
            unlimited: used.unlimited,
        },
        grants: model.grants.values().filter(|grant| grant.project == record.name).count(),
        created: record.created.clone(),
    }
}

pub(super) async fn list(Call { api, .. }: Call<ProjectList>) -> Answer<ProjectList> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let views = model.projects.values().map(|project| view(&model, project)).collect();
    Ok(Reply::as_known(views, stale))
}

pub(super) async fn show(Call { api, names: [name], .. }: Call<ProjectShow>) -> Answer<ProjectShow> {
    let Known { model, stale } = known(&api, Wanted::Snapshots).await?;
    match model.projects.get(&name) {
        Some(project) => Ok(Reply::as_known(view(&model, project), stale)),
        None if name == DEFAULT_PROJECT && api.meta.bounds().has(&name) => {
            Ok(Reply::as_known(view(&model, &default_project(&model)), stale))
        }
        None => Err(MetaError::NotFound { kind: Kind::Project, name }.into()),
    }
}

/// The default project has no record: it is as old as the cluster, and may have everything.
fn default_project(model: &Model) -> ProjectRecord {
    ProjectRecord {
        name: DEFAULT_PROJECT.to_owned(),
        classes: None,
        quota: azekura_model::ProjectQuota::default(),
        used: model.project_use(DEFAULT_PROJECT),
        created: model.cluster.as_ref().map(|cluster| cluster.created.clone()).unwrap_or_default(),
        unknown: Unknown::default(),
    }
}

pub(super) async fn create(Call { api, body, .. }: Call<ProjectCreate>) -> Answer<ProjectCreate> {
    let CreateProject { name, classes, quota } = body;
    let ProjectQuota { bytes, volumes, snapshots, iops } = quota;
    let quota = azekura_model::ProjectQuota { bytes, volumes, snapshots, iops };
    let spec = ProjectSpec { name, classes: classes.map(|classes| classes.into_iter().collect()), quota };
    let made = api.meta.create_project(&spec).await?;
    Ok(view(&api.meta.model(), &made).into())
}

pub(super) async fn change(Call { api, names: [name], body, .. }: Call<ProjectChange>) -> Answer<ProjectChange> {
    let ChangeProject { classes, bytes, volumes, snapshots, iops } = body;
    let classes = classes.map(|classes| classes.map(|classes| classes.into_iter().collect()));
    let change = projects::ProjectChange { classes, bytes, volumes, snapshots, iops };
    let changed = api.meta.change_project(&name, &change).await?;
    Ok(view(&api.meta.model(), &changed).into())
}

pub(super) async fn delete(Call { api, names: [name], .. }: Call<ProjectDelete>) -> Answer<ProjectDelete> {
    api.meta.delete_project(&name).await?;
    Ok(NoContent.into())
}
