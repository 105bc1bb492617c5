//! Waiting for a predecessor's hold on a port or device to end.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Time to wait. The kernel ends a killed process's io_uring, and with it the hold on its ports and locked files, a
/// moment after the process itself is gone; on a busy machine more than a second after.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between the first two attempts; each pause is twice as long as the one before, up to the longest. What is held
/// is looked at each time, and a living holder notices that.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(320);

/// The result of `attempt`, which is made again for a while as long as its error `is_held`.
pub(crate) fn patiently<T, E>(is_held: impl Fn(&E) -> bool, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let (begin, mut pause) = (Instant::now(), PAUSE);
    loop {
        match attempt() {
            Err(error) if is_held(&error) && begin.elapsed() < PATIENCE => {
                sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
}
