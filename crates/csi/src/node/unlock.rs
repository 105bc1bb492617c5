//! Volumes that a secret of their own opens, at the Azekura node of this machine.

use std::path::Path;

use azekura_api::endpoint::VolumeUnlock;
use azekura_api::{UnlockVolume, VolumeView};
use azekura_base::SecretText;

use super::Node;
use super::machine::mounts;
use crate::cluster::told;
use crate::{Outcome, secrets};

impl Node {
    /// Opens a volume, if it is one that a secret opens; `kind`: of the Secret that the StorageClass has to name.
    pub(super) fn unlock(&self, volume: &VolumeView, secret: Option<&SecretText>, kind: &str) -> Outcome<()> {
        if !secrets::opens(volume) {
            return Ok(());
        }
        let secret = secret.cloned().ok_or_else(|| secrets::missing(&volume.name, kind))?;
        let body = UnlockVolume { secret, node: Some(self.name.clone()) };
        let answer = self.cluster.send_in_private::<VolumeUnlock>([volume.name.clone()], &body)?;
        answer.map(|_| ()).map_err(|error| told(&format!("unlocking volume '{}'", volume.name), &error))
    }

    /// Opens a volume that waits for its secret, as after a restart of the Azekura node: kubelet publishes again and
    /// again, with the secret, what a pod has, where the CSIDriver asks for that (requiresRepublish).
    ///
    /// Where the volume is published already nothing of this is an error: of older versions kubelet takes the pod's
    /// folder away then (kubernetes/kubernetes#121271).
    pub(super) fn open_again(&self, volume: &str, secret: &SecretText, target: &Path) -> Outcome<()> {
        let open = || {
            let known = self.cluster.known_volume(volume)?;
            match known.key_missing {
                Some(_) => self.unlock(&known, Some(secret), "node-publish"),
                None => Ok(()),
            }
        };
        match open() {
            Err(status) if mounts()?.at(target).is_some() => {
                tracing::warn!(volume, "what is published stays, and waits: {}", status.message());
                Ok(())
            }
            outcome => outcome,
        }
    }
}
