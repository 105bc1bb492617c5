//! A volume as a request wants it, and whether one that is there is that.

use azekura_api::VolumeView;
use tonic::Status;

use crate::capability::Use;
use crate::parameters::Parameters;
use crate::proto::volume_content_source::Type as Content;
use crate::proto::{CreateVolumeRequest, TopologyRequirement};
use crate::sizes::Range;
use crate::{Outcome, attributes, names};

/// What a volume is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Snapshot { volume: String, snapshot: String },
    Volume(String),
}

/// A volume as a request wants it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) sizes: Range,
    /// Bytes that an empty volume needs for the file system that it is to have.
    pub(crate) least_bytes: u64,
    pub(crate) parameters: Parameters,
    pub(crate) shared: bool,
    pub(crate) source: Option<Source>,
    /// Where it is wanted.
    pub(crate) places: Option<TopologyRequirement>,
}

impl Source {
    fn read(content: &Content) -> Outcome<Source> {
        match content {
            Content::Snapshot(from) => {
                let id = names::snapshot_id(&from.snapshot_id)?;
                let absent = || Status::not_found(format!("there is no snapshot '{id}' to make a volume from"));
                let (volume, snapshot) = names::parts(id).ok_or_else(absent)?;
                Ok(Source::Snapshot { volume: volume.to_owned(), snapshot: snapshot.to_owned() })
            }
            Content::Volume(from) => Ok(Source::Volume(names::volume_id(&from.volume_id)?.to_owned())),
        }
    }

    /// Whether a volume says that it was made from this.
    fn is(&self, made_from: &str) -> bool {
        match self {
            Source::Snapshot { volume, snapshot } => made_from == names::id_of(volume, snapshot),
            Source::Volume(volume) => names::parts(made_from).is_some_and(|(from, _)| from == volume),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Snapshot { volume, snapshot } => write!(f, "snapshot '{volume}@{snapshot}'"),
            Source::Volume(volume) => write!(f, "volume '{volume}'"),
        }
    }
}

impl Wish {
    pub(crate) fn read(request: &CreateVolumeRequest) -> Outcome<Wish> {
        let name = names::volume(&request.name)?;
        let uses = Use::read_all(&request.volume_capabilities)?;
        let content = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
        if request.volume_content_source.is_some() && content.is_none() {
            return Err(Status::invalid_argument("volume_content_source names neither a snapshot nor a volume"));
        }
        let mut parameters = Parameters::read(&request.parameters)?;
        if !request.mutable_parameters.is_empty() {
            parameters.limits = attributes::read(&request.mutable_parameters)?;
        }
        let name = match &parameters.project {
            Some(project) => format!("{project}/{name}"),
            None => name,
        };
        Ok(Wish {
            name,
            sizes: Range::read(request.capacity_range.as_ref())?,
            least_bytes: uses.iter().map(Use::least_bytes).max().unwrap_or(0),
            parameters,
            shared: uses.iter().any(Use::is_shared),
            source: content.map(Source::read).transpose()?,
            places: request.accessibility_requirements.clone(),
        })
    }

