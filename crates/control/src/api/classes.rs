//! Storage classes: list, show, create, change.

use azekura_api::ChangeClass;
use azekura_api::endpoint::{ClassChange, ClassCreate, ClassList, ClassShow};
use azekura_meta::cluster::{self, ClassSpec, DEFAULT_OVERCOMMIT_RATIO};
use azekura_model::{AckRule, FailureDomain, IO_TIMEOUT_DEFAULT_SECONDS, Kind, MetaError, is_own};

use super::call::{Answer, Call, Reply};
use super::known::{Known, Wanted, known};
use super::shown::Meant;
use super::views;

pub(super) async fn list(Call { api, .. }: Call<ClassList>) -> Answer<ClassList> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    let classes = model.classes_shown().filter(|class| !class.deleted);
    Ok(Reply::as_known(classes.map(|class| views::class(&model, class)).collect(), stale))
}

pub(super) async fn show(Call { api, names: [name], .. }: Call<ClassShow>) -> Answer<ClassShow> {
    let Known { model, stale } = known(&api, Wanted::Volumes).await?;
    match model.classes.get(&name).filter(|_| !is_own(&name)) {
        Some(class) => Ok(Reply::as_known(views::class(&model, class), stale)),
        None => Err(MetaError::NotFound { kind: Kind::Class, name }.into()),
    }
}

pub(super) async fn create(Call { api, body, .. }: Call<ClassCreate>) -> Answer<ClassCreate> {
    let spec = ClassSpec {
        name: body.name,
        copies: body.copies,
        failure_domain: body.failure_domain.map_or(FailureDomain::Host, Meant::meant),
        ack_rule: body.ack_rule.map_or(AckRule::All, Meant::meant),
        copies_min: body.copies_min.unwrap_or(1),
        overcommit_ratio: body.overcommit_ratio.unwrap_or(DEFAULT_OVERCOMMIT_RATIO),
        io_timeout_seconds: body.io_timeout_seconds.unwrap_or(Some(IO_TIMEOUT_DEFAULT_SECONDS)),
        encrypt: body.encrypt,
        logical_block: body.logical_block_bytes.unwrap_or_default(),
        home: body.home.map(Meant::meant),
        home_attached: body.home_attached,
    };
    let class = api.meta.create_class(&spec).await?;
    Ok(views::class(&api.meta.model(), &class).into())
}

pub(super) async fn change(Call { api, names: [name], body, .. }: Call<ClassChange>) -> Answer<ClassChange> {
    let ChangeClass { overcommit_ratio, io_timeout_seconds } = body;
    let class = api.meta.change_class(&name, cluster::ClassChange { overcommit_ratio, io_timeout_seconds }).await?;
    Ok(views::class(&api.meta.model(), &class).into())
}
