//! Who the driver is, and what it has.

use tonic::Status;

use crate::Outcome;
use crate::proto::identity_server::Identity;
use crate::proto::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

/// Answers who the driver is.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    name: String,
    /// This process tells of snapshots' blocks.
    metadata: bool,
}

impl Who {
    /// A driver of this name; one that can't be is refused.
    pub(crate) fn new(name: String, metadata: bool) -> Outcome<Who> {
        let good = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let fits = name.len() <= 63 && name.chars().all(good) && ends(name.chars().next()) && ends(name.chars().last());
        if !fits {
            let reason =
                format!("'{name}' can't be a driver's name: 63 letters, digits, '.' and '-', as in csi.example.com");
            return Err(Status::invalid_argument(reason));
        }
        Ok(Who { name, metadata })
    }

    fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Outcome<GetPluginInfoResponse> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(GetPluginInfoResponse { name: self.name.clone(), vendor_version, ..GetPluginInfoResponse::default() })
    }

    fn get_plugin_capabilities(&self, _: GetPluginCapabilitiesRequest) -> Outcome<GetPluginCapabilitiesResponse> {
        let offered = [
            service::Type::ControllerService,
            service::Type::GroupControllerService,
            service::Type::VolumeAccessibilityConstraints,
        ];
        let metadata = self.metadata.then_some(service::Type::SnapshotMetadataService);
        let services = offered.into_iter().chain(metadata).map(|kind| Type::Service(Service { r#type: kind.into() }));
        let online = Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() });
        let all = services.chain([online]);
        let capabilities = all.map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(GetPluginCapabilitiesResponse { capabilities })
    }

    /// The driver is ready when it answers. Whether the cluster is, its calls tell: an orchestrator that restarted the
    /// driver because of the cluster would only add to what is wrong.
    fn probe(&self, _: ProbeRequest) -> Outcome<ProbeResponse> {
        Ok(ProbeResponse { ready: Some(true) })
    }
}

crate::calls::service! {
    Identity => Who {
        get_plugin_info: GetPluginInfoRequest => GetPluginInfoResponse;
        get_plugin_capabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse;
        probe: ProbeRequest => ProbeResponse;
    }
}
