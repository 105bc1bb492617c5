//! Nodes, devices and placement groups.

use azekura_api::endpoint::{DeviceList, GroupList, NodeList};

use super::call::{Answer, Call};
use super::stats::gather;
use super::views;

pub(super) async fn nodes(Call { api, .. }: Call<NodeList>) -> Answer<NodeList> {
    let model = api.meta.model();
    Ok(views::nodes(&model, &gather(&api, &model).await).into())
}

pub(super) async fn devices(Call { api, .. }: Call<DeviceList>) -> Answer<DeviceList> {
    let model = api.meta.model();
    Ok(views::devices(&model, &gather(&api, &model).await).into())
}

pub(super) async fn groups(Call { api, .. }: Call<GroupList>) -> Answer<GroupList> {
    let model = api.meta.model();
    let stats = gather(&api, &model).await;
    let changeable = api.meta.watch_link().borrow().is_none();
    Ok(views::groups(&model, &stats, changeable).into())
}
