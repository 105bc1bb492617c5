//! What is said to a running qemu-storage-daemon (QEMU's QMP).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{AttachError, Outcome};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection.
#[derive(Debug)]
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
}

fn failed(error: &dyn std::fmt::Display) -> AttachError {
    AttachError::internal(format!("qemu-storage-daemon does not answer: {error}"))
}

impl Qmp {
    /// Connects, and gets past the greeting.
    pub(crate) fn connect(socket: &Path) -> Outcome<Qmp> {
        let stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
        let limited = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        limited.map_err(|error| failed(&error))?;
        let mut qmp = Qmp { reader: BufReader::new(stream) };
        qmp.line()?;
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Outcome<Value> {
        let mut text = String::new();
        self.reader.read_line(&mut text).map_err(|error| failed(&error))?;
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }

    /// Does something, and answers what it returns.
    pub(crate) fn ask(&mut self, command: &str, arguments: &Value) -> Outcome<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(|error| failed(&error))?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(AttachError::internal(format!("qemu-storage-daemon refuses {command}: {error}")));
            }
            // Else an event, which nobody waits for.
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
        }
    }
}
