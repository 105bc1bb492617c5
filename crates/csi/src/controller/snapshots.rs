//! Snapshots of single volumes.

use azekura_api::endpoint::{SnapshotCreate, SnapshotDelete};
use azekura_api::{CreateSnapshots, ErrorCode, NoQuery, SnapshotOrigin, SnapshotView};
use tonic::Status;

use super::{Controller, shown};
use crate::cluster::{absent, told};
use crate::proto::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, GetSnapshotRequest,
    GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, list_snapshots_response,
};
use crate::{Outcome, names, pages, parameters};

impl Controller {
    pub(super) fn create_snapshot(&self, request: CreateSnapshotRequest) -> Outcome<CreateSnapshotResponse> {
        let name = names::snapshot(&request.name)?;
        let volume = names::volume_id(&request.source_volume_id)?;
        parameters::none("the VolumeSnapshotClass", &request.parameters)?;
        let id = names::id_of(volume, &name);
        // Names of snapshots are the whole cluster's to the orchestrator, and a volume's to Azekura.
        let _alone = self.locks.take([volume, &format!("@{name}")])?;
        let of_others = |found: &&SnapshotView| {
            found.name == name && found.volume != volume && found.origin == SnapshotOrigin::Person
        };
        if let Some(other) = self.cluster.snapshots()?.iter().find(of_others) {
            return Err(Status::already_exists(format!(
                "there is a snapshot '{name}' of volume '{}' already: take another name for that of '{volume}'",
                other.volume
            )));
        }
        if let Some(found) = self.cluster.snapshot(volume, &name)? {
            return Ok(CreateSnapshotResponse { snapshot: Some(shown::snapshot(&found)) });
        }
        let body = CreateSnapshots { volumes: vec![volume.to_owned()], name: Some(name.clone()) };
        let made = match self.cluster.send::<SnapshotCreate>([], &body)? {
            Ok(made) => made.into_iter().next(),
            Err(error) if error.code() == Some(ErrorCode::Exists) => self.cluster.snapshot(volume, &name)?,
            Err(error) => return Err(told(&format!("making snapshot '{id}'"), &error)),
        };
        let made = made.ok_or_else(|| Status::internal(format!("snapshot '{id}' was made and is not there")))?;
        Ok(CreateSnapshotResponse { snapshot: Some(shown::snapshot(&made)) })
    }

    pub(super) fn delete_snapshot(&self, request: DeleteSnapshotRequest) -> Outcome<DeleteSnapshotResponse> {
        let id = names::snapshot_id(&request.snapshot_id)?;
        if let Some((volume, name)) = names::parts(id) {
            let _alone = self.locks.take([volume, &format!("@{name}")])?;
            self.remove_snapshot(volume, name)?;
        }
        Ok(DeleteSnapshotResponse {})
    }

    /// Deletes a snapshot that may be gone already.
    pub(crate) fn remove_snapshot(&self, volume: &str, name: &str) -> Outcome<()> {
        match self.cluster.ask::<SnapshotDelete>([volume.to_owned(), name.to_owned()], &NoQuery {})? {
            Ok(_) => Ok(()),
            Err(error) if absent(&error) => Ok(()),
            Err(error) => Err(told(&format!("deleting snapshot '{volume}@{name}'"), &error)),
        }
    }

    pub(super) fn get_snapshot(&self, request: GetSnapshotRequest) -> Outcome<GetSnapshotResponse> {
        let id = names::snapshot_id(&request.snapshot_id)?;
        let found = self.snapshot_by_id(id)?;
        let found = found.ok_or_else(|| Status::not_found(format!("there is no snapshot '{id}'")))?;
        Ok(GetSnapshotResponse { snapshot: Some(shown::snapshot(&found)) })
    }

    fn snapshot_by_id(&self, id: &str) -> Outcome<Option<SnapshotView>> {
        match names::parts(id) {
            Some((volume, name)) => self.cluster.snapshot(volume, name),
            None => Ok(None),
        }
    }

    pub(super) fn list_snapshots(&self, request: ListSnapshotsRequest) -> Outcome<ListSnapshotsResponse> {
        let ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id, .. } = request;
        let mut all = match snapshot_id.as_str() {
            "" => self.cluster.snapshots()?,
            id => self.snapshot_by_id(id)?.into_iter().collect(),
        };
        all.retain(|found| source_volume_id.is_empty() || found.volume == source_volume_id);
        let key = |found: &SnapshotView| names::id_of(&found.volume, &found.name);
        let (entries, next_token) = pages::page(all, key, &starting_token, max_entries)?;
        let entry = |view: &SnapshotView| list_snapshots_response::Entry { snapshot: Some(shown::snapshot(view)) };
        Ok(ListSnapshotsResponse { entries: entries.iter().map(entry).collect(), next_token })
    }
}
