//! Devices in use: whether they take data, and what is wrong with them.

use azekura_base::DeviceId;

use super::volumes::missing;
use crate::{
    DeviceFailure, DeviceRecord, DeviceState, FailureKind, Found, Key, Kind, MetaError, Outcome, Records, Step, Txn,
};

fn record_of(found: &Found, device: DeviceId) -> Result<DeviceRecord, MetaError> {
    found.record()?.ok_or_else(|| missing(Kind::Device, &device.to_string()))
}

/// Says whether devices take data. All of them change, or none.
///
/// # Errors
/// When a device is missing.
pub fn set_device_state(records: &Records<'_>, devices: &[DeviceId], state: DeviceState) -> Outcome<()> {
    let keys: Vec<Key<'_>> = devices.iter().map(|device| Key::Device(*device)).collect();
    let (mut txn, mut since) = (Txn::new(), 0);
    for (device, found) in devices.iter().zip(records.find_each(&keys)?) {
        let record = record_of(&found, *device)?;
        let mut changed = DeviceRecord { state, ..record.clone() };
        if state == DeviceState::Up && changed.is_served() {
            changed.failure = None; // Somebody wants it used in spite of its errors.
        }
        since = since.max(found.mod_revision());
        if changed != record {
            txn = txn.when_as(&found).put(&found.key, &changed);
        }
    }
    Ok(if txn.writes().is_empty() { Step::Done((), since) } else { Step::Run(txn, ()) })
}

/// Notes what is wrong with a device, or that nothing is. That a device has had too many errors stays known when its
/// store is opened again; and of a device that does not serve any more, errors are no news, whichever comes first.
///
/// # Errors
/// When the device is missing.
pub fn note_device_failure(records: &Records<'_>, device: DeviceId, failure: Option<&DeviceFailure>) -> Outcome<()> {
    let found = records.find(&Key::Device(device))?;
    let record = record_of(&found, device)?;
    let stays = match failure.map(|failure| failure.kind) {
        None => record.is_served(),
        Some(FailureKind::Failing) => !record.is_served(),
        Some(_) => false,
    };
    let told = |failure: &DeviceFailure| (failure.kind, failure.reason.clone());
    if stays || record.failure.as_ref().map(told) == failure.map(told) {
        return Ok(Step::Done((), found.mod_revision()));
    }
    let changed = DeviceRecord { failure: failure.cloned(), ..record };
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &changed), ()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, run, txn_of};
    use super::*;
    use crate::Memory;

    fn failure(kind: FailureKind, since: &str) -> DeviceFailure {
        DeviceFailure { kind, reason: "errors".into(), since: since.into() }
    }

    fn note(memory: &mut Memory, failure: Option<&DeviceFailure>) -> Option<DeviceFailure> {
        run(memory, |records| note_device_failure(records, DeviceId(1), failure)).unwrap();
        memory.model().devices[&DeviceId(1)].failure.clone()
    }

    fn set(memory: &mut Memory, devices: &[u32], state: DeviceState) -> Result<Vec<DeviceState>, MetaError> {
        let devices: Vec<DeviceId> = devices.iter().copied().map(DeviceId).collect();
        run(memory, |records| set_device_state(records, &devices, state))?;
        Ok(memory.model().devices.values().map(|device| device.state).collect())
    }

    #[test]
    fn all_devices_change_or_none() {
        use DeviceState::{Draining, Up};
        let mut memory = cluster();
        assert!(matches!(set(&mut memory, &[1, 9], Draining), Err(MetaError::NotFound { .. })));
        assert_eq!(set(&mut memory, &[], Draining).unwrap(), [Up, Up]);
        assert_eq!(set(&mut memory, &[1, 2], Draining).unwrap(), [Draining, Draining]);
        let revision = memory.model().revision;
        assert_eq!(set(&mut memory, &[2], Draining).unwrap(), [Draining, Draining]);
        assert_eq!(memory.model().revision, revision, "nothing has changed");
        let both = [DeviceId(1), DeviceId(2)];
        let late = txn_of(set_device_state(&Records::known(memory.model()), &both, Up));
        note(&mut memory, Some(&failure(FailureKind::Lost, "")));
        assert_eq!(memory.run(&late), None, "one has failed meanwhile");
    }

    #[test]
    fn a_failure_is_noted_once_and_errors_stay_known() {
        let mut memory = cluster();
        let failing = failure(FailureKind::Failing, "then");
        assert_eq!(note(&mut memory, Some(&failing)), Some(failing.clone()));
        assert_eq!(note(&mut memory, Some(&failure(FailureKind::Failing, "later"))), Some(failing.clone()));
        assert_eq!(note(&mut memory, None), Some(failing), "its store is opened again");
        let stopped = failure(FailureKind::Stopped, "later");
        assert_eq!(note(&mut memory, Some(&stopped)), Some(stopped.clone()));
        assert_eq!(note(&mut memory, Some(&failure(FailureKind::Failing, "late"))), Some(stopped));
        assert_eq!(note(&mut memory, None), None, "it serves again");
    }

    #[test]
    fn who_wants_a_device_used_forgives_errors_but_not_a_loss() {
        let mut memory = cluster();
        let of = |memory: &Memory| memory.model().devices[&DeviceId(1)].failure.as_ref().map(|failure| failure.kind);
        for (kind, after) in [(FailureKind::Failing, None), (FailureKind::Lost, Some(FailureKind::Lost))] {
            note(&mut memory, Some(&failure(kind, "")));
            set(&mut memory, &[1], DeviceState::Draining).unwrap();
            assert_eq!(of(&memory), Some(kind));
            set(&mut memory, &[1], DeviceState::Up).unwrap();
            assert_eq!(of(&memory), after);
        }
    }
}
