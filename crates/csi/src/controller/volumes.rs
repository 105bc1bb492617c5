//! Making, deleting, growing and listing volumes.

use azekura_api::endpoint::{
    SnapshotDelete, VolumeClone, VolumeCreate, VolumeDelete, VolumeLimit, VolumeResize, VolumeSnapshots,
};
use azekura_api::{
    CloneVolume, CreateVolume, DeleteVolume, ErrorCode, IoLimits, NoQuery, PageQuery, ResizeVolume, SnapshotOrigin,
    VolumeView,
};
use azekura_base::SecretText;
use azekura_client::ClientError;
use tonic::Status;

use super::wish::{Source, Wish};
use super::{Controller, capacity, shown};
use crate::capability::Use;
use crate::cluster::{absent, told};
use crate::parameters::{Encrypt, Parameters};
use crate::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeRequest,
    ControllerGetVolumeResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, controller_get_volume_response,
    list_volumes_response, validate_volume_capabilities_response,
};
use crate::sizes::{Range, signed};
use crate::{Outcome, attributes, names, pages, secrets, topology};

impl Controller {
    pub(super) fn create_volume(&self, mut request: CreateVolumeRequest) -> Outcome<CreateVolumeResponse> {
        let secret = secrets::take(&mut request.secrets);
        let wish = Wish::read(&request)?;
        let secret = wish.parameters.secret(&wish.name, secret)?;
        let _alone = self.locks.take([wish.name.as_str()])?;
        let mut made = match self.cluster.volume(&wish.name)? {
            Some(found) => found,
            None => self.make(&wish, secret)?,
        };
        wish.compare(&made)?;
        let limits = wish.parameters.limits;
        // What is made from another volume has that one's limits at first.
        if wish.source.is_some() && limits != IoLimits::default() && made.limits != Some(limits) {
            made = self.limit(&wish.name, &limits)?;
        }
        Ok(CreateVolumeResponse { volume: Some(shown::volume(&made, wish.source.as_ref())) })
    }

    fn make(&self, wish: &Wish, secret: Option<SecretText>) -> Outcome<VolumeView> {
        let (doing, answer) = match &wish.source {
            None => (format!("making volume '{}'", wish.name), self.make_empty(wish, secret)?),
            Some(source) => {
                let doing = format!("making volume '{}' from {source}", wish.name);
                (doing, self.clone_from(wish, source, secret)?)
            }
        };
        match answer {
            Ok(made) => Ok(made),
            // Made by somebody else since, or by a call that was given up.
            Err(error) if error.code() == Some(ErrorCode::Exists) => self.cluster.known_volume(&wish.name),
            Err(error) if absent(&error) && wish.source.is_none() => {
                // The name in the answer is that of a class.
                Err(Status::invalid_argument(told(&doing, &error).message().to_owned()))
            }
            Err(error) => Err(told(&doing, &error)),
        }
    }

    /// In the class that is nearest to where it is wanted and has room.
    fn make_empty(&self, wish: &Wish, secret: Option<SecretText>) -> Outcome<Result<VolumeView, ClientError>> {
        let Parameters { classes: _, copies, ack_rule, encrypt, logical_block, limits, project: _, own_key: _ } =
            wish.parameters.clone();
        let mut body = CreateVolume {
            name: wish.name.clone(),
            size_bytes: wish.sizes.choose_empty(wish.least_bytes)?,
            logical_block_bytes: logical_block,
            class: None,
            copies,
            ack_rule,
            shared: wish.shared,
            encrypt: encrypt != Encrypt::No,
            secret,
            limits: (limits != IoLimits::default()).then_some(limits),
        };
        let mut classes = self.classes_for(wish)?.into_iter();
        loop {
            body.class = classes.next();
            let answer = match body.secret {
                Some(_) => self.cluster.send_in_private::<VolumeCreate>([], &body)?,
                None => self.cluster.send::<VolumeCreate>([], &body)?,
            };
            let no_room = matches!(&answer, Err(error) if error.code() == Some(ErrorCode::NoRoom));
            if !no_room || classes.len() == 0 {
                return Ok(answer);
            }
        }
    }

