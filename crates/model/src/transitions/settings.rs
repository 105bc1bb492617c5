//! The cluster's settings.

use azekura_base::{ApiAccess, Transport};

use crate::{Halt, Key, MetaError, Outcome, Records, SettingsRecord, Step, Txn};

/// Most groups that may move at once.
pub const MOVES_AT_ONCE_MAX: u32 = 1_024;

/// Shortest time after which the copies of an absent node may get new homes, seconds: longer than a restart takes.
pub const REHOME_AFTER_SECONDS_MIN: u64 = 10;

/// Settings to change; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// See [`SettingsRecord::rehome_after_seconds`]; `Some(None)`: never.
    pub rehome_after_seconds: Option<Option<u64>>,
    /// See [`SettingsRecord::follow_after_seconds`]; `Some(None)`: never.
    pub follow_after_seconds: Option<Option<u64>>,
    /// See [`SettingsRecord::moves_at_once`]; 1 to [`MOVES_AT_ONCE_MAX`].
    pub moves_at_once: Option<u32>,
    /// See [`SettingsRecord::nearly_full_percent`]; 1 to [`SettingsRecord::full_percent`].
    pub nearly_full_percent: Option<u8>,
    /// See [`SettingsRecord::full_percent`]; up to 100.
    pub full_percent: Option<u8>,
    /// See [`SettingsRecord::transport`].
    pub transport: Option<Transport>,
    /// See [`SettingsRecord::api_access`].
    pub api_access: Option<ApiAccess>,
}

fn invalid(name: &str, reason: String) -> MetaError {
    MetaError::InvalidSetting { name: name.to_owned(), reason }
}

/// A node without a key can't be dialled with TLS. Whoever registers has one, so this stays true once it is.
fn check_keys(records: &Records<'_>, registered: i64, transport: Transport) -> Result<(), Halt> {
    let model = records.model(registered)?;
    let without = model.nodes.values().filter(|node| node.keys.is_none() && !node.removed);
    let names: Vec<&str> = without.map(|node| node.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "'{transport}' needs the keys of all nodes, and these have none yet: {}; start them with this version, or \
         remove those that are gone",
        names.join(", ")
    );
    Err(invalid("transport", reason).into())
}

/// A node of an older version asks nobody for grants, and shows none: it would be a hole, and hear nothing from others.
fn check_https(records: &Records<'_>, registered: i64) -> Result<(), Halt> {
    let model = records.model(registered)?;
    let without = model.nodes.values().filter(|node| !node.api_tls && !node.removed);
    let names: Vec<&str> = without.map(|node| node.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "'{}' needs nodes that know grants, and these do not: {}; start them with this version, or remove those that are \
         gone",
        ApiAccess::Grants,
        names.join(", ")
    );
    Err(invalid("api-access", reason).into())
}

/// Changes settings; gives all of them as they are then.
///
/// # Errors
/// When a setting can't be so.
pub fn change_settings(records: &Records<'_>, change: SettingsChange) -> Outcome<SettingsRecord> {
    if change.moves_at_once.is_some_and(|moves| !(1..=MOVES_AT_ONCE_MAX).contains(&moves)) {
        return Err(invalid("moves-at-once", format!("1 to {MOVES_AT_ONCE_MAX} groups can move at once")).into());
    }
    let seconds = change.rehome_after_seconds.flatten();
    if let Some(seconds) = seconds.filter(|seconds| *seconds < REHOME_AFTER_SECONDS_MIN) {
        let reason = format!(
            "{seconds} s is less than {REHOME_AFTER_SECONDS_MIN} s: a node that is only started again would lose its copies"
        );
        return Err(invalid("rehome-after", reason).into());
    }
    let [found, counter] = records.find_all([&Key::Settings, &Key::Counter("nodes")])?;
    if let Some(transport) = change.transport.filter(|transport| transport.dials_tls()) {
        check_keys(records, counter.mod_revision(), transport)?;
    }
    if change.api_access == Some(ApiAccess::Grants) {
        check_https(records, counter.mod_revision())?;
    }
    let before: Option<SettingsRecord> = found.record()?;
    let mut settings = before.clone().unwrap_or_default();
    settings.rehome_after_seconds = change.rehome_after_seconds.unwrap_or(settings.rehome_after_seconds);
    settings.follow_after_seconds = change.follow_after_seconds.unwrap_or(settings.follow_after_seconds);
    settings.moves_at_once = change.moves_at_once.unwrap_or(settings.moves_at_once);
    settings.nearly_full_percent = change.nearly_full_percent.unwrap_or(settings.nearly_full_percent);
    settings.full_percent = change.full_percent.unwrap_or(settings.full_percent);
    settings.api_access = change.api_access.unwrap_or(settings.api_access);
    settings.transport = change.transport.unwrap_or(settings.transport);
    let (nearly, full) = (settings.nearly_full_percent, settings.full_percent);
    if !(1..=full).contains(&nearly) || full > 100 {
        let name = if change.full_percent.is_some() { "full" } else { "nearly-full" };
        let reason = format!("1 <= nearly-full <= full <= 100 does not hold for {nearly} and {full}");
        return Err(invalid(name, reason).into());
    }
    if before.as_ref() == Some(&settings) {
        return Ok(Step::Done(settings, found.mod_revision()));
    }
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &settings), settings))
}

