//! What commands print, and how they fail.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use azekura_client::ClientError;
use serde::Serialize;

/// A failed command: what happened, to what, and what to do.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hint: Option<String>,
}

impl CliError {
    /// What happened.
    pub fn new(message: impl Into<String>) -> CliError {
        CliError { message: message.into(), hint: None }
    }

    /// It failed after something was done already.
    #[must_use]
    pub fn after(self, done: &str) -> CliError {
        CliError { message: format!("{} ({done})", self.message), ..self }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> CliError {
        CliError { hint: Some(hint.into()), ..self }
    }
}

impl CliError {
    /// As a JSON object.
    pub fn json(&self) -> String {
        match &self.hint {
            Some(hint) => serde_json::json!({ "error": self.message, "hint": hint }).to_string(),
            None => serde_json::json!({ "error": self.message }).to_string(),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        let hint = match &error {
            ClientError::Url { .. } => Some("give --api http://HOST:PORT, for example http://127.0.0.1:7180"),
            ClientError::Unreachable { .. } => Some(
                "is a node running there? 'azekura node --help' tells how to start one; --api URL or AZEKURA_API names the \
                 API of another node",
            ),
            ClientError::Foreign { .. } => Some("is this the REST API of an azekura node of this version?"),
            _ => error.hint(),
        };
        CliError { message: error.to_string(), hint: hint.map(str::to_owned) }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Prints text. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> Result<ExitCode, CliError> {
    print_on(text).map(|_| ExitCode::SUCCESS)
}

/// Prints text, and says whether somebody goes on reading.
pub fn print_on(text: &str) -> Result<bool, CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::new(format!("can't write to standard output: {error}"))),
    }
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<ExitCode, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::new(error.to_string()))?;
    print(&format!("{text}\n"))
}
