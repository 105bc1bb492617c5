//! What a Secret of Kubernetes' hands over (docs/csi.md).

use std::collections::HashMap;

use azekura_api::VolumeView;
use azekura_base::SecretText;
use tonic::Status;
use zeroize::Zeroize;

/// The field of a Secret that wraps the key of a volume: a passphrase, or a key. ceph-csi calls it so as well.
pub(crate) const FIELD: &str = "encryptionPassphrase";
/// The provider of volumes' keys that are wrapped so.
pub(crate) const PROVIDER: &str = "csi";

/// Takes the secret out of a request, and overwrites the others that came with it.
pub(crate) fn take(secrets: &mut HashMap<String, String>) -> Option<SecretText> {
    let mut found = None;
    for (name, mut value) in secrets.drain() {
        match name.as_str() {
            FIELD => found = Some(SecretText::new(value)),
            _ => value.zeroize(),
        }
    }
    found
}

/// Whether a volume is opened by a secret of its own.
pub(crate) fn opens(volume: &VolumeView) -> bool {
    volume.key_provider.as_deref() == Some(PROVIDER)
}

/// The error of a call that has no secret.
pub(crate) fn missing(volume: &str, kind: &str) -> Status {
    Status::invalid_argument(format!(
        "volume '{volume}' is encrypted with a secret of its own, and none came: have the StorageClass name a Secret \
         with the field {FIELD} (csi.storage.k8s.io/{kind}-secret-name and -namespace)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_counts_and_nothing_stays() {
        let mut given = HashMap::from([(FIELD.to_owned(), "x".to_owned()), ("userKey".to_owned(), "y".to_owned())]);
        assert_eq!(take(&mut given), Some(SecretText::new("x".to_owned())));
        assert!(given.is_empty());
        assert_eq!(take(&mut HashMap::from([("userKey".to_owned(), "y".to_owned())])), None);
    }
}
