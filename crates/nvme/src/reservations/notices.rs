//! The Reservation Notification log of a controller (Base sections 5.16.1 and 8.19): what others have done to its
//! host's registration, one page each, and the event that says that there are pages.

use crate::fields::put_at;
use azekura_model::NoticeKind;
use std::collections::VecDeque;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 64;
/// Pages that are kept. When there are more, the oldest ones go, and the count of the next one tells of that.
pub const PAGES_MAX: usize = 64;
/// Dword 0 of the event (Base section 5.2): I/O Command Specific Status, Reservation Log Page Available, and the page.
pub const EVENT: u64 = 6 | (crate::log::RESERVATIONS as u64) << 16;
/// FID of Reservation Notification Mask (Base section 5.27.1).
pub const MASK: u8 = 0x82;
/// FID of Reservation Persistence (Base section 5.27.1).
pub const PERSISTENCE: u8 = 0x83;

/// Reservation Notification Log Page Type, which is also the bit of the mask.
fn page_type(notice: NoticeKind) -> u8 {
    match notice {
        NoticeKind::RegistrationsPreempted => 1,
        NoticeKind::ReservationsReleased => 2,
        NoticeKind::ReservationsPreempted => 3,
    }
}

/// The log.
#[derive(Debug, Default)]
pub struct Notifications {
    /// Pages that have not been read: their counts, and what they tell.
    pages: VecDeque<(u64, NoticeKind)>,
    /// Log Page Count of the last one.
    count: u64,
    /// What the host does not want to hear.
    mask: u32,
    /// The host has heard that there are pages, and has not read one since.
    has_heard: bool,
}

impl Notifications {
    /// The mask: bit 1 for lost registrations, bit 2 for reservations that were released, bit 3 for cleared ones.
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Sets it. What is there already stays.
    pub fn set_mask(&mut self, mask: u32) {
        self.mask = mask & 0xe;
    }

    /// Something has happened.
    pub fn push(&mut self, notice: NoticeKind) {
        if self.mask & 1 << page_type(notice) != 0 {
            return;
        }
        // A count of 0 is that of an empty page.
        self.count = self.count.wrapping_add(1).max(1);
        if self.pages.len() >= PAGES_MAX {
            self.pages.pop_front();
        }
        self.pages.push_back((self.count, notice));
    }

    /// Whether the host is to be sent [`EVENT`]; it counts as sent then.
    pub fn take_event(&mut self) -> bool {
        let is_due = self.is_event_due();
        self.has_heard |= is_due;
        is_due
    }

    /// Whether it is to be sent.
    #[must_use]
    pub fn is_event_due(&self) -> bool {
        !self.has_heard && !self.pages.is_empty()
    }

    /// The oldest page (Base section 5.16.1), or one that says that there is none.
    #[must_use]
    pub fn page(&self, namespace: u32) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_SIZE];
        if let Some((count, notice)) = self.pages.front() {
            put_at(&mut bytes, 0, &count.to_le_bytes());
            bytes[8] = page_type(*notice);
            // How many there are beside this one.
            bytes[9] = u8::try_from(self.pages.len() - 1).unwrap_or(u8::MAX);
            put_at(&mut bytes, 12, &namespace.to_le_bytes());
        }
        bytes
    }

    /// The oldest page was read, and the event with it. Of the next one the host hears anew.
    pub fn was_read(&mut self) {
        self.pages.pop_front();
        self.has_heard = false;
    }

    /// The controller is reset.
    pub fn reset(&mut self) {
        *self = Notifications::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_as_the_standard_has_them() {
        let mut log = Notifications::default();
        assert_eq!((log.page(1), log.take_event()), (vec![0; 64], false), "there is none");
        log.push(NoticeKind::RegistrationsPreempted);
        log.push(NoticeKind::ReservationsReleased);
        assert!(log.take_event() && !log.take_event(), "once until it is read");
        let first = log.page(0x0403_0201);
        assert_eq!(first[..16], [1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 2, 3, 4]);
        log.was_read();
        assert!(log.take_event(), "there is another one");
        assert_eq!(log.page(1)[..10], [2, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        log.was_read();
        assert_eq!((log.page(1), log.take_event()), (vec![0; 64], false));
        assert_eq!(EVENT, 0x0080_0006);
    }

    #[test]
    fn what_is_masked_is_not_told() {
        let all =
            [NoticeKind::RegistrationsPreempted, NoticeKind::ReservationsReleased, NoticeKind::ReservationsPreempted];
        for (bit, masked) in all.iter().enumerate() {
            let mut log = Notifications::default();
            log.set_mask(2 << bit | !0xf);
            assert_eq!(log.mask(), 2 << bit, "other bits are reserved");
            all.iter().for_each(|notice| log.push(*notice));
            assert_eq!((log.pages.len(), log.pages.iter().any(|(_, notice)| notice == masked)), (2, false));
            log.reset();
            assert_eq!((log.mask(), log.pages.len(), log.count), (0, 0, 0));
        }
    }

    proptest! {
        /// However many there are: the log is bounded, counts ascend, and whoever reads after each event reads all that
        /// is kept.
        #[test]
        fn a_host_reads_all_that_is_kept(steps in proptest::collection::vec(0..3_u8, 0..400)) {
            let (mut log, mut last, mut pushed) = (Notifications::default(), 0, 0_u64);
            let mut is_due = false;
            for step in steps {
                if step < 2 {
                    log.push(NoticeKind::ReservationsReleased);
                    pushed += 1;
                } else if is_due {
                    let count = u64::from(log.page(1)[0]) | u64::from(log.page(1)[1]) << 8;
                    prop_assert!(count > last && count + PAGES_MAX as u64 > pushed);
                    last = count;
                    log.was_read();
                    is_due = false;
                }
                prop_assert!(log.pages.len() <= PAGES_MAX);
                is_due |= log.take_event();
                prop_assert_eq!(is_due, !log.pages.is_empty());
            }
        }
    }
}
