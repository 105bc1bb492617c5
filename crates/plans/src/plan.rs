//! A change of the configuration that the leader makes.

use azekura_base::VolumeId;
use azekura_model::transitions::cuts::call_off_cut;
use azekura_model::transitions::groups::replace_group;
use azekura_model::transitions::layers::{begin_layer_end, remove_layer};
use azekura_model::transitions::removal::removal_step;
use azekura_model::transitions::restored::{adopt_layer, end_restoration};
use azekura_model::transitions::snapshots::delete_snapshot;
use azekura_model::{GroupRecord, LayerRecord, Model, Outcome, Records, RemovalStep, Step};

use crate::cuts::LateCut;
use crate::followers::OwnPlan;
use crate::homes::Move;
use crate::layers::LayerPlan;

/// What is to be changed next. It may be taken at any time after it was planned: what has changed since that it depends
/// on makes it void, and the next look plans anew.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// A cut that nobody finishes is called off.
    CallOff(LateCut),
    /// A snapshot is deleted.
    DeleteSnapshot(VolumeId, String),
    /// A layer that devices hold, and the configuration does not know, is entered.
    AdoptLayer(LayerRecord),
    /// A group that was closed by a restore gets this record, in the place of the one that was last changed at this
    /// revision.
    Reopen(Box<GroupRecord>, i64),
    /// All groups are open again.
    EndRestoration,
    /// A layer ends, or has ended.
    Layer(LayerPlan),
    /// What was removed goes.
    Removal(RemovalStep),
    /// A volume's own groups change, or go.
    Own(OwnPlan),
    /// A group's copies go elsewhere.
    Move(Move),
}

impl Plan {
    /// The plan as a transition; `model`: what it was planned from. Gives whether it has changed something.
    ///
    /// # Errors
    /// When a record can't be read.
    pub fn transition(&self, model: &Model, records: &Records<'_>) -> Outcome<bool> {
        let changed = |outcome: Outcome<()>| {
            Ok(match outcome? {
                Step::Done((), revision) => Step::Done(false, revision),
                Step::Run(txn, ()) => Step::Run(txn, true),
                Step::Again => Step::Again,
            })
        };
        let unless_void = |txn| match txn {
            Some(txn) => records.unless_overtaken(txn),
            None => Ok(Step::Done(false, 0)),
        };
        match self {
            Plan::CallOff(LateCut { id, volumes }) => changed(call_off_cut(records, id, volumes)),
            Plan::DeleteSnapshot(volume, name) => delete_snapshot(records, *volume, name),
            Plan::AdoptLayer(layer) => records.unless_overtaken(adopt_layer(layer.clone())),
            Plan::Reopen(group, mod_revision) => records.unless_overtaken(replace_group(group, *mod_revision)),
            Plan::EndRestoration => changed(end_restoration(records)),
            Plan::Layer(LayerPlan::Remove(layer)) => changed(remove_layer(records, *layer)),
            Plan::Layer(LayerPlan::Begin(layer, end)) => unless_void(begin_layer_end(model, *layer, *end)),
            Plan::Removal(step) => records.unless_overtaken(removal_step(model, step)),
            Plan::Own(own) => own.transition(records),
            Plan::Move(wanted) => unless_void(wanted.change(model)),
        }
    }

    /// What it belongs to. Of plans with the same subject, later ones depend on earlier ones: when one fails, those
    /// behind it wait for the next look.
    #[must_use]
    pub fn subject(&self) -> &'static str {
        match self {
            Plan::CallOff(_) => "calling snapshots off",
            Plan::DeleteSnapshot(..) => "thinning snapshots",
            Plan::AdoptLayer(_) | Plan::Reopen(..) | Plan::EndRestoration => "opening groups after a restore",
            Plan::Layer(_) => "removing layers",
            Plan::Removal(_) => "removing nodes and devices",
            Plan::Own(_) => "having homes follow volumes",
            Plan::Move(_) => "giving groups new homes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{DeviceId, PgId};
    use azekura_model::transitions::groups::NewGroup;
    use azekura_model::{Key, Memory, Txn};

    use crate::homes::Reason;

    /// Takes a plan; gives whether it has changed something.
    fn take(memory: &mut Memory, model: &Model, plan: &Plan) -> bool {
        match plan.transition(model, &Records::known(memory.model())).unwrap() {
            Step::Run(txn, changed) => memory.run(&txn).map(|_| changed).unwrap(),
            Step::Done(changed, _) => changed,
            Step::Again => panic!("nothing is in the way"),
        }
    }

    #[test]
    fn a_plan_that_was_overtaken_changes_nothing() {
        let mut memory = Memory::new();
        let new = NewGroup { members: vec![DeviceId(1), DeviceId(2)], primary: DeviceId(1) };
        let group = new.into_record(PgId(1), "c", 0);
        memory.run(&Txn::new().put(&Key::Group(PgId(1)).to_string(), &group)).unwrap();
        let model = memory.model().clone();
        let to = |members: [u32; 2]| {
            let members = members.map(DeviceId).to_vec();
            Plan::Move(Move { reason: Reason::Drain, group: PgId(1), members })
        };
        assert!(take(&mut memory, &model, &to([1, 3])));
        let revision = memory.model().revision;
        assert!(!take(&mut memory, &model, &to([1, 4])), "the record is another");
        let reopened = GroupRecord { version: 9, ..group };
        assert!(!take(&mut memory, &model, &Plan::Reopen(Box::new(reopened), model.revision)));
        assert!(!take(&mut memory, &model, &Plan::DeleteSnapshot(VolumeId(1), "s".into())), "it is gone");
        assert_eq!(memory.model().revision, revision);
        assert_eq!(memory.model().groups[&PgId(1)].members, [DeviceId(1), DeviceId(3)]);
    }
}
