//! What a StorageClass says.

use std::collections::HashMap;

use azekura_api::{AckRule, IoLimits, VolumeView};
use azekura_base::{DEFAULT_PROJECT, LogicalBlock, LogicalBlockError, SecretText};
use tonic::Status;

use crate::{Outcome, attributes, secrets};

/// What sidecars of Kubernetes add for drivers that want to know.
const FROM_SIDECARS: &str = "csi.storage.k8s.io/";

/// Whether volumes are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encrypt {
    /// Unless their class says so.
    #[default]
    No,
    /// With a key that the cluster's provider wraps.
    Yes,
    /// With a key that the StorageClass's Secret wraps.
    Secret,
}

/// The parameters of a StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// `class`: the storage classes of Azekura; of several, that which is near the pod.
    pub(crate) classes: Vec<String>,
    /// `project`: the project of Azekura whose volumes they are; the driver's token has to be for it.
    pub(crate) project: Option<String>,
    /// `copies`: copies of every block.
    pub(crate) copies: Option<u32>,
    /// `ackRule`: when a write is acknowledged.
    pub(crate) ack_rule: Option<AckRule>,
    /// `encrypt`: with a key of its own.
    pub(crate) encrypt: Encrypt,
    /// `cloneKey`: an encrypted volume that is made from another one, or from a snapshot, gets a data key of its own.
    pub(crate) own_key: bool,
    /// `logicalBlockSize`: what clients count a volume's blocks in.
    pub(crate) logical_block: Option<LogicalBlock>,
    /// `iops`, `bandwidth`, `burst`: what a volume may do at first. A VolumeAttributesClass takes their place.
    pub(crate) limits: IoLimits,
}

fn bad(name: &str, value: &str, words: &str) -> Status {
    Status::invalid_argument(format!("the StorageClass's parameter {name} is '{value}': {words}"))
}

impl Parameters {
    /// Reads them; one that is not known is refused, so that nobody waits for what it promises.
    pub(crate) fn read(given: &HashMap<String, String>) -> Outcome<Parameters> {
        let mut parameters = Parameters::default();
        for (name, value) in given {
            match name.as_str() {
                "class" => parameters.classes = classes(value)?,
                "project" => parameters.project = Some(value.clone()).filter(|project| project != DEFAULT_PROJECT),
                "copies" => {
                    let copies = value.parse().ok().filter(|copies| *copies > 0);
                    parameters.copies = Some(copies.ok_or_else(|| bad(name, value, "it is a number from 1 on"))?);
                }
                "ackRule" => {
                    parameters.ack_rule = Some(match value.as_str() {
                        "all" => AckRule::All,
                        "majority" => AckRule::Majority,
                        "each-site" => AckRule::EachSite,
                        _ => return Err(bad(name, value, "it is one of all, majority, each-site")),
                    });
                }
                "encrypt" => {
                    parameters.encrypt = match value.as_str() {
                        "true" => Encrypt::Yes,
                        "false" => Encrypt::No,
                        "secret" => Encrypt::Secret,
                        _ => return Err(bad(name, value, "it is true, false or secret")),
                    };
                }
                "cloneKey" => {
                    parameters.own_key = match value.as_str() {
                        "own" => true,
                        "source" => false,
                        _ => return Err(bad(name, value, "it is own or source")),
                    };
                }
                "logicalBlockSize" => {
                    parameters.logical_block =
                        Some(value.parse().map_err(|error: LogicalBlockError| bad(name, value, &error.to_string()))?);
                }
                name if name.starts_with(FROM_SIDECARS) => {}
                name if attributes::read_one(&mut parameters.limits, "StorageClass", name, value)? => {}
                _ => {
                    let reason = format!(
                        "the StorageClass has a parameter '{name}' that this driver does not know: it knows class, \
                         project, copies, ackRule, encrypt, cloneKey, logicalBlockSize, {}",
                        attributes::KNOWN.join(", ")
                    );
                    return Err(Status::invalid_argument(reason));
                }
            }
        }
        Ok(parameters)
    }

    /// The secret that they ask for, and no other: what is not used must not seem to be.
    pub(crate) fn secret(&self, volume: &str, given: Option<SecretText>) -> Outcome<Option<SecretText>> {
        match (self.encrypt, given) {
            (Encrypt::Secret, None) => Err(secrets::missing(volume, "provisioner")),
            (Encrypt::Secret, given) => Ok(given),
            (_, None) => Ok(None),
            (_, Some(_)) => Err(Status::invalid_argument(format!(
                "the Secret has a field {}, and the StorageClass does not say what for: its parameter encrypt has to be \
                 'secret'",
                secrets::FIELD
            ))),
        }
    }