    /// The classes that a volume may be in, the best first; none: that which comes by itself.
    fn classes_for(&self, wish: &Wish) -> Outcome<Vec<String>> {
        let named = &wish.parameters.classes;
        if named.len() < 2 {
            return Ok(named.clone());
        }
        let all = self.classes()?;
        let known = capacity::named(&all, named)?;
        let near = topology::near(&known, &topology::wanted(wish.places.as_ref()));
        if near.is_empty() {
            return Err(Status::resource_exhausted(format!(
                "none of the classes {} keeps a copy where volume '{}' is wanted: name one without a home as the last in \
                 the StorageClass's parameter class",
                named.join(", "),
                wish.name
            )));
        }
        Ok(near.into_iter().map(|class| class.name.clone()).collect())
    }

    fn clone_from(
        &self,
        wish: &Wish,
        source: &Source,
        secret: Option<SecretText>,
    ) -> Outcome<Result<VolumeView, ClientError>> {
        let missing = || Status::not_found(format!("there is no {source} to make volume '{}' from", wish.name));
        let (volume, from, content_bytes) = match source {
            Source::Snapshot { volume, snapshot } => {
                let found = self.cluster.snapshot(volume, snapshot)?.ok_or_else(missing)?;
                (volume, Some(snapshot.clone()), found.size_bytes)
            }
            Source::Volume(volume) => (volume, None, self.cluster.volume(volume)?.ok_or_else(missing)?.size_bytes),
        };
        let origin = self.cluster.known_volume(volume)?;
        if let Some(odd) = wish.parameters.odds(&origin) {
            return Err(Status::invalid_argument(format!(
                "a volume that is made from {source} is as its source is, and {odd}: take a StorageClass that fits"
            )));
        }
        let size_bytes = wish.sizes.choose(Some(content_bytes))?;
        let body = CloneVolume {
            name: wish.name.clone(),
            from,
            size_bytes: (size_bytes > content_bytes).then_some(size_bytes),
            shared: Some(wish.shared),
            rekey: wish.parameters.own_key,
            secret,
        };
        match body.secret {
            Some(_) => self.cluster.send_in_private::<VolumeClone>([volume.clone()], &body),
            None => self.cluster.send::<VolumeClone>([volume.clone()], &body),
        }
    }