#[cfg(test)]
mod tests {
    use super::super::members::NodeSpec;
    use super::super::members::tests::{node, start};
    use super::super::tests::{run, txn_of};
    use super::*;
    use crate::{Memory, NodeRecord};
    use azekura_base::NodeId;

    #[test]
    fn settings_that_are_not_named_stay() {
        let mut memory = Memory::new();
        let change = |memory: &mut Memory, change| run(memory, |records| change_settings(records, change));
        let moves = SettingsChange { moves_at_once: Some(7), ..SettingsChange::default() };
        let never = SettingsChange { rehome_after_seconds: Some(None), ..SettingsChange::default() };
        change(&mut memory, moves).unwrap();
        let after = change(&mut memory, never).unwrap();
        assert_eq!(after, SettingsRecord { moves_at_once: 7, rehome_after_seconds: None, ..SettingsRecord::default() });
        assert_eq!(memory.model().settings(), after);
        let revision = memory.model().revision;
        assert_eq!(change(&mut memory, never).unwrap(), after);
        assert_eq!(memory.model().revision, revision, "nothing has changed");
    }

    #[test]
    fn settings_that_make_no_sense_are_refused_by_name() {
        let mut memory = Memory::new();
        let full = |nearly, full| SettingsChange {
            nearly_full_percent: nearly,
            full_percent: full,
            ..SettingsChange::default()
        };
        for (change, setting) in [
            (SettingsChange { moves_at_once: Some(0), ..SettingsChange::default() }, "moves-at-once"),
            (SettingsChange { moves_at_once: Some(1_025), ..SettingsChange::default() }, "moves-at-once"),
            (SettingsChange { rehome_after_seconds: Some(Some(9)), ..SettingsChange::default() }, "rehome-after"),
            (full(Some(0), None), "nearly-full"),
            (full(Some(99), None), "nearly-full"),
            (full(None, Some(101)), "full"),
            (full(Some(90), Some(80)), "full"),
        ] {
            let refused = run(&mut memory, |records| change_settings(records, change));
            assert!(
                matches!(&refused, Err(MetaError::InvalidSetting { name, .. }) if name == setting),
                "{setting}: {refused:?}"
            );
        }
        assert_eq!(memory.model().revision, 0);
    }

    #[test]
    fn tls_waits_for_the_keys_of_all_nodes() {
        let mut memory = Memory::new();
        let set = |memory: &mut Memory, transport| {
            let change = SettingsChange { transport: Some(transport), ..SettingsChange::default() };
            run(memory, |records| change_settings(records, change))
        };
        for name in ["n1", "n2"] {
            start(&mut memory, &node(name, name)).unwrap();
        }
        let key = Key::Node(NodeId(2));
        let old = NodeRecord { keys: None, ..memory.model().nodes[&NodeId(2)].record.clone() };
        memory.run(&Txn::new().put(&key.to_string(), &old)).unwrap();
        for transport in [Transport::Both, Transport::Tls] {
            let refused = set(&mut memory, transport).unwrap_err().to_string();
            assert!(refused.contains("n2") && !refused.contains("n1"), "{refused}");
        }
        assert_eq!(set(&mut memory, Transport::Plain).unwrap().transport, Transport::Plain);
        // One that is shut out has no key and needs none.
        memory.run(&Txn::new().put(&key.to_string(), &NodeRecord { keys: Some(Vec::new()), ..old })).unwrap();
        for transport in [Transport::Both, Transport::Tls, Transport::Plain] {
            assert_eq!(set(&mut memory, transport).unwrap().transport, transport);
        }
    }

    #[test]
    fn grants_wait_for_all_nodes_to_know_them() {
        let mut memory = Memory::new();
        let set = |memory: &mut Memory, api_access| {
            let change = SettingsChange { api_access: Some(api_access), ..SettingsChange::default() };
            run(memory, |records| change_settings(records, change))
        };
        let knows = |name| NodeSpec { api_tls: true, ..node(name, name) };
        start(&mut memory, &knows("n1")).unwrap();
        start(&mut memory, &node("n2", "n2")).unwrap();
        let refused = set(&mut memory, ApiAccess::Grants).unwrap_err().to_string();
        assert!(refused.contains("n2") && !refused.contains("n1"), "{refused}");
        start(&mut memory, &knows("n2")).unwrap();
        for access in [ApiAccess::Grants, ApiAccess::Open] {
            assert_eq!(set(&mut memory, access).unwrap().api_access, access);
        }
    }

    #[test]
    fn settings_of_an_older_version_are_plain() {
        let record: SettingsRecord = serde_json::from_str("{\"moves_at_once\": 3}").unwrap();
        assert_eq!(record, SettingsRecord { moves_at_once: 3, ..SettingsRecord::default() });
        assert_eq!((record.transport, record.api_access), (Transport::Plain, ApiAccess::Open));
        assert!(serde_json::to_string(&record).unwrap().contains("\"transport\":\"plain\""));
    }

    #[test]
    fn of_two_changes_the_later_one_looks_again() {
        let mut memory = Memory::new();
        let late = SettingsChange { moves_at_once: Some(7), ..SettingsChange::default() };
        let late = txn_of(change_settings(&Records::known(memory.model()), late));
        let never = SettingsChange { rehome_after_seconds: Some(None), ..SettingsChange::default() };
        run(&mut memory, |records| change_settings(records, never)).unwrap();
        assert_eq!(memory.run(&late), None);
    }
}
