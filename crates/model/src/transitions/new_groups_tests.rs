//! Creations of groups that stop in the middle, or meet.

use azekura_base::DeviceId;

use super::super::classes::{ClassSpec, begin_class_deletion, create_class};
use super::super::tests::{run, txn_of};
use super::*;
use crate::Memory;

fn on_two(_: &Model, _: &ClassRecord, count: u32) -> Result<Vec<NewGroup>, MetaError> {
    let new = NewGroup { members: vec![DeviceId(1), DeviceId(2)], primary: DeviceId(1) };
    Ok(vec![new; count as usize])
}

fn nowhere(_: &Model, class: &ClassRecord, _: u32) -> Result<Vec<NewGroup>, MetaError> {
    let (class, copies, failure_domain) = (class.name.clone(), class.copies, class.failure_domain);
    Err(MetaError::NotEnoughDevices { class, copies, failure_domain, found: 0 })
}

fn with_class() -> Memory {
    let mut memory = Memory::new();
    run(&mut memory, |records| create_class(records, &ClassSpec::new("c", 2), "")).unwrap();
    memory
}

fn plan(memory: &mut Memory, count: u32) -> GroupPlan {
    match run(memory, |records| plan_groups(records, "c", count, &on_two)) {
        Ok(GroupsPlanned::ToWrite(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

fn records_of(memory: &mut Memory, plan: &GroupPlan) -> Vec<GroupRecord> {
    run(memory, |records| planned_groups(records, "c", plan, 7, &on_two)).unwrap()
}

#[test]
fn groups_come_before_the_class_names_them() {
    let mut memory = with_class();
    let plan = plan(&mut memory, 3);
    assert_eq!(plan, GroupPlan { first: PgId(1), count: 3 });
    let groups = records_of(&mut memory, &plan);
    run(&mut memory, |records| write_groups(records, "c", &plan, &groups)).unwrap();
    assert!(memory.model().classes["c"].groups.is_empty() && memory.model().groups.len() == 3);
    run(&mut memory, |records| give_groups(records, "c", &plan)).unwrap();
    let ids = vec![PgId(1), PgId(2), PgId(3)];
    let class = &memory.model().classes["c"];
    assert_eq!((&class.groups, &class.plan, memory.model().counters["groups"]), (&ids, &None, 4));
    let again = run(&mut memory, |records| plan_groups(records, "c", 9, &nowhere)).unwrap();
    assert_eq!(again, GroupsPlanned::Made(ids), "it has them");
}

#[test]
fn a_class_without_room_gets_no_plan() {
    let mut memory = with_class();
    let refused = run(&mut memory, |records| plan_groups(records, "c", 3, &nowhere));
    assert!(matches!(refused, Err(MetaError::NotEnoughDevices { .. })), "{refused:?}");
    assert!(memory.model().classes["c"].plan.is_none() && memory.model().counters.is_empty());
    let missing = run(&mut memory, |records| plan_groups(records, "d", 3, &on_two));
    assert!(matches!(missing, Err(MetaError::NotFound { .. })), "{missing:?}");
}

#[test]
fn another_client_takes_up_an_interrupted_creation() {
    let mut memory = with_class();
    let plan = plan(&mut memory, 3);
    let groups = records_of(&mut memory, &plan);
    let late = txn_of(write_groups(&Records::known(memory.model()), "c", &plan, &groups));
    run(&mut memory, |records| write_groups(records, "c", &plan, &groups[..2])).unwrap();
    assert_eq!(memory.run(&late), None, "two are there already");
    assert_eq!(self::plan(&mut memory, 9), plan, "the count is that of the plan");
    let before = memory.model().groups[&PgId(1)].mod_revision;
    run(&mut memory, |records| write_groups(records, "c", &plan, &groups)).unwrap();
    assert_eq!((memory.model().groups.len(), memory.model().groups[&PgId(1)].mod_revision), (3, before));
    run(&mut memory, |records| give_groups(records, "c", &plan)).unwrap();
    let revision = memory.model().revision;
    run(&mut memory, |records| write_groups(records, "c", &plan, &groups)).unwrap();
    run(&mut memory, |records| give_groups(records, "c", &plan)).unwrap();
    assert_eq!(memory.model().revision, revision, "the other one has finished");
}

#[test]
fn groups_are_not_written_for_a_class_that_goes() {
    let mut memory = with_class();
    let plan = plan(&mut memory, 3);
    let groups = records_of(&mut memory, &plan);
    let late = txn_of(write_groups(&Records::known(memory.model()), "c", &plan, &groups));
    run(&mut memory, |records| begin_class_deletion(records, "c")).unwrap();
    assert_eq!(memory.run(&late), None);
    run(&mut memory, |records| write_groups(records, "c", &plan, &groups)).unwrap();
    run(&mut memory, |records| give_groups(records, "c", &plan)).unwrap();
    assert!(memory.model().groups.is_empty() && memory.model().classes["c"].groups.is_empty());
    let ended = run(&mut memory, |records| plan_groups(records, "c", 3, &on_two));
    assert!(matches!(ended, Err(MetaError::NotFound { .. })), "{ended:?}");
}

#[test]
fn a_plan_that_makes_no_sense_is_told() {
    for (first, count) in [(1, 0), (1, GROUPS_PER_CLASS_MAX + 1), (u32::MAX, 2)] {
        let mut memory = with_class();
        let class = memory.model().classes["c"].record.clone();
        let broken = ClassRecord { plan: Some(GroupPlan { first: PgId(first), count }), ..class };
        memory.run(&Txn::new().put(&Key::Class("c").to_string(), &broken)).unwrap();
        let told = run(&mut memory, |records| plan_groups(records, "c", 3, &on_two));
        assert!(matches!(told, Err(MetaError::Broken { .. })), "{first} {count}: {told:?}");
    }
}
