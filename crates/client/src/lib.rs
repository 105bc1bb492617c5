//! A client of the REST API: it asks one node, and waits for the answer.
//!
//! ```no_run
//! use azekura_api::NoQuery;
//! use azekura_api::endpoint::VolumeShow;
//!
//! let client = azekura_client::Client::new("127.0.0.1:7180")?;
//! let volume = client.ask::<VolumeShow>(["vol1".to_owned()], &NoQuery {})?;
//! println!("{} bytes", volume.size_bytes);
//! # Ok::<(), azekura_client::ClientError>(())
//! ```
//!
//! Nothing is asked again by itself: of most requests nobody can know whether they were carried out. Whoever waits for
//! something asks again.

use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use azekura_api::endpoint::{Answer as _, Health, Watch};
use azekura_api::{
    Endpoint, ErrorBody, ErrorCode, Method, NEXT_HEADER, NoBody, NoQuery, PAGE_MAX, PageQuery, STALE_HEADER, WatchQuery,
};
use azekura_base::Token;
pub use azekura_transport::NodeKey;
use azekura_transport::https::trusting;
pub use azekura_transport::https::{Trust, fingerprint, key_of_pem};
pub use events::{EVENT_BYTES_MAX, Event, EventReader};
pub use outside::{Outside, OutsideAnswer};
use ureq::config::Config;
use ureq::http::Response;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};
use ureq::{Agent, Body, RequestBuilder};

mod events;
mod local;
mod outside;
mod secured;

/// How a node's own socket is named instead of a URL.
const LOCAL: &str = "unix:";
/// What is asked there: the name counts for nothing.
const LOCAL_URL: &str = "http://localhost";

/// Longest wait for an answer: longer than any handler's own patience.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A stream of events is read for so long. A node whose machine has died says nothing of that; one that lives sends
/// something every 15 s, but to know for how long nothing has come takes more than the library tells.
const WATCH_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest answer accepted, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What the API wants to be told about the body of whatever changes something, also where there is none.
const JSON: &str = "application/json";

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The text is not the URL of an API.
    Url {
        /// The text.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The request can't be written.
    Request(String),
    /// Nobody answers.
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why not.
        reason: String,
    },
    /// Whoever answers has not proved to be a node of the cluster.
    Stranger {
        /// Who was asked.
        url: String,
        /// What is wrong with the proof.
        reason: String,
    },
    /// Nobody has said by which authority the cluster is known.
    Unknown {
        /// Who was to be asked.
        url: String,
    },
    /// A token or a secret would be read by others on its way.
    InClear {
        /// Who was to be asked.
        url: String,
    },
    /// The authority's certificate can't be read.
    Certificate(String),
    /// The node says why it failed.
    Failed(ErrorBody),
    /// The answer is not one of this API.
    Foreign {
        /// Who was asked.
        url: String,
        /// What is odd about the answer.
        reason: String,
    },
}

