//! Who asks, and whether he may: the one place where that is decided (docs/decisions/0037-who-may.md).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::serve::IncomingStream;
use azekura_api::{ApiAccess, ErrorCode, Needs, Role};
use azekura_base::{GrantId, NodeId, Secret, Token};
use azekura_meta::time::unix_seconds;
use azekura_model::{GrantKind, Model};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::Instant;

use super::error::ApiError;
use super::host::{self, Names};
use super::tries::Tries;
use crate::proofs::is_proved;

/// Through what a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The socket in the node's data folder, which its user alone can open.
    Local,
    /// A port, from this address.
    Port(SocketAddr),
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Door::Local => f.write_str("the node's own socket"),
            Door::Port(address) => write!(f, "{}", address.ip()),
        }
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Door {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Door {
        Door::Port(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Door {
    fn connect_info(_: IncomingStream<'_, UnixListener>) -> Door {
        Door::Local
    }
}

/// Whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// His grant's name, or what he is known by else.
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) door: Door,
}

impl Caller {
    /// Refuses what he may not.
    fn check(&self, needs: Needs) -> Result<(), ApiError> {
        if self.role.may(needs) {
            return Ok(());
        }
        let message = format!("{} has the role '{}', which may not {}", self.name, self.role, needs.words());
        let able: Vec<&str> = Role::ALL.into_iter().filter(|role| role.may(needs)).map(Role::word).collect();
        Err(ApiError::new(ErrorCode::Forbidden, message, Some(format!("roles that may: {}", able.join(", ")))))
    }
}

/// What is said to whoever proves nothing, or something wrong: always the same.
pub(super) fn unauthorized() -> ApiError {
    let hint = "log in with a token ('azekura login --help'), or ask on the node's machine through its own socket \
                (--api unix:DIR/api.sock, DIR being its --data)";
    ApiError::new(ErrorCode::Unauthorized, "the API of this cluster asks for a grant", Some(hint.to_owned()))
}

/// What a request shows.
enum Shown {
    Nothing,
    Token(Token),
    Node(NodeId, Secret),
    /// What can't be read.
    Nonsense,
}

fn shown(headers: &HeaderMap) -> Shown {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (header, None) = (all.next(), all.next()) else { return Shown::Nonsense };
    let Some(header) = header else { return Shown::Nothing };
    let said = header.to_str().ok().and_then(|text| text.trim().split_once(' '));
    let read = said.and_then(|(scheme, proof)| match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Token::read(proof.trim()).ok().map(Shown::Token),
        "node" => {
            let (node, secret) = proof.trim().split_once(':')?;
            Some(Shown::Node(NodeId(node.parse().ok()?), Secret::read(secret)?))
        }
        _ => None,
    });
    read.unwrap_or(Shown::Nonsense)
}

/// The header by which a node shows other nodes who it is.
pub(super) fn node_header(node: NodeId, secret: &Secret) -> String {
    format!("Node {node}:{}", secret.reveal())
}

/// The grant that a token proves, by its name, and its role.
fn grant_of(model: &Model, id: GrantId, secret: &Secret, now: u64) -> Option<(String, Role)> {
    let found = model.grants.get(&id).filter(|grant| grant.kind == GrantKind::Token);
    let proved = is_proved(secret, found.map(|grant| grant.hash));
    let grant = found.filter(|grant| proved && grant.role != Role::Node && grant.counts_at(now))?;
    Some((grant.name.clone(), grant.role))
}

/// The node that a secret proves, by its name. One that is shut out, or removed, is none.
fn node_of(model: &Model, id: NodeId, secret: &Secret) -> Option<String> {
    let out = |keys: &Option<_>| keys.as_ref().is_some_and(Vec::is_empty);
    let found = model.nodes.get(&id).filter(|node| !node.removed && !out(&node.keys));
    let proved = is_proved(secret, found.and_then(|node| node.api_secret));
    found.filter(|_| proved).map(|node| node.name.clone())
}

/// What is known of those who ask.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    names: Names,
    tries: Arc<Tries>,
}

impl Gate {
    /// For requests to addresses, loopbacks and these names.
    pub(super) fn new(names: &[String]) -> Gate {
        Gate { names: Names::new(names), tries: Arc::default() }
    }
}

/// Who asks; `None`: somebody who shows nothing, of whom something is asked.
///
/// # Errors
/// When what is shown is wrong: some time later, if that was so often from there.
async fn find(parts: &Parts, gate: &Gate, model: &Model) -> Result<Option<Caller>, ApiError> {
    // Whoever has come through no door that is known has not come at all.
    let ConnectInfo(door) = *parts.extensions.get::<ConnectInfo<Door>>().ok_or_else(unauthorized)?;
    let caller = |name: String, role| Some(Caller { name, role, door });
    let Door::Port(address) = door else { return Ok(caller("the node's user".to_owned(), Role::Admin)) };
    let open = model.settings().api_access == ApiAccess::Open;
    let found = match shown(&parts.headers) {
        Shown::Nothing => return Ok(open.then(|| caller("anybody".to_owned(), Role::Admin)).flatten()),
        Shown::Token(Token { id, secret }) => grant_of(model, id, &secret, unix_seconds()),
        Shown::Node(id, secret) => match node_of(model, id, &secret) {
            // This node may not have read yet that the other one has started.
            None if open => return Ok(caller("anybody".to_owned(), Role::Admin)),
            found => found.map(|name| (format!("node {name}"), Role::Node)),
        },
        Shown::Nonsense => None,
    };
    let Some((name, role)) = found else {
        let wait = gate.tries.failed(address.ip(), Instant::now());
        tracing::warn!("API: a wrong token from {door}, answered after {} s", wait.as_secs());
        tokio::time::sleep(wait).await;
        return Err(unauthorized());
    };
    Ok(caller(name, role))
}

/// Who asks for something that `needs` this, if he may. `None`: nobody in particular, where nothing is needed.
pub(super) async fn admit(parts: &Parts, gate: &Gate, model: &Model, needs: Needs) -> Result<Option<Caller>, ApiError> {
    let caller = find(parts, gate, model).await?;
    if caller.is_none() && needs != Needs::Nothing {
        return Err(unauthorized());
    }
    host::check(&gate.names, parts)?;
    if let Some(caller) = &caller {
        caller.check(needs)?;
    }
    Ok(caller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn what_is_shown_is_read_whole_or_not_at_all() {
        let token = Token { id: GrantId(5), secret: Secret([6; 32]) };
        let text = token.reveal();
        assert!(matches!(shown(&headers(&[])), Shown::Nothing));
        for said in [format!("Bearer {text}"), format!("bearer  {text} ")] {
            assert!(matches!(shown(&headers(&[&said])), Shown::Token(read) if read == token), "{said}");
        }
        let node = node_header(NodeId(3), &token.secret);
        assert!(matches!(shown(&headers(&[&node])), Shown::Node(NodeId(3), secret) if secret == token.secret));
        let bearer = format!("Bearer {text}");
        let twice = [bearer.as_str(), bearer.as_str()];
        let cut = &bearer[..bearer.len() - 1];
        for wrong in [&twice[..], &[cut], &[&text], &["Basic YTpi"], &["Bearer"], &[""], &["Node 3:"], &["Node x:y"]] {
            assert!(matches!(shown(&headers(wrong)), Shown::Nonsense), "{wrong:?}");
        }
    }
}
