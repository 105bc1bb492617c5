//! Storage classes.

use azekura_model::transitions::classes::{
    begin_class_deletion, change_class, create_class, delete_groups, finish_class_deletion,
};
use azekura_model::transitions::own_groups::create_own;
use azekura_model::{ClassRecord, MetaError, own_name};

use super::{MetaClient, random_uuid};
use crate::client::REQUEST_TIMEOUT;
use crate::time::now_rfc3339;

pub use azekura_model::transitions::classes::{ClassChange, ClassSpec, DEFAULT_OVERCOMMIT_RATIO};

/// Groups deleted by one transaction; etcd takes 128 operations.
const GROUPS_PER_TXN: usize = 100;

impl MetaClient {
    /// Makes a storage class; its groups come with its first volume.
    pub async fn create_class(&self, spec: &ClassSpec) -> Result<ClassRecord, MetaError> {
        let created = now_rfc3339();
        Ok(self.run("creating the storage class", |records| create_class(records, spec, &created)).await?.0)
    }

    /// Makes the record of groups that a volume of this class is about to have of its own; the groups come next.
    pub async fn create_own(&self, class: &str) -> Result<ClassRecord, MetaError> {
        let (created, name) = (now_rfc3339(), own_name(class, &random_uuid()));
        Ok(self.run("making a volume's groups", |records| create_own(records, class, &name, &created)).await?.0)
    }

    /// Changes a storage class; gives it as it is then.
    pub async fn change_class(&self, name: &str, change: ClassChange) -> Result<ClassRecord, MetaError> {
        Ok(self.run("changing the storage class", |records| change_class(records, name, change)).await?.0)
    }

    /// Deletes a storage class that has no volumes, with its groups. Can be repeated when it was interrupted.
    pub async fn delete_class(&self, name: &str) -> Result<(), MetaError> {
        let what = "deleting the storage class";
        let (groups, _) = self.run(what, |records| begin_class_deletion(records, name)).await?;
        for part in groups.chunks(GROUPS_PER_TXN) {
            self.change(delete_groups(part), REQUEST_TIMEOUT).await?;
        }
        self.run(what, |records| finish_class_deletion(records, name)).await?;
        self.touch_counter("volumes").await
    }
}
