//! The cluster's settings.

use crate::{Key, MetaError, Outcome, Records, SettingsRecord, Step, Txn};

/// Most groups that may move at once.
pub const MOVES_AT_ONCE_MAX: u32 = 1_024;

/// Shortest time after which the copies of an absent node may get new homes, seconds: longer than a restart takes.
pub const REHOME_AFTER_SECONDS_MIN: u64 = 10;

/// Settings to change; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// See [`SettingsRecord::rehome_after_seconds`]; `Some(None)`: never.
    pub rehome_after_seconds: Option<Option<u64>>,
    /// See [`SettingsRecord::moves_at_once`]; 1 to [`MOVES_AT_ONCE_MAX`].
    pub moves_at_once: Option<u32>,
    /// See [`SettingsRecord::nearly_full_percent`]; 1 to [`SettingsRecord::full_percent`].
    pub nearly_full_percent: Option<u8>,
    /// See [`SettingsRecord::full_percent`]; up to 100.
    pub full_percent: Option<u8>,
}

fn invalid(name: &str, reason: String) -> MetaError {
    MetaError::InvalidSetting { name: name.to_owned(), reason }
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
    let found = records.find(&Key::Settings)?;
    let before: Option<SettingsRecord> = found.record()?;
    let mut settings = before.clone().unwrap_or_default();
    settings.rehome_after_seconds = change.rehome_after_seconds.unwrap_or(settings.rehome_after_seconds);
    settings.moves_at_once = change.moves_at_once.unwrap_or(settings.moves_at_once);
    settings.nearly_full_percent = change.nearly_full_percent.unwrap_or(settings.nearly_full_percent);
    settings.full_percent = change.full_percent.unwrap_or(settings.full_percent);
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
    use super::super::tests::{run, txn_of};
    use super::*;
    use crate::Memory;

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
    fn of_two_changes_the_later_one_looks_again() {
        let mut memory = Memory::new();
        let late = SettingsChange { moves_at_once: Some(7), ..SettingsChange::default() };
        let late = txn_of(change_settings(&Records::known(memory.model()), late));
        let never = SettingsChange { rehome_after_seconds: Some(None), ..SettingsChange::default() };
        run(&mut memory, |records| change_settings(records, never)).unwrap();
        assert_eq!(memory.run(&late), None);
    }
}
