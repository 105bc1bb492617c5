//! Devices in use.

use azekura_base::DeviceId;
use azekura_model::transitions::devices::{note_device_failure, set_device_state};
use azekura_model::{DeviceFailure, DeviceState, MetaError};

use super::MetaClient;

impl MetaClient {
    /// Says whether devices take data. All of them change, or none.
    pub async fn set_device_state(&self, devices: &[DeviceId], state: DeviceState) -> Result<(), MetaError> {
        self.run("changing the state of devices", |records| set_device_state(records, devices, state)).await?;
        Ok(())
    }

    /// Notes what is wrong with a device, or that nothing is. That a device has had too many errors stays known when
    /// its store is opened again; and of a device that does not serve any more, errors are no news.
    pub async fn note_device_failure(
        &self,
        device: DeviceId,
        failure: Option<&DeviceFailure>,
    ) -> Result<(), MetaError> {
        self.run("noting the state of a device", |records| note_device_failure(records, device, failure)).await?;
        Ok(())
    }
}
