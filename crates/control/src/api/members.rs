//! Nodes, devices and placement groups.

use axum::Json;
use axum::extract::State;

use super::error::Answer;
use super::stats::gather;
use super::{Api, DeviceView, GroupView, NodeView};

/// `GET /v1/nodes`.
pub(super) async fn nodes(State(api): State<Api>) -> Answer<Vec<NodeView>> {
    let model = api.meta.model();
    Ok(Json(NodeView::all(&model, &gather(&api, &model).await)))
}

/// `GET /v1/devices`.
pub(super) async fn devices(State(api): State<Api>) -> Answer<Vec<DeviceView>> {
    let model = api.meta.model();
    Ok(Json(DeviceView::all(&model, &gather(&api, &model).await)))
}

/// `GET /v1/groups`.
pub(super) async fn groups(State(api): State<Api>) -> Answer<Vec<GroupView>> {
    let model = api.meta.model();
    let stats = gather(&api, &model).await;
    let changeable = api.meta.watch_link().borrow().is_none();
    Ok(Json(GroupView::all(&model, &stats, changeable)))
}
