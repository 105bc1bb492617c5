//! Whose names the API answers to. A page in a browser can have its own name lead to this node (DNS rebinding), and its
//! requests then count as ones to where the page came from; but they carry that name.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::http::Uri;
use axum::http::header::HOST;
use axum::http::request::Parts;
use azekura_api::ErrorCode;

use super::error::ApiError;

/// Names of the machine itself.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "ip6-localhost", "ip6-loopback"];

/// The names that a request may be addressed to, beside loopbacks and addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<[String]>);

impl Names {
    /// Upper and lower case are one.
    pub(super) fn new(names: &[String]) -> Names {
        Names(names.iter().map(|name| plain(name)).collect())
    }

    /// Whether a request to `authority` (`host` or `host:port`) is meant for this node. An address is never a page's
    /// trick: who has a page there serves this port himself. The port may be another one, as behind a tunnel.
    fn has(&self, authority: &str) -> bool {
        if let Some(bracketed) = authority.strip_prefix('[') {
            return bracketed.split_once(']').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
        }
        let host = plain(authority.split_once(':').map_or(authority, |(host, _)| host));
        host.parse::<IpAddr>().is_ok() || LOOPBACK_NAMES.contains(&host.as_str()) || self.0.contains(&host)
    }
}

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Refuses what is not addressed to this node.
pub(super) fn check(names: &Names, request: &Parts) -> Result<(), ApiError> {
    refusal(names, request).map_or(Ok(()), Err)
}

fn refusal(names: &Names, request: &Parts) -> Option<ApiError> {
    let mut hosts = request.headers.get_all(HOST).iter();
    // RFC 9112, 3.2: exactly one.
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let message = "the request has no header 'Host', or more than one";
        return Some(ApiError::new(ErrorCode::Malformed, message, Some("send one: 'Host: ADDRESS:PORT'".to_owned())));
    };
    let host = host.to_str().unwrap_or_default();
    // Where the request's target has an authority, that counts (RFC 9112, 3.2.2).
    let said = [Some(host), Uri::authority(&request.uri).map(|authority| authority.as_str())];
    let stranger = said.into_iter().flatten().find(|authority| !names.has(authority))?;
    let message = format!("this node does not answer to the name '{}'", stranger.escape_debug());
    let hint = "ask by address or as localhost, or start the node with --api-names and that name".to_owned();
    Some(ApiError::new(ErrorCode::WrongHost, message, Some(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_answers_to_addresses_loopbacks_and_its_names() {
        let names = Names::new(&["Storage.example.org".to_owned()]);
        let own =
            ["127.0.0.1:7180", "10.0.0.1", "[::1]:7180", "[::1]", "localhost:7180", "LOCALHOST.", "ip6-localhost"];
        for host in own.into_iter().chain(["storage.example.org:7180", "STORAGE.example.org."]) {
            assert!(names.has(host), "{host}");
        }
        let others = ["", ":7180", "evil.example", "evil.example:7180", "localhost.evil.example", "[evil]", "[::1"];
        for host in others.into_iter().chain(["127.0.0.1.evil.example:7180", "a@localhost", "example.org"]) {
            assert!(!names.has(host), "{host}");
        }
    }
}
