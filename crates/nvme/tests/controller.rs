//! Enabling, reset, shutdown and the keep-alive timer.
#![allow(clippy::unwrap_used)]

use azekura_nvme::Status;
use azekura_nvme::identify::ControllerType;
use azekura_nvme::keep_alive::KeepAlive;
use azekura_nvme::properties::{CAP, CC, CSTS, Change, Properties, VS};
use proptest::prelude::*;
use std::time::Duration;

/// What Linux sets: entries of 64 and 16 bytes, and EN.
const LINUX: u64 = 0x0046_0001;

fn status(properties: &Properties) -> u64 {
    properties.get(CSTS, false).unwrap()
}

fn enabled() -> Properties {
    let mut properties = Properties::new(ControllerType::Io, 128);
    assert_eq!((status(&properties), properties.is_ready()), (0, false));
    assert_eq!(properties.set(CC, false, LINUX), Ok(Change::Enabled));
    assert_eq!((status(&properties), properties.is_ready()), (1, true));
    properties
}

#[test]
fn what_is_there() {
    let properties = enabled();
    let cap = properties.get(CAP, true).unwrap();
    // MQES, CQR, TO, MPSMIN and the NVM command set.
    assert_eq!((cap & 0xffff, cap >> 16 & 1, cap >> 24 & 0xff), (127, 1, 120));
    assert_eq!((cap >> 48 & 0xf, cap >> 37 & 0xff), (0, 1));
    assert_eq!((properties.get(VS, false), properties.get(CC, false)), (Ok(0x2_0000), Ok(LINUX)));
    for (offset, is_long) in [(CAP, false), (VS, true), (CSTS, true), (0x20, false), (3, false), (u32::MAX, true)] {
        assert_eq!(properties.get(offset, is_long), Err(Status::INVALID_FIELD));
    }
    for (offset, is_long) in [(CC, true), (CAP, true), (VS, false), (CSTS, false), (0x20, false)] {
        assert_eq!(enabled().set(offset, is_long, LINUX), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn a_reset_is_over_when_all_is_quiet() {
    let mut properties = enabled();
    assert_eq!(properties.set(CC, false, LINUX & !1), Ok(Change::Ends));
    assert_eq!((status(&properties), properties.is_ready()), (1, false), "it waits, and takes nothing");
    assert_eq!(properties.set(CC, false, 0), Ok(Change::No), "once");
    properties.quiet();
    assert_eq!(status(&properties), 0);
    assert_eq!(properties.set(CC, false, LINUX), Ok(Change::Enabled));
    // One that does not wait gets a failed controller, which only a reset mends.
    properties.set(CC, false, 0).unwrap();
    assert_eq!(properties.set(CC, false, LINUX), Ok(Change::No));
    assert_eq!((status(&properties) & 2, properties.is_ready()), (2, false));
}

#[test]
fn a_shutdown_is_over_when_all_is_quiet() {
    let mut properties = enabled();
    assert_eq!(properties.set(CC, false, LINUX | 1 << 14), Ok(Change::Ends));
    assert_eq!((status(&properties), properties.is_ready()), (1 | 1 << 2, false));
    properties.quiet();
    assert_eq!((status(&properties), properties.is_ready()), (1 | 2 << 2, false));
    // And a reset after it.
    assert_eq!(properties.set(CC, false, 0), Ok(Change::Ends));
    properties.quiet();
    assert_eq!(status(&properties), 0);
    assert_eq!(properties.set(CC, false, LINUX), Ok(Change::Enabled));
}

#[test]
fn what_is_not_there_can_not_be_enabled() {
    // Other entries, a command set, larger pages, another arbitration.
    for wrong in [0x0045_0001, 0x0056_0001, LINUX | 1 << 4, LINUX | 1 << 7, LINUX | 1 << 11] {
        let mut properties = Properties::new(ControllerType::Io, 128);
        assert_eq!(properties.set(CC, false, wrong), Ok(Change::No));
        assert_eq!((status(&properties), properties.is_ready()), (2, false), "{wrong:#x}");
        properties.set(CC, false, 0).unwrap();
        properties.quiet();
        assert_eq!(properties.set(CC, false, LINUX), Ok(Change::Enabled));
    }
    let mut discovery = Properties::new(ControllerType::Discovery, 32);
    assert_eq!(discovery.set(CC, false, 1), Ok(Change::Enabled), "it has no I/O queues");
    discovery.fail();
    assert_eq!((status(&discovery), discovery.is_ready()), (3, false));
}

proptest! {
    #[test]
    fn every_end_is_owed_one_quiet(steps in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..40)) {
        let (mut properties, mut is_owed) = (Properties::new(ControllerType::Io, 128), false);
        for (is_enabled, shuts_down, is_quiet) in steps {
            let value = (LINUX & !1) | u64::from(is_enabled) | u64::from(shuts_down) << 14;
            let change = properties.set(CC, false, value).unwrap();
            prop_assert!(!(is_owed && change != Change::No), "nothing begins before the last has ended");
            is_owed |= change == Change::Ends;
            prop_assert!(!(is_owed && properties.is_ready()));
            if is_owed && is_quiet {
                properties.quiet();
                is_owed = false;
            }
        }
    }
}

#[test]
fn a_keep_alive_timeout_is_rounded_up() {
    let timer = KeepAlive::new(5_001).unwrap();
    assert_eq!((timer.timeout_ms(), timer.timeout()), (6_000, Some(Duration::from_secs(6))));
    assert_eq!(KeepAlive::new(0).unwrap().timeout(), None);
    assert_eq!(KeepAlive::new(u32::MAX), Err(Status::KEEP_ALIVE_INVALID));
}