    pub(crate) fn delete_volume(&self, request: DeleteVolumeRequest) -> Outcome<DeleteVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let _alone = self.locks.take([name])?;
        let Some(found) = self.cluster.volume(name)? else { return Ok(DeleteVolumeResponse {}) };
        let nodes = shown::published_to(&found);
        if !nodes.is_empty() {
            return Err(Status::failed_precondition(format!(
                "volume '{name}' is published to {}: unpublish it first",
                nodes.join(", ")
            )));
        }
        self.delete_passing_snapshots(name)?;
        match self.cluster.ask::<VolumeDelete>([name.to_owned()], &DeleteVolume::default())? {
            Ok(_) => Ok(DeleteVolumeResponse {}),
            Err(error) if absent(&error) => Ok(DeleteVolumeResponse {}),
            Err(error) => Err(told(&format!("deleting volume '{name}'"), &error)),
        }
    }

    /// Deletes what has come by itself, of a volume that is to be deleted. What somebody has asked for is in the way: a
    /// snapshot ends with its volume here. The volume is never deleted together with snapshots, so that one that is
    /// made at this moment stays.
    fn delete_passing_snapshots(&self, volume: &str) -> Outcome<()> {
        let all = match self.cluster.ask::<VolumeSnapshots>([volume.to_owned()], &PageQuery::default())? {
            Ok(all) => all,
            Err(error) if absent(&error) => return Ok(()),
            Err(error) => return Err(told(&format!("listing the snapshots of '{volume}'"), &error)),
        };
        let (wanted, passing): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|snapshot| snapshot.origin == SnapshotOrigin::Person);
        if !wanted.is_empty() {
            let names: Vec<String> = wanted.into_iter().map(|snapshot| snapshot.name).collect();
            return Err(Status::failed_precondition(format!(
                "volume '{volume}' has snapshots, which would end with it: delete these first: {}",
                names.join(", ")
            )));
        }
        for snapshot in passing {
            let names = [volume.to_owned(), snapshot.name.clone()];
            match self.cluster.ask::<SnapshotDelete>(names, &NoQuery {})? {
                Err(error) if !absent(&error) => {
                    return Err(told(&format!("deleting snapshot '{volume}@{}'", snapshot.name), &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn controller_expand_volume(
        &self,
        request: ControllerExpandVolumeRequest,
    ) -> Outcome<ControllerExpandVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid_argument("the request says no capacity_range"));
        }
        let sizes = Range::read(request.capacity_range.as_ref())?;
        let _alone = self.locks.take([name])?;
        let found = self.cluster.known_volume(name)?;
        let size_bytes = sizes.choose(Some(found.size_bytes))?;
        if size_bytes > found.size_bytes {
            let body = ResizeVolume { size_bytes, shrink: false, force: false };
            let answer = self.cluster.send::<VolumeResize>([name.to_owned()], &body)?;
            answer.map_err(|error| told(&format!("growing volume '{name}' to {size_bytes} bytes"), &error))?;
        }
        // The node has to look, whether or not somebody has mounted it.
        Ok(ControllerExpandVolumeResponse { capacity_bytes: signed(size_bytes), node_expansion_required: true })
    }

    pub(super) fn list_volumes(&self, request: ListVolumesRequest) -> Outcome<ListVolumesResponse> {
        let all = self.cluster.volumes()?;
        let key = |volume: &VolumeView| volume.name.clone();
        let (entries, next_token) = pages::page(all, key, &request.starting_token, request.max_entries)?;
        let entry = |view: &VolumeView| list_volumes_response::Entry {
            volume: Some(shown::volume(view, None)),
            status: Some(list_volumes_response::VolumeStatus { published_node_ids: shown::published_to(view) }),
        };
        Ok(ListVolumesResponse { entries: entries.iter().map(entry).collect(), next_token })
    }

    pub(super) fn controller_get_volume(
        &self,
        request: ControllerGetVolumeRequest,
    ) -> Outcome<ControllerGetVolumeResponse> {
        let found = self.cluster.known_volume(names::volume_id(&request.volume_id)?)?;
        let status = controller_get_volume_response::VolumeStatus { published_node_ids: shown::published_to(&found) };
        Ok(ControllerGetVolumeResponse { volume: Some(shown::volume(&found, None)), status: Some(status) })
    }

    pub(super) fn validate_volume_capabilities(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Outcome<ValidateVolumeCapabilitiesResponse> {
        let name = names::volume_id(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the request says no volume_capabilities"));
        }
        let found = self.cluster.known_volume(name)?;
        let refused = |message: String| ValidateVolumeCapabilitiesResponse { confirmed: None, message };
        if let Err(status) = Use::read_all(&request.volume_capabilities) {
            return Ok(refused(status.message().to_owned()));
        }
        match Parameters::read(&request.parameters).map(|wanted| wanted.odds(&found)) {
            Err(status) => return Ok(refused(status.message().to_owned())),
            Ok(Some(odd)) => return Ok(refused(format!("of volume '{name}': {odd}"))),
            Ok(None) => {}
        }
        if let Err(status) = attributes::read(&request.mutable_parameters) {
            return Ok(refused(status.message().to_owned()));
        }
        let confirmed = validate_volume_capabilities_response::Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
    }

    pub(super) fn controller_modify_volume(
        &self,
        request: ControllerModifyVolumeRequest,
    ) -> Outcome<ControllerModifyVolumeResponse> {
        let name = names::volume_id(&request.volume_id)?;
        let limits = attributes::read(&request.mutable_parameters)?;
        let _alone = self.locks.take([name])?;
        self.cluster.known_volume(name)?;
        self.limit(name, &limits)?;
        Ok(ControllerModifyVolumeResponse {})
    }

    /// Sets all limits of a volume: those that are not named end.
    fn limit(&self, name: &str, limits: &IoLimits) -> Outcome<VolumeView> {
        let answer = self.cluster.send::<VolumeLimit>([name.to_owned()], limits)?;
        answer.map_err(|error| told(&format!("limiting volume '{name}'"), &error))
    }
}
