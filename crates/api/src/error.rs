//! How a request fails.

use serde::{Deserialize, Serialize};

/// The body of every answer whose status is 400 or higher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The kind of error, for programs.
    #[serde(default)]
    pub code: ErrorCode,
    /// What happened, to what. For people: the words change.
    // Older nodes said `error`; during an upgrade they are asked as well.
    #[serde(alias = "error")]
    pub message: String,
    /// What to do about it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal, $status:literal;)+) => {
        /// What kind of error it is, for programs: each has one HTTP status.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $name,)+
            /// A kind that this version does not know, or an error of the node itself. 500.
            #[default]
            #[serde(rename = "internal", other)]
            Internal,
        }

        impl ErrorCode {
            /// All of them.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)+ ErrorCode::Internal];

            /// The HTTP status of an answer with this code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(ErrorCode::$name => $status,)+
                    ErrorCode::Internal => 500,
                }
            }

            /// The code as it stands in the body.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $word,)+
                    ErrorCode::Internal => "internal",
                }
            }
        }
    };
}

codes! {
    /// The path, the query or the body can't be read. 400.
    Malformed = "malformed", 400;
    /// No grant is proved. 401.
    Unauthorized = "unauthorized", 401;
    /// The grant that is proved does not allow it. 403.
    Forbidden = "forbidden", 403;
    /// There is no volume, snapshot, class, node or device of this name. 404.
    NotFound = "not_found", 404;
    /// The API has no such path. 404.
    NoSuchPath = "no_such_path", 404;
    /// The path has no such method. 405.
    NoSuchMethod = "no_such_method", 405;
    /// Something of this name is there already. 409.
    Exists = "exists", 409;
    /// Somebody uses it: clients, volumes or snapshots. 409.
    InUse = "in_use", 409;
    /// As it is now it can't be done: the message says what is in the way. 409.
    Conflict = "conflict", 409;
    /// Others changed the same at the same time, or it was called off; asking again may do. 409.
    TryAgain = "try_again", 409;
    /// The body is too large. 413.
    TooLarge = "too_large", 413;
    /// The body is not said to be JSON. 415.
    NotJson = "not_json", 415;
    /// The request is addressed to a name that the node does not answer to. 421.
    WrongHost = "wrong_host", 421;
    /// It can be read, and a value in it is refused. 422.
    Refused = "refused", 422;
    /// Another node's answer makes no sense. 502.
    BadPeer = "bad_peer", 502;
    /// The node or the configuration does not answer now; asking again may do. 503.
    Unavailable = "unavailable", 503;
    /// The node is starting, and waits for what the message says. 503.
    NotReady = "not_ready", 503;
    /// Something that has to confirm it did not in time; the message says what was done. 504.
    Timeout = "timeout", 504;
    /// The devices have no room, or copies could not be kept apart. 507.
    NoRoom = "no_room", 507;
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_their_words() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.word());
            assert!((400..600).contains(&code.status()));
        }
    }

    #[test]
    fn errors_of_other_versions_are_read() {
        let older: ErrorBody = serde_json::from_str(r#"{"error":"no","hint":"yes"}"#).unwrap();
        let expected = ErrorBody { code: ErrorCode::Internal, message: "no".into(), hint: Some("yes".into()) };
        assert_eq!(older, expected);
        let newer: ErrorBody = serde_json::from_str(r#"{"code":"on_fire","message":"no","since":1}"#).unwrap();
        assert_eq!((newer.code, newer.message.as_str()), (ErrorCode::Internal, "no"));
    }

    #[test]
    fn the_page_for_users_has_every_code() {
        let page = include_str!("../../../docs/api.md");
        for code in ErrorCode::ALL {
            let row = format!("| `{code}` | {} |", code.status());
            assert!(page.contains(&row), "docs/api.md has no row {row}");
        }
        assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), ErrorCode::ALL.len());
    }
}
