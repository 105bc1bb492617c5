//! How those who serve learn that the server stops.

use tokio::sync::watch;

/// Tells all that it is time to stop; so does its end.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

/// Waits for the server to stop.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Receiver<bool>);

/// Both ends.
#[must_use]
pub fn channel() -> (Stop, Stopping) {
    let (stop, stopping) = watch::channel(false);
    (Stop(stop), Stopping(stopping))
}

impl Stop {
    /// It is time to stop.
    pub fn tell(&self) {
        self.0.send_replace(true);
    }
}

impl Stopping {
    /// Waits until the server is told to stop, or dropped.
    pub async fn told(&mut self) {
        drop(self.0.wait_for(|stop| *stop).await);
    }
}
