//! A volume as a request wants it, and whether one that is there is that.

use azekura_api::VolumeView;
use tonic::Status;

use crate::Outcome;
use crate::capability::Use;
use crate::names;
use crate::parameters::Parameters;
use crate::proto::CreateVolumeRequest;
use crate::proto::volume_content_source::Type as Content;
use crate::sizes::Range;

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
    pub(crate) parameters: Parameters,
    pub(crate) shared: bool,
    pub(crate) source: Option<Source>,
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
        if !request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument(
                "a VolumeAttributesClass is given, and this driver knows none: leave volumeAttributesClassName out",
            ));
        }
        let content = request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref());
        if request.volume_content_source.is_some() && content.is_none() {
            return Err(Status::invalid_argument("volume_content_source names neither a snapshot nor a volume"));
        }
        Ok(Wish {
            name,
            sizes: Range::read(request.capacity_range.as_ref())?,
            parameters: Parameters::read(&request.parameters)?,
            shared: uses.iter().any(Use::is_shared),
            source: content.map(Source::read).transpose()?,
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
