//! Projects: what belongs together.

use azekura_model::transitions::projects::{
    ProjectChange, ProjectSpec, change_project, create_project, delete_project,
};
use azekura_model::{MetaError, ProjectRecord};

use super::MetaClient;
use crate::time::now_rfc3339;

impl MetaClient {
    /// Makes a project.
    pub async fn create_project(&self, spec: &ProjectSpec) -> Result<ProjectRecord, MetaError> {
        let created = now_rfc3339();
        Ok(self.run("making the project", |records| create_project(records, spec, &created)).await?.0)
    }

    /// Changes a project.
    pub async fn change_project(&self, name: &str, change: &ProjectChange) -> Result<ProjectRecord, MetaError> {
        Ok(self.run("changing the project", |records| change_project(records, name, change)).await?.0)
    }

    /// Deletes a project that has neither volumes nor grants.
    pub async fn delete_project(&self, name: &str) -> Result<(), MetaError> {
        self.run("deleting the project", |records| delete_project(records, name)).await?;
        Ok(())
    }
}
