//! Making a volume: its class, if it is one of those that come by themselves, the class's groups, then the volume.

use azekura_base::{DEFAULT_PROJECT, IoLimits, LogicalBlock, SecretText, project_of};
use azekura_meta::MetaClient;
use azekura_meta::cluster::ClassSpec;
use azekura_model::transitions::projects::check_volume;
use azekura_model::transitions::volumes::{VolumeSpec, check_logical_block, check_overcommit};
use azekura_model::{AckRule, ClassRecord, Kind, MetaError, Model, ProjectUse, VolumeAccess, VolumeRecord, is_own};

use crate::data_keys::DataKeys;
use azekura_plans::placement::{candidates, group_count, own_group_count, place_class};

/// The class of a volume that names neither a class nor a number of copies.
pub const DEFAULT_CLASS: &str = "default";
/// Copies of the default class.
pub const DEFAULT_COPIES: u32 = 2;

/// Copies of a class that comes with an ack rule other than `all`.
const COPIES_OF_RULES: u32 = 3;

/// A volume as people ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Its name.
    pub name: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// What clients count its blocks in; `None`: what the class says.
    pub logical_block: Option<LogicalBlock>,
    /// Its class.
    pub class: Option<String>,
    /// Without a class: the default class if that has so many copies, else the class `replicated-N`, made if absent.
    /// With a class: must agree with it.
    pub copies: Option<u32>,
    /// How many may use it at once.
    pub access: VolumeAccess,
    /// Without a class: the class `replicated-N-RULE`, made if absent, if it is not `all`. With a class: must agree
    /// with it.
    pub ack_rule: Option<AckRule>,
    /// Encrypted, with a key of its own, also where its class does not say so.
    pub encrypt: bool,
    /// Encrypted, with a key that this secret wraps.
    pub secret: Option<SecretText>,
    /// What its clients may ask for in a second.
    pub limits: Option<IoLimits>,
}

fn by_default() -> (String, Option<ClassSpec>) {
    (DEFAULT_CLASS.to_owned(), Some(ClassSpec::new(DEFAULT_CLASS, DEFAULT_COPIES)))
}

/// Whether the default class is what `replicated-2` would be: two classes with the same policy would have twice the
/// groups. Somebody may have made one of that name that is not.
fn default_fits(model: &Model) -> bool {
    model.classes.get(DEFAULT_CLASS).is_none_or(|class| {
        let made = ClassSpec::new(DEFAULT_CLASS, DEFAULT_COPIES);
        class.copies == made.copies
            && class.ack_rule == made.ack_rule
            && class.failure_domain == made.failure_domain
            && class.copies_min == made.copies_min
    })
}

/// Makes a volume. A refused request leaves no class and no groups behind.
pub async fn create_volume(
    meta: &MetaClient,
    keys: &DataKeys,
    request: &VolumeRequest,
) -> Result<VolumeRecord, MetaError> {
    let VolumeRequest { name, size_bytes, access, limits, .. } = request.clone();
    let logical_block = request.logical_block.unwrap_or_default();
    let spec = VolumeSpec { name, size_bytes, logical_block, class: String::new(), access, key: None, limits };
    spec.check()?;
    let model = meta.model_of_volumes().await?;
    if model.volumes.contains_key(&request.name) {
        return Err(MetaError::Exists { kind: Kind::Volume, name: request.name.clone() });
    }
    let rule = request.ack_rule.filter(|rule| *rule != AckRule::All);
    let (name, made_by_itself) = match (&request.class, request.copies, rule) {
        (Some(class), ..) => (class.clone(), None),
        (None, Some(DEFAULT_COPIES), None) if default_fits(&model) => by_default(),
        (None, Some(copies), None) => {
            let name = format!("replicated-{copies}");
            (name.clone(), Some(ClassSpec::new(&name, copies)))
        }
        (None, copies, Some(ack_rule)) => {
            let copies = copies.unwrap_or(COPIES_OF_RULES);
            let name = format!("replicated-{copies}-{ack_rule}");
            (name.clone(), Some(ClassSpec { ack_rule, ..ClassSpec::new(&name, copies) }))
        }
        (None, None, None) => by_default(),
    };
    // Before anything is made for it.
    check_project(&model, request, &name)?;
    let logical_block =
        request.logical_block.or_else(|| Some(model.classes.get(&name)?.logical_block_bytes)).unwrap_or_default();
    check_logical_block(&model, logical_block)?;
    let secret = request.secret.as_ref();
    let encrypt = request.encrypt || secret.is_some() || model.classes.get(&name).is_some_and(|class| class.encrypt);
    let key = if encrypt { Some(keys.draw(&model, secret).await?) } else { None };
    let class = ensure_class(meta, &model, &name, made_by_itself, request.size_bytes).await?;
    if let Some(copies) = request.copies.filter(|copies| *copies != class.copies) {
        let reason = format!("it keeps {} copies of every block, not {copies}", class.copies);
        return Err(MetaError::InvalidClass { name, reason });
    }
    if let Some(rule) = request.ack_rule.filter(|rule| *rule != class.ack_rule) {
        let reason = format!("its writes are acknowledged by the rule '{}', not '{rule}'", class.ack_rule);
        return Err(MetaError::InvalidClass { name, reason });
    }
    let name = ensure_groups(meta, &class, request.size_bytes).await?;
    meta.create_volume(&VolumeSpec { class: name, logical_block, key, ..spec }).await
}

