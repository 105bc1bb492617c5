//! Nodes, devices and placement groups.

use azekura_api::endpoint::{DeviceList, GroupList, NodeList};

use super::call::{Answer, Call, Reply};
use super::pages::{Page, page};
use super::stats::gather;
use super::views;

pub(super) async fn nodes(Call { api, query, .. }: Call<NodeList>) -> Answer<NodeList> {
    let model = api.meta.model();
    let all = views::nodes(&model, &gather(&api, &model).await);
    let Page { things, next } =
        page(&query, all.into_iter(), |node| node.id.0, |text| text.parse().ok(), u32::to_string)?;
    Ok(Reply::from(things).before(next))
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
