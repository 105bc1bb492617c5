//! Servers that are not the cluster's, such as that of Kubernetes: known by their operators' authorities and by their
//! names.

use std::fmt;

use azekura_transport::https::outside;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};

use super::secured::{Secured, Whom};
use super::{ANSWER_BYTES_MAX, CONNECT_TIMEOUT, ClientError, TIMEOUT, is_here};

/// Asks one server over HTTP, and follows it nowhere else.
pub struct Outside {
    agent: Agent,
    url: String,
    proof: Option<String>,
}

/// Without the token.
impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What a server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideAnswer {
    /// The status of HTTP (RFC 9110, 15).
    pub status: u16,
    /// The body, whole: at most 64 MiB.
    pub body: Vec<u8>,
}

impl Outside {
    /// A server at `https://HOST:PORT` whose certificate one of these authorities has signed (PEM), or at `http://` on
    /// this machine. It is shown `token` with each request (RFC 6750).
    ///
    /// # Errors
    /// When the URL or the authorities can't be read, or others could read what is asked on its way.
    pub fn new(url: &str, authorities: Option<&[u8]>, token: Option<&str>) -> Result<Outside, ClientError> {
        let url = url.trim().trim_end_matches('/').to_owned();
        let invalid = |reason| ClientError::Url { url: url.clone(), reason };
        let parsed: ureq::http::Uri = url.parse().map_err(|_| invalid("it can't be read"))?;
        if parsed.host().is_none_or(str::is_empty) || parsed.path() != "/" && !parsed.path().is_empty() {
            return Err(invalid("give https://HOST:PORT"));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            // A token is for this server alone.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("azekura/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = match (parsed.scheme_str(), authorities) {
            (Some("https"), Some(pem)) => {
                let secured = outside(pem, None, &[]).map_err(|error| ClientError::Certificate(error.to_string()))?;
                let connector = TcpConnector::default().chain(Secured { config: secured, whom: Whom::Named });
                Agent::with_parts(config, connector, DefaultResolver::default())
            }
            (Some("https"), None) => return Err(ClientError::Unknown { url }),
            (Some("http"), _) if is_here(&url) => config.into(),
            (Some("http"), _) => return Err(ClientError::InClear { url }),
            _ => return Err(invalid("give https://HOST:PORT")),
        };
        let proof = token.map(|token| format!("Bearer {}", token.trim()));
        Ok(Outside { agent, url, proof })
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the server answers to GET of this path with its query, whatever its status.
    ///
    /// # Errors
    /// When there is no answer, or not all of one.
    pub fn get(&self, target: &str) -> Result<OutsideAnswer, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable { url: self.url.clone(), reason };
        let request = self.agent.get(format!("{}{target}", self.url)).header("Accept", "application/json");
        let request = match &self.proof {
            Some(proof) => request.header("Authorization", proof),
            None => request,
        };
        let mut response = request.call().map_err(|error| unreachable(error.to_string()))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| unreachable(format!("its answer can't be read: {error}")))?;
        Ok(OutsideAnswer { status, body })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_read_on_its_way_is_not_asked() {
        assert!(Outside::new("http://127.0.0.1:8001/", None, None).is_ok());
        assert!(Outside::new("http://[::1]:8001", None, Some("t")).is_ok());
        let refused = |url: &str| Outside::new(url, None, None).unwrap_err();
        assert!(matches!(refused("http://10.0.0.1:6443"), ClientError::InClear { .. }));
        assert!(matches!(refused("https://10.0.0.1:6443"), ClientError::Unknown { .. }));
        for odd in ["", "10.0.0.1:6443", "ftp://localhost", "https://", "http://localhost/path"] {
            assert!(matches!(refused(odd), ClientError::Url { .. }), "{odd}");
        }
        let none = Outside::new("https://10.0.0.1:6443", Some(b"nothing"), None).unwrap_err();
        assert!(matches!(none, ClientError::Certificate(_)));
        assert!(!format!("{:?}", Outside::new("http://localhost:1", None, Some("seekrit")).unwrap()).contains("seek"));
    }
}
