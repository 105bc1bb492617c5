//! Targets of several logical units.

use std::sync::Arc;

use azekura_model::transitions::targets::{UnitSpec, add_unit, create_target, delete_target, remove_unit};
use azekura_model::{Key, MetaError, Model, TargetRecord};
use tokio::time::Instant;

use super::{MetaClient, OPERATION_TIMEOUT};
use crate::time::now_rfc3339;

impl MetaClient {
    /// A model that holds every change of targets made before this call, by whatever node.
    pub async fn model_of_targets(&self) -> Result<Arc<Model>, MetaError> {
        let [targets] = self.get_all([&Key::Counter("targets")], Instant::now() + OPERATION_TIMEOUT).await?;
        self.model_at(targets.mod_revision()).await
    }

    /// Makes a target of these volumes.
    pub async fn create_target(&self, name: &str, units: &[UnitSpec]) -> Result<TargetRecord, MetaError> {
        let created = now_rfc3339();
        Ok(self.run("making the target", |records| create_target(records, name, units, &created)).await?.0)
    }

    /// Makes a volume a unit of a target.
    pub async fn add_unit(&self, name: &str, unit: &UnitSpec) -> Result<TargetRecord, MetaError> {
        Ok(self.run("adding the unit", |records| add_unit(records, name, unit)).await?.0)
    }

    /// Takes a unit from a target.
    pub async fn remove_unit(&self, name: &str, lun: u16, force: bool) -> Result<TargetRecord, MetaError> {
        Ok(self.run("removing the unit", |records| remove_unit(records, name, lun, force)).await?.0)
    }

    /// Deletes a target. Its volumes stay.
    pub async fn delete_target(&self, name: &str, force: bool) -> Result<(), MetaError> {
        self.run("deleting the target", |records| delete_target(records, name, force)).await?;
        Ok(())
    }
}
