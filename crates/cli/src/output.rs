//! What commands print, and how they fail.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use azekura_api::ErrorCode;
use azekura_client::ClientError;
use serde::Serialize;

/// A failed command: what happened, to what, and what to do.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hint: Option<String>,
    failure: Failure,
}

/// Why a command has failed, for scripts: a word that its error has as JSON, and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    word: &'static str,
    exit: u8,
}

impl Failure {
    /// It failed; the message says how.
    const FAILED: Failure = Failure { word: "failed", exit: 1 };
    /// The words of the command line can't be read, and nothing was done.
    const USAGE: Failure = Failure { word: "usage", exit: 2 };
    /// Nobody answers there.
    const UNREACHABLE: Failure = Failure { word: "unreachable", exit: 6 };
    /// Who answers has not proved to be one of the cluster, or can't be asked to.
    const UNTRUSTED: Failure = Failure { word: "untrusted", exit: 5 };
    /// Who answers does not speak this API.
    const FOREIGN: Failure = Failure { word: "foreign", exit: 1 };

    /// What a node says.
    fn of(code: ErrorCode) -> Failure {
        use ErrorCode::*;
        let exit = match code {
            NotFound => 3,
            Exists | InUse | Conflict | Refused | NoRoom => 4,
            Unauthorized | Forbidden => 5,
            TryAgain | Unavailable | NotReady | Timeout | BadPeer => 6,
            Malformed | NoSuchPath | NoSuchMethod | TooLarge | NotJson | WrongHost | Internal => 1,
        };
        Failure { word: code.word(), exit }
    }
}

/// What the exit codes mean, for people.
pub const EXIT_CODES: &str = "Exit codes:\n  \
    0   done; of a command that looks: all is well\n  \
    1   it failed, or what was looked at is not well\n  \
    2   the command line can't be read; nothing was done\n  \
    3   there is nothing of that name\n  \
    4   it can't be done as things are: a name is taken, a volume in use, no room\n  \
    5   not allowed, or not certain that this is the cluster\n  \
    6   nobody answers, or not in time: asking again may do\n\n\
    With --json an error is an object on standard error: error, hint and code.";

impl CliError {
    /// What happened.
    pub fn new(message: impl Into<String>) -> CliError {
        CliError { message: message.into(), hint: None, failure: Failure::FAILED }
    }

    /// The words of the command line can't be read, for this reason.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError { failure: Failure::USAGE, ..CliError::new(message) }
    }

    /// There is nothing of that name, as was found out here.
    pub fn missing(message: impl Into<String>) -> CliError {
        CliError { failure: Failure::of(ErrorCode::NotFound), ..CliError::new(message) }
    }

    /// Nobody answers, for these reasons.
    pub fn unreachable(reasons: impl Into<String>) -> CliError {
        let hint = "is a node running there? --api or AZEKURA_API name the APIs of other nodes, with commas between";
        CliError { failure: Failure::UNREACHABLE, ..CliError::new(reasons) }.hint(hint)
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
    /// What happened, without what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        let (error, code) = (&self.message, self.failure.word);
        match &self.hint {
            Some(hint) => serde_json::json!({ "error": error, "code": code, "hint": hint }).to_string(),
            None => serde_json::json!({ "error": error, "code": code }).to_string(),
        }
    }

    /// What the process ends with, as `azekura --help` says.
    pub fn exit_code(&self) -> ExitCode {
        self.failure.exit.into()
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
        let failure = match &error {
            ClientError::Failed(body) => Failure::of(body.code),
            ClientError::Unreachable { .. } => Failure::UNREACHABLE,
            ClientError::Stranger { .. } | ClientError::Unknown { .. } | ClientError::InClear { .. } => {
                Failure::UNTRUSTED
            }
            ClientError::Foreign { .. } => Failure::FOREIGN,
            ClientError::Url { .. } | ClientError::Request(_) | ClientError::Certificate(_) => Failure::FAILED,
        };
        CliError { message: error.to_string(), hint: hint.map(str::to_owned), failure }
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

#[cfg(test)]
mod tests {
    use azekura_api::ErrorBody;

    use super::*;

    /// Scripts rely on these: none may change.
    #[test]
    fn codes_are_what_the_help_says() {
        let of = |wanted: u8| {
            let codes = ErrorCode::ALL.iter().filter(|code| Failure::of(**code).exit == wanted);
            codes.map(|code| code.word()).collect::<Vec<_>>()
        };
        assert_eq!(of(3), ["not_found"]);
        assert_eq!(of(4), ["exists", "in_use", "conflict", "refused", "no_room"]);
        assert_eq!(of(5), ["unauthorized", "forbidden"]);
        assert_eq!(of(6), ["try_again", "bad_peer", "unavailable", "not_ready", "timeout"]);
        assert!(of(0).is_empty() && of(2).is_empty());
        for exit in 0..=6 {
            assert!(EXIT_CODES.contains(&format!("  {exit}   ")), "{exit}");
        }
    }

    #[test]
    fn an_error_as_json_has_a_code() {
        let nobody = ClientError::Unreachable { url: "http://a".to_owned(), reason: "refused".to_owned() };
        let gone = ErrorBody { code: ErrorCode::NotFound, message: "no volume".to_owned(), hint: None };
        for (error, code, has_hint) in [
            (CliError::from(nobody), "unreachable", true),
            (CliError::from(ClientError::Failed(gone)), "not_found", false),
            (CliError::new("odd").hint("look"), "failed", true),
            (CliError::usage("what"), "usage", false),
        ] {
            let value: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
            assert_eq!((value["code"].as_str(), value["hint"].is_string()), (Some(code), has_hint));
        }
    }
}
