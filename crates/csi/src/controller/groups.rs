//! Snapshots of several volumes at one instant: all have the group's id for their name, by which they are found again.

use std::collections::BTreeSet;

use azekura_api::endpoint::SnapshotCreate;
use azekura_api::{CreateSnapshots, ErrorCode, SnapshotView};
use tonic::Status;

use super::{Controller, shown};
use crate::cluster::told;
use crate::proto::group_controller_server::GroupController;
use crate::proto::group_controller_service_capability::rpc::Type as Can;
use crate::proto::group_controller_service_capability::{Rpc, Type};
use crate::proto::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability,
    VolumeGroupSnapshot,
};
use crate::{Outcome, names, parameters};

fn group(id: &str, members: &[SnapshotView]) -> VolumeGroupSnapshot {
    VolumeGroupSnapshot {
        group_snapshot_id: id.to_owned(),
        snapshots: members.iter().map(shown::snapshot).collect(),
        creation_time: members.first().map(shown::time),
        ready_to_use: true,
    }
}

/// Whether the orchestrator and the cluster know the same members; what is gone already is no contradiction where it is
/// to be deleted.
fn compare(id: &str, members: &[SnapshotView], expected: &[String], gone_is_fine: bool) -> Outcome<()> {
    let there: BTreeSet<String> = members.iter().map(|found| names::id_of(&found.volume, &found.name)).collect();
    let expected: BTreeSet<String> = expected.iter().cloned().collect();
    if expected.is_empty() || there == expected || (gone_is_fine && there.is_subset(&expected)) {
        return Ok(());
    }
    let list = |ids: BTreeSet<String>| ids.into_iter().collect::<Vec<_>>().join(", ");
    Err(Status::invalid_argument(format!(
        "the group of snapshots '{id}' has {}, and the request names {}",
        list(there),
        list(expected)
    )))
}

impl Controller {
    fn group_controller_get_capabilities(
        &self,
        _: GroupControllerGetCapabilitiesRequest,
    ) -> Outcome<GroupControllerGetCapabilitiesResponse> {
        let can = Type::Rpc(Rpc { r#type: Can::CreateDeleteGetVolumeGroupSnapshot.into() });
        let capabilities = vec![GroupControllerServiceCapability { r#type: Some(can) }];
        Ok(GroupControllerGetCapabilitiesResponse { capabilities })
    }

    fn members(&self, id: &str) -> Outcome<Vec<SnapshotView>> {
        let mut all = self.cluster.snapshots()?;
        all.retain(|found| names::group_of(&found.name) == Some(id));
        Ok(all)
    }

    fn create_volume_group_snapshot(
        &self,
        request: CreateVolumeGroupSnapshotRequest,
    ) -> Outcome<CreateVolumeGroupSnapshotResponse> {
        let id = names::group(&request.name)?;
        parameters::none_of_groups(&request.parameters)?;
        let volumes: BTreeSet<&str> = request.source_volume_ids.iter().map(String::as_str).collect();
        if volumes.is_empty() || volumes.contains("") {
            return Err(Status::invalid_argument("the request names no volumes (source_volume_ids)"));
        }
        let alone = volumes.iter().copied().chain([id.as_str()]);
        let _alone = self.locks.take(alone)?;
        let mut members = self.members(&id)?;
        if members.is_empty() {
            let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
            let body = CreateSnapshots { volumes, name: Some(id.clone()) };
            members = match self.cluster.send::<SnapshotCreate>([], &body)? {
                Ok(made) => made,
                Err(error) if error.code() == Some(ErrorCode::Exists) => self.members(&id)?,
                Err(error) => return Err(told(&format!("making the group of snapshots '{id}'"), &error)),
            };
        }
        let there: BTreeSet<&str> = members.iter().map(|found| found.volume.as_str()).collect();
        if there != volumes {
            let there: Vec<&str> = there.into_iter().collect();
            return Err(Status::already_exists(format!(
                "there is a group of snapshots '{id}' already, of the volumes {}: take another name",
                there.join(", ")
            )));
        }
        Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group(&id, &members)) })
    }

    fn delete_volume_group_snapshot(
        &self,
        request: DeleteVolumeGroupSnapshotRequest,
    ) -> Outcome<DeleteVolumeGroupSnapshotResponse> {
        let id = names::group_id(&request.group_snapshot_id)?;
        let _alone = self.locks.take([id])?;
        let members = self.members(id)?;
        compare(id, &members, &request.snapshot_ids, true)?;
        for member in members {
            self.remove_snapshot(&member.volume, &member.name)?;
        }
        Ok(DeleteVolumeGroupSnapshotResponse {})
    }

    fn get_volume_group_snapshot(
        &self,
        request: GetVolumeGroupSnapshotRequest,
    ) -> Outcome<GetVolumeGroupSnapshotResponse> {
        let id = names::group_id(&request.group_snapshot_id)?;
        let members = self.members(id)?;
        if members.is_empty() {
            return Err(Status::not_found(format!("there is no group of snapshots '{id}'")));
        }
        compare(id, &members, &request.snapshot_ids, false)?;
        Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(group(id, &members)) })
    }
}

crate::calls::service! {
    GroupController => Controller {
        group_controller_get_capabilities: GroupControllerGetCapabilitiesRequest
            => GroupControllerGetCapabilitiesResponse;
        create_volume_group_snapshot: CreateVolumeGroupSnapshotRequest (source_volume_ids)
            => CreateVolumeGroupSnapshotResponse;
        delete_volume_group_snapshot: DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse;
    }
}
