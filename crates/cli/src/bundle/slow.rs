//! What the command is at, on standard error, once it has taken longer than people wait without a word.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Progress;

/// So long nothing is said.
const QUIET: Duration = Duration::from_secs(2);

/// Tells what the command is at, on a thread of its own: the one that works may be waiting for an answer.
#[derive(Debug)]
pub struct Slow {
    tell: Sender<String>,
    thread: JoinHandle<()>,
}

impl Slow {
    /// Begins the time that is waited for.
    pub fn new() -> Slow {
        let (tell, told) = channel::<String>();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut at = String::new();
            loop {
                let quiet = QUIET.saturating_sub(began.elapsed());
                match told.recv_timeout(quiet) {
                    Ok(next) => at = next,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            let mut progress = Progress::new();
            loop {
                progress.tell(format!("{at} ..."));
                match told.recv() {
                    Ok(next) => at = next,
                    Err(_) => return,
                }
            }
        });
        Slow { tell, thread }
    }

    /// From now on it is at this.
    pub fn tell(&self, what: &str) {
        drop(self.tell.send(what.to_owned()));
    }

    /// What comes next is the outcome.
    pub fn end(self) {
        drop(self.tell);
        drop(self.thread.join());
    }
}