/// Refuses what the volume's project may not have, as things are.
fn check_project(model: &Model, request: &VolumeRequest, class: &str) -> Result<(), MetaError> {
    let name = project_of(&request.name);
    if name == DEFAULT_PROJECT {
        return Ok(());
    }
    let not_found = || MetaError::NotFound { kind: Kind::Project, name: name.to_owned() };
    let iops = request.limits.and_then(|limits| limits.iops);
    let more = ProjectUse {
        bytes: request.size_bytes,
        volumes: 1,
        iops: iops.unwrap_or(0),
        unlimited: u64::from(iops.is_none()),
        snapshots: 0,
    };
    check_volume(model.projects.get(name).ok_or_else(not_found)?, class, more)
}

/// The class, made from `spec` if it is absent, can be placed, and has room for a volume of this size.
async fn ensure_class(
    meta: &MetaClient,
    model: &Model,
    name: &str,
    spec: Option<ClassSpec>,
    size_bytes: u64,
) -> Result<ClassRecord, MetaError> {
    if let Some(class) = model.classes.get(name).filter(|class| !class.deleted && !is_own(name)) {
        return Ok(class.record.clone());
    }
    let Some(spec) = spec else {
        return Err(MetaError::NotFound { kind: Kind::Class, name: name.to_owned() });
    };
    spec.check()?;
    place_class(model, &draft(&spec), 1)?;
    check_overcommit(model, &draft(&spec), size_bytes).map_err(|error| meta.told(error))?;
    match meta.create_class(&spec).await {
        Ok(class) => Ok(class),
        // Somebody else made it since.
        Err(MetaError::Exists { .. }) => Ok(draft(&spec)),
        Err(error) => Err(error),
    }
}

/// The class as it would be, to try its placement.
fn draft(spec: &ClassSpec) -> ClassRecord {
    spec.record("")
}

/// Sees to it that there are groups for a volume of the class and this size; gives the name that they go by: the
/// class's, or that of groups which are the volume's own.
async fn ensure_groups(meta: &MetaClient, class: &ClassRecord, size_bytes: u64) -> Result<String, MetaError> {
    if class.home_attached {
        // First of all whether there is room and a place: what is made for a volume that can't be stays a while.
        let (model, count) = (meta.model(), own_group_count(size_bytes));
        check_overcommit(&model, class, size_bytes).map_err(|error| meta.told(error))?;
        place_class(&model, class, count)?;
        let own = meta.create_own(&class.name).await?.name;
        meta.create_groups(&own, count, place_class).await?;
        return Ok(own);
    }
    if class.groups.is_empty() {
        let devices = candidates(&meta.model(), class).len();
        meta.create_groups(&class.name, group_count(devices, class.copies), place_class).await?;
    }
    Ok(class.name.clone())
}