impl ClientError {
    /// The kind of error, if the node has said it.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Failed(body) => Some(body.code),
            _ => None,
        }
    }

    /// What to do about it, for people; nothing where it depends on how the client was told whom to ask.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            ClientError::Failed(body) => body.hint.as_deref(),
            ClientError::Stranger { .. } => Some(
                "is it the right address? If the cluster's authority was replaced, log in anew: 'azekura ca show' on a \
                 node's machine tells its fingerprint",
            ),
            ClientError::Unknown { .. } => Some(
                "log in with 'azekura login --ca-fingerprint FINGERPRINT', which 'azekura ca show' tells on a node's \
                 machine, or name a file with its certificate in AZEKURA_CA_FILE",
            ),
            ClientError::InClear { .. } => Some("ask over https://: the same port speaks both"),
            _ => None,
        }
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Url { url, reason } => write!(f, "'{url}' is not the URL of an API: {reason}"),
            ClientError::Request(reason) => write!(f, "the request can't be written: {reason}"),
            ClientError::Unreachable { url, reason } => write!(f, "no answer from {url}: {reason}"),
            ClientError::Stranger { url, reason } => {
                write!(f, "{url} has not proved to be a node of this cluster: {reason}")
            }
            ClientError::Unknown { url } => {
                write!(f, "nobody has said by which certificate authority the cluster at {url} is known")
            }
            ClientError::InClear { url } => {
                write!(f, "tokens and secrets are not sent to {url}: everybody on its way could read it")
            }
            ClientError::Certificate(reason) => write!(f, "the authority's certificate can't be used: {reason}"),
            ClientError::Failed(body) => f.write_str(&body.message),
            ClientError::Foreign { url, reason } => write!(f, "{url} {reason}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// Whether a URL names this machine.
fn is_here(url: &str) -> bool {
    let Ok(url) = url.parse::<ureq::http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn config() -> Config {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .http_status_as_error(false)
        .user_agent(concat!("azekura/", env!("CARGO_PKG_VERSION")));
    config.build()
}

/// Asks one node.
pub struct Client {
    agent: Agent,
    url: String,
    /// What stands before the paths.
    base: String,
    /// By whom nodes are known, where it is asked over HTTPS.
    trusts: bool,
    /// The header that proves a grant.
    proof: Option<String>,
    /// Where its token is from, in words.
    token_from: String,
    /// Told when an answer may be out of date.
    stale: fn(&str),
}

/// Without what proves a grant.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the API at this URL (`http://host:port`; the scheme may be left out; `https://host:port`, together
    /// with [`Client::trusting`]), or at a node's own socket (`unix:PATH`).
    ///
    /// # Errors
    /// When the text is no such URL.
    pub fn new(url: &str) -> Result<Client, ClientError> {
        let trimmed = url.trim().trim_end_matches('/');
        let invalid = |reason| ClientError::Url { url: url.to_owned(), reason };
        if trimmed.is_empty() {
            return Err(invalid("it is empty"));
        }
        if let Some(path) = trimmed.strip_prefix(LOCAL) {
            let agent = Agent::with_parts(config(), local::Socket(PathBuf::from(path)), local::NoNames);
            let (url, base) = (trimmed.to_owned(), LOCAL_URL.to_owned());
            return Ok(Client::showing_nothing(agent, url, base));
        }
        let url = if trimmed.contains("://") { trimmed.to_owned() } else { format!("http://{trimmed}") };
        let known = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        if !known || url.parse::<ureq::http::Uri>().is_err() {
            return Err(invalid("it can't be read"));
        }
        let base = url.clone();
        Ok(Client::showing_nothing(config().into(), url, base))
    }

    fn showing_nothing(agent: Agent, url: String, base: String) -> Client {
        let token_from = "that was shown".to_owned();
        Client { agent, url, base, trusts: false, proof: None, token_from, stale: |_| {} }
    }

    /// Knows the nodes by this authority, where they are asked over HTTPS.
    ///
    /// # Errors
    /// When the authority's certificate can't be read.
    pub fn trusting(self, trust: &Trust) -> Result<Client, ClientError> {
        if !self.is_secured() {
            return Ok(self);
        }
        let secured = trusting(trust).map_err(|error| ClientError::Certificate(error.to_string()))?;
        let secured = secured::Secured { config: secured, whom: secured::Whom::ANode };
        let connector = TcpConnector::default().chain(secured);
        let agent = Agent::with_parts(config(), connector, DefaultResolver::default());
        Ok(Client { agent, trusts: true, ..self })
    }

    /// Shows this token with each request.
    ///
    /// # Errors
    /// When others could read it on its way: to another machine it goes over HTTPS alone.
    pub fn with_token(self, token: &Token) -> Result<Client, ClientError> {
        if !self.is_private() {
            return Err(ClientError::InClear { url: self.url });
        }
        Ok(Client { proof: Some(format!("Bearer {}", token.reveal())), ..self })
    }

    /// Says where the token is from, for whoever reads that it is refused: such as `in FILE`.
    #[must_use]
    pub fn with_token_from(self, from: String) -> Client {
        Client { token_from: from, ..self }
    }

    /// The same, for a request that has a secret in it.
    ///
    /// # Errors
    /// When others could read it on its way.
    pub fn in_private(self) -> Result<Client, ClientError> {
        if self.is_private() { Ok(self) } else { Err(ClientError::InClear { url: self.url }) }
    }

    /// Whether nobody else reads what is asked.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_local() || self.is_secured() || self.is_here()
    }

    /// Whether it is asked over HTTPS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// Whether the node is on this machine, as far as the URL says so.
    fn is_here(&self) -> bool {
        is_here(&self.url)
    }

    /// Whether a node's own socket is asked, which wants no token.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.url.starts_with(LOCAL)
    }

    /// Calls `tell` whenever an answer may be out of date, with what the node says about that.
    #[must_use]
    pub fn on_stale(self, tell: fn(&str)) -> Client {
        Client { stale: tell, ..self }
    }

    /// The API's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether somebody answers there within this time, whatever the answer is.
    #[must_use]
    pub fn answers(&self, within: Duration) -> bool {
        let Ok(url) = self.address::<Health>(&[], &NoQuery {}) else { return false };
        let request = self.agent.get(url).config().timeout_global(Some(within)).build();
        request.call().is_ok()
    }

    /// Asks for something that takes no body.
    ///
    /// # Errors
    /// Whatever there is instead of an answer.
    pub fn ask<E: Endpoint<Body = NoBody>>(&self, names: E::Names, query: &E::Query) -> Result<E::Answer, ClientError> {
        Ok(self.call::<E>(&names, query, &NoBody {})?.0)
    }

    /// Asks for a list, a page after the other.
    ///
    /// # Errors
    /// Whatever there is instead of a page.
    pub fn ask_all<E, T>(&self, names: E::Names) -> Result<Vec<T>, ClientError>
    where
        E: Endpoint<Query = PageQuery, Body = NoBody, Answer = Vec<T>>,
    {
        let (mut all, mut query) = (Vec::new(), PageQuery { limit: Some(PAGE_MAX), after: None });
        loop {
            let (page, next) = self.call::<E>(&names, &query, &NoBody {})?;
            all.extend(page);
            // A node of an older version has told all of it.
            query.after = match next {
                Some(next) if query.after.as_ref() == Some(&next) => {
                    let reason = format!("answered with the same page again, which begins at '{next}'");
                    return Err(ClientError::Foreign { url: self.url.clone(), reason });
                }
                Some(next) => Some(next),
                None => return Ok(all),
            };
        }
    }

    /// Asks for something that is all in the body.
    ///
    /// # Errors
    /// Whatever there is instead of an answer.
    pub fn send<E: Endpoint<Query = NoQuery>>(
        &self,
        names: E::Names,
        body: &E::Body,
    ) -> Result<E::Answer, ClientError> {
        Ok(self.call::<E>(&names, &NoQuery {}, body)?.0)
    }

    /// Watches: events come until the node ends that, the connection breaks, or two minutes are over, which is an error
    /// of the kind `TimedOut`. Whoever wants to go on asks again, since the last id.
    ///
    /// # Errors
    /// Whatever there is instead of an answer.
    pub fn watch(&self, query: &WatchQuery) -> Result<EventReader, ClientError> {
        let url = self.address::<Watch>(&[], query)?;
        let request = self.shown(self.agent.get(url)).config();
        let request = request.timeout_global(None).timeout_recv_response(Some(TIMEOUT));
        let request = request.timeout_recv_body(Some(WATCH_TIMEOUT)).build();
        let response = self.accepted(request.call())?;
        Ok(EventReader::new(BufReader::new(Aging(response.into_body().into_reader()))))
    }

    /// What is asked, with these names and this query.
    fn address<E: Endpoint>(&self, names: &E::Names, query: &E::Query) -> Result<String, ClientError> {
        let target = E::target(names, query).map_err(|error| ClientError::Request(error.to_string()))?;
        if self.is_secured() && !self.trusts {
            return Err(ClientError::Unknown { url: self.url.clone() });
        }
        Ok(format!("{}{target}", self.base))
    }

    /// An answer, and where the next page begins, if it is one.
    fn call<E: Endpoint>(
        &self,
        names: &E::Names,
        query: &E::Query,
        body: &E::Body,
    ) -> Result<(E::Answer, Option<String>), ClientError> {
        let url = self.address::<E>(names, query)?;
        let outcome = match (E::ROUTE.method, E::no_body()) {
            (Method::Get, _) => self.shown(self.agent.get(url)).call(),
            (Method::Delete, _) => self.shown(self.agent.delete(url)).header("Content-Type", JSON).call(),
            (Method::Post, Some(_)) => self.shown(self.agent.post(url)).header("Content-Type", JSON).send_empty(),
            (Method::Post, None) => self.shown(self.agent.post(url)).send_json(body),
        };
        self.read::<E>(outcome)
    }

    /// A request with what proves a grant.
    fn shown<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.proof {
            Some(proof) => request.header("Authorization", proof),
            None => request,
        }
    }

    fn read<E: Endpoint>(
        &self,
        outcome: Result<Response<Body>, ureq::Error>,
    ) -> Result<(E::Answer, Option<String>), ClientError> {
        let foreign = |reason| ClientError::Foreign { url: self.url.clone(), reason };
        let mut response = self.accepted(outcome)?;
        let next = response.headers().get(NEXT_HEADER).and_then(|next| next.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| foreign(format!("answered what can't be read: {error}")))?;
        let answer = E::Answer::from_bytes(&body);
        Ok((answer.map_err(|error| foreign(format!("answered what can't be read: {error}")))?, next))
    }

    /// An answer that is no error.
    fn accepted(&self, outcome: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, ClientError> {
        let unreachable = |error: ureq::Error| {
            let (url, reason) = (self.url.clone(), error.to_string());
            match error {
                ureq::Error::Io(error) if self.trusts && error.kind() == std::io::ErrorKind::InvalidData => {
                    ClientError::Stranger { url, reason: error.to_string() }
                }
                _ => ClientError::Unreachable { url, reason },
            }
        };
        let foreign = |reason| ClientError::Foreign { url: self.url.clone(), reason };
        let mut response = outcome.map_err(unreachable)?;
        let status = response.status();
        if let Some(said) = response.headers().get(STALE_HEADER).and_then(|value| value.to_str().ok()) {
            (self.stale)(said);
        }
        if !status.is_success() {
            let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
            let told = body.ok().and_then(|body| serde_json::from_slice::<ErrorBody>(&body).ok());
            return Err(told.map_or_else(|| foreign(format!("answered {status}")), |told| self.failed(told)));
        }
        Ok(response)
    }

    /// What the node says of a failure. To whoever proves nothing, or something wrong, it says the same; here it is
    /// known which of both it was.
    fn failed(&self, told: ErrorBody) -> ClientError {
        if told.code != ErrorCode::Unauthorized || self.proof.is_none() {
            return ClientError::Failed(told);
        }
        let message = format!(
            "the token {} is not known at {}: it has ended, was revoked, or is another cluster's",
            self.token_from, self.url
        );
        let hint = "ask an administrator for a new one ('azekura token create'), and log in with it ('azekura login')";
        ClientError::Failed(ErrorBody { message, hint: Some(hint.to_owned()), ..told })
    }
}

/// A body that is read for some time only, and says in the usual way when that is over.
struct Aging<R>(R);

impl<R: Read> Read for Aging<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(ureq::Error::Timeout(_)) => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests;