    /// Where a volume is not what they say.
    pub(crate) fn odds(&self, volume: &VolumeView) -> Option<String> {
        let VolumeView { class, copies, ack_rule, encrypted, logical_block_bytes, .. } = volume;
        if !self.classes.is_empty() && !self.classes.contains(class) {
            return Some(format!("its class is '{class}', not '{}'", self.classes.join("' or '")));
        }
        if let Some(wanted) = self.copies.filter(|wanted| wanted != copies) {
            return Some(format!("it has {copies} copies, not {wanted}"));
        }
        if let Some(wanted) = self.ack_rule.filter(|wanted| wanted != ack_rule) {
            return Some(format!("its writes are acknowledged by the rule {ack_rule}, not {wanted}"));
        }
        if let Some(wanted) = self.logical_block.filter(|wanted| wanted != logical_block_bytes) {
            return Some(format!("its logical blocks have {logical_block_bytes} bytes, not {wanted}"));
        }
        match (self.encrypt, encrypted, secrets::opens(volume)) {
            (Encrypt::Yes | Encrypt::Secret, false, _) => Some("it is not encrypted".to_owned()),
            (Encrypt::Secret, true, false) => Some("its key is not wrapped with a secret of its own".to_owned()),
            (Encrypt::No | Encrypt::Yes, _, true) => {
                Some("its key is wrapped with a secret of its own (encrypt: secret)".to_owned())
            }
            _ => None,
        }
    }
}

/// The names of classes, without another one twice.
fn classes(value: &str) -> Outcome<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in value.split(',').map(str::trim) {
        if name.is_empty() || names.iter().any(|known| known == name) {
            let words = "it is a class, or several, each once, with commas between them";
            return Err(bad("class", value, words));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Parameters of what has none.
pub(crate) fn none(what: &str, given: &HashMap<String, String>) -> Outcome<()> {
    match given.keys().filter(|name| !name.starts_with(FROM_SIDECARS)).min() {
        None => Ok(()),
        Some(name) => {
            let reason = format!("{what} has a parameter '{name}' that this driver does not know: it knows none");
            Err(Status::invalid_argument(reason))
        }
    }
}

/// Parameters of a VolumeGroupSnapshotClass, which has none. Kubernetes' own tests repeat its `deletionPolicy` among
/// them. `Delete` can be passed over: the driver deletes what it is told to. `Retain` would be believed, and not kept.
pub(crate) fn none_of_groups(given: &HashMap<String, String>) -> Outcome<()> {
    let mut given = given.clone();
    given.retain(|name, value| name != "deletionPolicy" || value != "Delete");
    none("the VolumeGroupSnapshotClass", &given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Outcome<Parameters> {
        Parameters::read(&given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn known_ones_are_read() {
        let given = [
            ("class", "c, d"),
            ("copies", "3"),
            ("ackRule", "each-site"),
            ("encrypt", "true"),
            ("cloneKey", "own"),
            ("logicalBlockSize", "4096"),
            ("iops", "500"),
        ];
        let expected = Parameters {
            project: None,
            classes: vec!["c".into(), "d".into()],
            copies: Some(3),
            ack_rule: Some(AckRule::EachSite),
            encrypt: Encrypt::Yes,
            own_key: true,
            logical_block: Some(LogicalBlock::Bytes4096),
            limits: IoLimits { iops: Some(500), ..IoLimits::default() },
        };
        assert_eq!(read(&given).unwrap(), expected);
        assert_eq!(read(&[("csi.storage.k8s.io/pvc/name", "x")]).unwrap(), Parameters::default());
    }

    #[test]
    fn a_secret_comes_where_it_is_asked_for_and_nowhere_else() {
        let secret = || Some(SecretText::new("correct horse".to_owned()));
        let by_secret = read(&[("encrypt", "secret")]).unwrap();
        assert_eq!(by_secret.secret("v", secret()).unwrap(), secret());
        let missing = by_secret.secret("v", None).unwrap_err();
        assert!(missing.message().contains("provisioner-secret-name"), "{}", missing.message());
        for given in [&[][..], &[("encrypt", "true")]] {
            let other = read(given).unwrap();
            assert_eq!(other.secret("v", None).unwrap(), None);
            let refused = other.secret("v", secret()).unwrap_err();
            assert!(refused.message().contains("encrypt has to be 'secret'"), "{}", refused.message());
        }
    }

    #[test]
    fn a_class_of_groups_may_repeat_that_they_are_deleted() {
        let none_of = |name: &str, value: &str| none_of_groups(&HashMap::from([(name.to_owned(), value.to_owned())]));
        none_of("deletionPolicy", "Delete").unwrap();
        none_of("csi.storage.k8s.io/volumegroupsnapshot/name", "x").unwrap();
        for (name, value) in [("deletionPolicy", "Retain"), ("class", "c")] {
            let status = none_of(name, value).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(name), "{}", status.message());
        }
    }

    #[test]
    fn others_are_refused_by_name() {
        for (name, value) in [
            ("Class", "c"),
            ("class", ""),
            ("class", "c,"),
            ("class", "c,d,c"),
            ("copies", "0"),
            ("copies", "x"),
            ("ackRule", "any"),
            ("encrypt", "yes"),
            ("cloneKey", "true"),
            ("logicalBlockSize", "1024"),
            ("logicalBlockSize", "4KiB"),
        ] {
            let status = read(&[(name, value)]).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(name), "{}", status.message());
        }
    }
}