    /// Refuses a volume of this name that is not what is wanted.
    pub(crate) fn compare(&self, found: &VolumeView) -> Outcome<()> {
        let Range { least, most } = self.sizes;
        let from = match (&self.source, &found.source) {
            (None, Some(from)) => Some(format!("it was made from '{from}'")),
            (Some(wanted), None) => Some(format!("it was not made from {wanted}")),
            (Some(wanted), Some(from)) if !wanted.is(from) => {
                Some(format!("it was made from '{from}', not from {wanted}"))
            }
            _ => None,
        };
        let size = (!self.sizes.has(found.size_bytes))
            .then(|| format!("it has {} bytes, which is not between {least} and {most}", found.size_bytes));
        match from.or(size).or_else(|| self.parameters.odds(found)) {
            None => Ok(()),
            Some(odd) => Err(Status::already_exists(format!(
                "there is a volume '{}' already, and {odd}: take another name, or delete that one",
                self.name
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
    use crate::proto::volume_content_source::{SnapshotSource, VolumeSource};
    use crate::proto::{CapacityRange, VolumeCapability, VolumeContentSource};

    fn request(source: Option<Content>) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: "v".into(),
            capacity_range: Some(CapacityRange { required_bytes: 8192, limit_bytes: 16_384 }),
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode: Some(AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() }),
            }],
            volume_content_source: source.map(|source| VolumeContentSource { r#type: Some(source) }),
            ..CreateVolumeRequest::default()
        }
    }

    fn of_snapshot(id: &str) -> Option<Content> {
        Some(Content::Snapshot(SnapshotSource { snapshot_id: id.into() }))
    }

    fn there(size_bytes: u64, source: Option<&str>) -> VolumeView {
        serde_json::from_value(json!({
            "name": "v", "id": 1, "uuid": "", "size_bytes": size_bytes, "class": "c", "copies": 2,
            "access": "exclusive", "generation": 1, "attachments": [], "fence_due": false, "ack_rule": "all",
            "created": "", "source": source,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_there_must_be_what_is_wanted() {
        let odd = |source: Option<Content>, found: VolumeView| {
            let refused = Wish::read(&request(source)).unwrap().compare(&found).err()?;
            assert_eq!(refused.code(), tonic::Code::AlreadyExists);
            Some(refused.message().to_owned())
        };
        let of_volume = || Some(Content::Volume(VolumeSource { volume_id: "a".into() }));
        assert_eq!(odd(None, there(8192, None)), None);
        assert_eq!(odd(None, there(16_384, None)), None);
        assert_eq!(odd(of_snapshot("a@s"), there(8192, Some("a@s"))), None);
        assert_eq!(odd(of_volume(), there(8192, Some("a@clone-1"))), None);
        for (source, size_bytes, from, expected) in [
            (None, 4096, None, "4096"),
            (None, 20_480, None, "20480"),
            (None, 8192, Some("a@s"), "made from 'a@s'"),
            (of_snapshot("a@s"), 8192, None, "not made from snapshot 'a@s'"),
            (of_snapshot("a@s"), 8192, Some("a@t"), "not from snapshot 'a@s'"),
            (of_volume(), 8192, Some("b@s"), "not from volume 'a'"),
        ] {
            let message = odd(source, there(size_bytes, from)).unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_projects_volumes_are_named_after_it() {
        let mut wanted = request(None);
        let plain = Wish::read(&wanted).unwrap().name;
        for (project, name) in [("accounts", format!("accounts/{plain}")), ("default", plain.clone())] {
            wanted.parameters.insert("project".into(), project.into());
            assert_eq!(Wish::read(&wanted).unwrap().name, name);
        }
    }

    #[test]
    fn a_volume_attributes_class_takes_the_place_of_the_storage_class() {
        let mut wanted = request(None);
        wanted.parameters.extend([("iops".into(), "100".into()), ("bandwidth".into(), "1MiB".into())]);
        let limits = |request: &CreateVolumeRequest| Wish::read(request).unwrap().parameters.limits;
        assert_eq!((limits(&wanted).iops, limits(&wanted).bytes_per_second), (Some(100), Some(1 << 20)));
        wanted.mutable_parameters.insert("iops".into(), "200".into());
        assert_eq!((limits(&wanted).iops, limits(&wanted).bytes_per_second), (Some(200), None));
    }

    #[test]
    fn what_can_not_be_asked_for() {
        let code = |request: &CreateVolumeRequest| Wish::read(request).unwrap_err().code();
        assert_eq!(code(&request(of_snapshot("no-snapshot"))), tonic::Code::NotFound);
        assert_eq!(code(&request(of_snapshot(""))), tonic::Code::InvalidArgument);
        let mut other = request(None);
        other.mutable_parameters.insert("copies".into(), "2".into());
        assert_eq!(code(&other), tonic::Code::InvalidArgument);
        other = CreateVolumeRequest { volume_content_source: Some(VolumeContentSource::default()), ..request(None) };
        assert_eq!(code(&other), tonic::Code::InvalidArgument);
        other = CreateVolumeRequest { name: String::new(), ..request(None) };
        assert_eq!(code(&other), tonic::Code::InvalidArgument);
    }
}
