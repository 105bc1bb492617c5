//! A storage class that comes and goes while clients use the others: its groups, a volume in it, and their end.

use crate::cluster::{Cluster, Scene};
use azekura_base::CHUNK_SIZE;
use azekura_model::transitions::classes::{
    ClassSpec, begin_class_deletion, create_class, delete_groups, finish_class_deletion,
};
use azekura_model::transitions::new_groups::{GroupsPlanned, give_groups, plan_groups, planned_groups, write_groups};
use azekura_model::transitions::settings::{SettingsChange, change_settings};
use azekura_model::{GroupPlan, MetaError};
use azekura_plans::placement::place_class;

/// The class, and its volume.
const EXTRA: &str = "extra";
/// Copies of its blocks.
const COPIES: u32 = 2;
/// Its groups.
const GROUPS: u32 = 2;

impl<S: Scene> Cluster<S> {
    /// Somebody changes settings.
    pub(crate) fn change_settings(&mut self, change: SettingsChange) {
        let changed = self.configuration.run(|records| change_settings(records, change));
        let Some((settings, _)) = self.must(changed) else { return };
        self.trace.step(self.now, u64::from(settings.moves_at_once), || format!("settings: {settings:?}"));
        self.inform_all();
    }

    pub(crate) fn has_extra_class(&self) -> bool {
        self.configuration.model().classes.contains_key(EXTRA)
    }

    /// The class is made, or its volume deleted, or the class.
    pub(crate) fn turn_extra_class(&mut self) -> &'static str {
        if !self.has_extra_class() {
            return self.make_extra_class().unwrap_or("nothing");
        }
        if self.configuration.model().volumes.contains_key(EXTRA) {
            self.delete_volume(EXTRA);
            return "volume of a class deleted";
        }
        match self.configuration.run(|records| begin_class_deletion(records, EXTRA)) {
            Ok((groups, _)) => {
                self.trace.step(self.now, groups.len() as u64, || format!("{EXTRA} is deleted, with {groups:?}"));
                self.configuration.change(&delete_groups(&groups));
                let finished = self.configuration.run(|records| finish_class_deletion(records, EXTRA));
                self.must(finished);
                self.inform_all();
                "class deleted"
            }
            // Its volume's layer is still being dropped.
            Err(MetaError::ClassInUse { .. }) => "nothing",
            Err(error) => {
                self.must::<()>(Err(error));
                "nothing"
            }
        }
    }

    /// `None`: there is no place for it.
    fn make_extra_class(&mut self) -> Option<&'static str> {
        let spec = ClassSpec::new(EXTRA, COPIES);
        place_class(self.configuration.model(), &spec.record(""), GROUPS).ok()?;
        let made = self.configuration.run(|records| create_class(records, &spec, ""));
        self.must(made)?;
        let planned = self.configuration.run(|records| plan_groups(records, EXTRA, GROUPS, &place_class));
        if let (GroupsPlanned::ToWrite(plan), _) = self.must(planned)? {
            self.make_groups(&plan)?;
        }
        self.create_volume_in(EXTRA, EXTRA, CHUNK_SIZE as u64 * u64::from(GROUPS))?;
        Some("class made")
    }

    fn make_groups(&mut self, plan: &GroupPlan) -> Option<()> {
        let now = self.now.as_secs();
        let groups = self.configuration.run(|records| planned_groups(records, EXTRA, plan, now, &place_class));
        let (groups, _) = self.must(groups)?;
        self.trace.step(self.now, u64::from(plan.first.0), || {
            let homes: Vec<_> = groups.iter().map(|group| (group.id, &group.members)).collect();
            format!("{EXTRA} is made, with {homes:?}")
        });
        let written = self.configuration.run(|records| write_groups(records, EXTRA, plan, &groups));
        self.must(written)?;
        let given = self.configuration.run(|records| give_groups(records, EXTRA, plan));
        self.must(given)?;
        self.inform_all();
        Some(())
    }
}
