//! How much room there is, and how volumes are.

use azekura_api::endpoint::{ClassList, Space};
use azekura_api::{ClassView, ClusterSpace, HomeSpace, NoQuery, SpaceView, VolumeView};
use azekura_base::VOLUME_SIZE_MAX;
use tonic::Status;

use super::Controller;
use crate::cluster::told;
use crate::parameters::Parameters;
use crate::proto::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, GetCapacityRequest, GetCapacityResponse, Topology,
};
use crate::sizes::signed;
use crate::{Outcome, health, names, pages, topology};

/// Copies where neither a class nor a parameter says how many: those of the class that comes by itself.
const DEFAULT_COPIES: u32 = 2;
/// The class that a volume gets of which nothing is said.
const DEFAULT_CLASS: &str = "default";
/// What classes that come by themselves may promise.
const DEFAULT_RATIO: f64 = 4.0;

/// The size of the largest volume that can be promised, and for whose first bytes there is room.
fn available(usable: u64, promised: u64, free: u64, ratio: f64, copies: u32) -> u64 {
    let may_promise = (usable as f64 * ratio) as u64;
    let room = may_promise.saturating_sub(promised).min((free as f64 * ratio) as u64);
    room / u64::from(copies.max(1))
}

/// What volumes can have. Nodes of versions before do not tell, and hold overcommit limits against the devices' sizes.
fn usable_bytes(cluster: &ClusterSpace) -> u64 {
    told_or(cluster.usable_bytes, cluster.physical_bytes)
}

fn told_or(told: u64, otherwise: u64) -> u64 {
    if told == 0 { otherwise } else { told }
}

/// The classes of these names.
pub(super) fn named<'a>(all: &'a [ClassView], names: &[String]) -> Outcome<Vec<&'a ClassView>> {
    let find = |name: &String| {
        all.iter().find(|class| class.name == *name).ok_or_else(|| {
            Status::invalid_argument(format!(
                "there is no storage class '{name}': 'azekura class list' has those that there are"
            ))
        })
    };
    names.iter().map(find).collect()
}

/// The size of the largest volume that a class can have now.
fn available_in(class: &ClassView, space: &SpaceView, copies: u32) -> u64 {
    if class.problem.is_some() {
        return 0;
    }
    let (ClusterSpace { provisioned_bytes, free_bytes, .. }, ratio) = (&space.cluster, class.overcommit_ratio);
    let everywhere = available(usable_bytes(&space.cluster), *provisioned_bytes, *free_bytes, ratio, copies);
    let of_class = space.classes.iter().find(|other| other.name == class.name);
    let at_home = of_class.and_then(|class| class.home.as_ref()).map(|home| {
        let HomeSpace { physical_bytes, usable_bytes, provisioned_bytes, free_bytes } = *home;
        available(told_or(usable_bytes, physical_bytes), provisioned_bytes, free_bytes, ratio, 1)
    });
    at_home.map_or(everywhere, |at_home| everywhere.min(at_home))
}

impl Controller {
    pub(super) fn classes(&self) -> Outcome<Vec<ClassView>> {
        let classes = self.cluster.ask::<ClassList>([], &NoQuery {})?;
        classes.map_err(|error| told("listing the storage classes", &error))
    }

    pub(super) fn get_capacity(&self, request: GetCapacityRequest) -> Outcome<GetCapacityResponse> {
        let parameters = Parameters::read(&request.parameters)?;
        let asking = |error| told("asking for the cluster's space", &error);
        let space = self.cluster.ask::<Space>([], &NoQuery {})?.map_err(asking)?;
        let classes = self.classes()?;
        let bytes = if parameters.classes.is_empty() {
            let by_default = classes.iter().find(|class| class.name == DEFAULT_CLASS);
            let copies = parameters.copies.or(by_default.map(|class| class.copies)).unwrap_or(DEFAULT_COPIES);
            let ClusterSpace { provisioned_bytes, free_bytes, .. } = space.cluster;
            by_default.map_or_else(
                || available(usable_bytes(&space.cluster), provisioned_bytes, free_bytes, DEFAULT_RATIO, copies),
                |class| available_in(class, &space, copies),
            )
        } else {
            let places: Vec<&Topology> = request.accessible_topology.iter().collect();
            let near = topology::near(&named(&classes, &parameters.classes)?, &places);
            let sizes = near.iter().map(|class| available_in(class, &space, parameters.copies.unwrap_or(class.copies)));
            sizes.max().unwrap_or(0)
        };
        Ok(GetCapacityResponse {
            available_capacity: signed(bytes),
            maximum_volume_size: Some(signed(bytes.min(VOLUME_SIZE_MAX))),
            minimum_volume_size: None,
        })
    }

    pub(super) fn controller_get_volume_health(
        &self,
        request: ControllerGetVolumeHealthRequest,
    ) -> Outcome<ControllerGetVolumeHealthResponse> {
        let found = self.cluster.known_volume(names::volume_id(&request.volume_id)?)?;
        let class = health::classes(&self.cluster)?.get(&found.class).copied();
        Ok(ControllerGetVolumeHealthResponse { volume_health: Some(health::of(&found, class)) })
    }

    pub(super) fn controller_list_volume_health(
        &self,
        request: ControllerListVolumeHealthRequest,
    ) -> Outcome<ControllerListVolumeHealthResponse> {
        let classes = health::classes(&self.cluster)?;
        let key = |volume: &VolumeView| volume.name.clone();
        let all = self.cluster.volumes()?;
        let (page, next_token) = pages::page(all, key, &request.starting_token, request.max_entries)?;
        let entries = page.iter().map(|volume| health::of(volume, classes.get(&volume.class).copied())).collect();
        Ok(ControllerListVolumeHealthResponse { entries, next_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_may_be_promised_while_there_is_any() {
        assert_eq!(available(100, 0, 80, 4.0, 2), 160);
        assert_eq!(available(100, 0, 100, 4.0, 2), 200);
        assert_eq!(available(100, 380, 80, 4.0, 2), 10);
        assert_eq!(available(100, 500, 80, 4.0, 2), 0);
        assert_eq!(available(100, 0, 0, 4.0, 2), 0);
    }
}
