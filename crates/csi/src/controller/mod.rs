//! The controller: volumes, snapshots and attachments of the whole cluster.

use azekura_api::endpoint::Whoami;
use azekura_api::{Needs, NoQuery};

use crate::Outcome;
use crate::cluster::{Cluster, told};
use crate::locks::Locks;
use crate::proto::controller_server;
use crate::proto::controller_service_capability::rpc::Type as Can;
use crate::proto::controller_service_capability::{Rpc, Type};
use crate::proto::{ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability};

mod attachments;
mod capacity;
mod groups;
mod shown;
mod snapshots;
mod volumes;
mod wish;

/// The controller. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) cluster: Cluster,
    pub(crate) locks: Locks,
}

/// What it can.
const OFFERED: [Can; 15] = [
    Can::CreateDeleteVolume,
    Can::PublishUnpublishVolume,
    Can::ListVolumes,
    Can::GetCapacity,
    Can::CreateDeleteSnapshot,
    Can::ListSnapshots,
    Can::CloneVolume,
    Can::ExpandVolume,
    Can::ModifyVolume,
    Can::ListVolumesPublishedNodes,
    Can::GetVolume,
    Can::SingleNodeMultiWriter,
    Can::GetSnapshot,
    Can::GetVolumeHealth,
    Can::ListVolumeHealth,
];

/// What it can only where its token lets it see the cluster.
const OF_THE_CLUSTER: [Can; 3] = [Can::GetCapacity, Can::GetVolumeHealth, Can::ListVolumeHealth];

impl Controller {
    pub(crate) fn new(cluster: Cluster) -> Controller {
        Controller { cluster, locks: Locks::default() }
    }

    fn controller_get_capabilities(
        &self,
        _: ControllerGetCapabilitiesRequest,
    ) -> Outcome<ControllerGetCapabilitiesResponse> {
        let who = self.cluster.ask::<Whoami>([], &NoQuery {})?;
        let role = who.map_err(|error| told("asking what the token allows", &error))?.role;
        let allowed = OFFERED.into_iter().filter(|can| role.may(Needs::SeeCluster) || !OF_THE_CLUSTER.contains(can));
        let rpc = |can: Can| Some(Type::Rpc(Rpc { r#type: can.into() }));
        let capabilities = allowed.map(|can| ControllerServiceCapability { r#type: rpc(can) }).collect();
        Ok(ControllerGetCapabilitiesResponse { capabilities })
    }
}

crate::calls::service! {
    controller_server::Controller => Controller {
        create_volume: CreateVolumeRequest (name) => CreateVolumeResponse;
        delete_volume: DeleteVolumeRequest (volume_id) => DeleteVolumeResponse;
        controller_publish_volume: ControllerPublishVolumeRequest (volume_id) => ControllerPublishVolumeResponse;
        controller_unpublish_volume: ControllerUnpublishVolumeRequest (volume_id) => ControllerUnpublishVolumeResponse;
        validate_volume_capabilities: ValidateVolumeCapabilitiesRequest (volume_id) => ValidateVolumeCapabilitiesResponse;
        list_volumes: ListVolumesRequest => ListVolumesResponse;
        controller_list_volume_health: ControllerListVolumeHealthRequest => ControllerListVolumeHealthResponse;
        controller_get_volume_health: ControllerGetVolumeHealthRequest (volume_id) => ControllerGetVolumeHealthResponse;
        get_capacity: GetCapacityRequest => GetCapacityResponse;
        controller_get_capabilities: ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse;
        create_snapshot: CreateSnapshotRequest (source_volume_id) => CreateSnapshotResponse;
        delete_snapshot: DeleteSnapshotRequest (snapshot_id) => DeleteSnapshotResponse;
        list_snapshots: ListSnapshotsRequest (source_volume_id) => ListSnapshotsResponse;
        get_snapshot: GetSnapshotRequest (snapshot_id) => GetSnapshotResponse;
        controller_expand_volume: ControllerExpandVolumeRequest (volume_id) => ControllerExpandVolumeResponse;
        controller_get_volume: ControllerGetVolumeRequest (volume_id) => ControllerGetVolumeResponse;
        controller_modify_volume: ControllerModifyVolumeRequest (volume_id) => ControllerModifyVolumeResponse;
    }
}
