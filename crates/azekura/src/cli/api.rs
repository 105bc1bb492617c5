//! The REST API's client.

use std::time::Duration;

use azekura_control::api::{ErrorBody, STALE_HEADER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::CliError;

/// Longest wait for an answer: longer than any handler's own patience.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer accepted, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Asks one node.
#[derive(Debug)]
pub struct ApiClient {
    agent: Agent,
    url: String,
}

impl ApiClient {
    /// A client of the API at this URL (`http://host:port`; the scheme may be left out).
    pub fn new(url: &str) -> Result<ApiClient, CliError> {
        let trimmed = url.trim().trim_end_matches('/');
        let invalid = |reason: &str| {
            CliError::new(format!("'{url}' is not the URL of an API: {reason}"))
                .hint("give --api http://HOST:PORT, for example http://127.0.0.1:7180")
        };
        if trimmed.is_empty() {
            return Err(invalid("it is empty"));
        }
        if trimmed.starts_with("https://") {
            return Err(invalid("TLS is not supported yet"));
        }
        let url = if trimmed.contains("://") { trimmed.to_owned() } else { format!("http://{trimmed}") };
        if !url.starts_with("http://") || url.parse::<ureq::http::Uri>().is_err() {
            return Err(invalid("it can't be read"));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            .user_agent(concat!("azekura/", env!("CARGO_PKG_VERSION")));
        Ok(ApiClient { agent: config.build().into(), url })
    }

    /// The API's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// GETs a path.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.read(self.agent.get(self.at(path)).call())
    }

    /// POSTs a body to a path.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        self.read(self.agent.post(self.at(path)).send_json(body))
    }

    /// DELETEs a path.
    pub fn delete(&self, path: &str) -> Result<(), CliError> {
        self.check(self.agent.delete(self.at(path)).call()).map(|_| ())
    }

    /// DELETEs a path, and gives the answer.
    pub fn delete_for<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.read(self.agent.delete(self.at(path)).call())
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The answer, if it is not an error.
    fn check(&self, outcome: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, CliError> {
        let mut response = outcome.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if let Some(stale) = response.headers().get(STALE_HEADER).and_then(|value| value.to_str().ok()) {
            eprintln!("note: {stale}");
        }
        if status.is_success() {
            return Ok(response);
        }
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        Err(match serde_json::from_str::<ErrorBody>(&body) {
            Ok(ErrorBody { error, hint: Some(hint) }) => CliError::new(error).hint(hint),
            Ok(ErrorBody { error, hint: None }) => CliError::new(error),
            Err(_) => {
                CliError::new(format!("{} answered {status}; is this the REST API of an azekura node?", self.url))
            }
        })
    }

    fn read<T: DeserializeOwned>(&self, outcome: Result<Response<Body>, ureq::Error>) -> Result<T, CliError> {
        let mut response = self.check(outcome)?;
        response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_json().map_err(|error| {
            CliError::new(format!("the answer of {} can't be read: {error}", self.url))
                .hint("is this the REST API of an azekura node of this version?")
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> CliError {
        CliError::new(format!("no answer from {}: {error}", self.url)).hint(
            "is a node running there? 'azekura node --help' tells how to start one; --api URL or AZEKURA_API names the API \
             of another node",
        )
    }
}

/// A name as a segment of a URL's path (RFC 3986, section 2.1).
pub fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"-_~".contains(&byte)
            || (byte == b'.' && !name.trim_matches('.').is_empty())
        {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (given, url) in [
            ("http://127.0.0.1:7180/", "http://127.0.0.1:7180"),
            ("127.0.0.1:7180", "http://127.0.0.1:7180"),
            ("http://[::1]:7180", "http://[::1]:7180"),
        ] {
            assert_eq!(ApiClient::new(given).unwrap().url(), url);
        }
        for bad in ["", "https://127.0.0.1:7180", "ftp://x", "http://a b"] {
            assert!(ApiClient::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn segments() {
        assert_eq!(segment("vol-1.x_y"), "vol-1.x_y");
        assert_eq!(segment("a/b c\nä"), "a%2Fb%20c%0A%C3%A4");
        assert_eq!(segment(".."), "%2E%2E");
    }
}
