//! Who asks, and whether he may: the one place where that is decided (docs/decisions/0037-who-may.md).

use std::fmt;
use std::sync::Arc;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::serve::IncomingStream;
use azekura_api::{ApiAccess, ErrorCode, Needs, Role};
use azekura_base::{Bounds, DEFAULT_PROJECT, GrantId, JoinToken, PeerKey, Token};
use azekura_meta::time::unix_seconds;
use azekura_model::{AuditProof, GrantKind, GrantRecord, Model};
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::error::ApiError;
use super::host::{self, Names};
use super::tries::Tries;
use crate::doors::{Arrival, Port};
use crate::proofs::is_proved;

/// Through what a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The socket in the node's data folder, which its user alone can open.
    Local,
    /// The port.
    Port(Arrival),
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Door::Local => f.write_str("the node's own socket"),
            Door::Port(arrival) => write!(f, "{}", arrival.address.ip()),
        }
    }
}

impl Connected<IncomingStream<'_, Port>> for Door {
    fn connect_info(stream: IncomingStream<'_, Port>) -> Door {
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
    /// By what he is known.
    pub(super) proof: AuditProof,
    /// His grant, if he has one.
    pub(super) grant: Option<GrantId>,
    /// It is about some volumes, and so for their clients alone.
    pub(super) for_clients: bool,
    /// The volumes that he has to do with.
    bounds: Bounds,
    pub(super) door: Door,
}

impl Caller {
    /// Whether he is still who he was when he was admitted.
    pub(super) fn counts(&self, model: &Model, now: u64) -> bool {
        match (self.proof, self.grant) {
            (AuditProof::Local, _) => true,
            (AuditProof::Open, _) => model.settings().api_access == ApiAccess::Open,
            (_, Some(id)) => model.grants.get(&id).is_some_and(|grant| {
                grant.role == self.role
                    && Bounds::of(grant.role, &grant.project) == self.bounds
                    && grant.volumes.is_some() == self.for_clients
                    && grant.counts_at(now)
            }),
            (_, None) => false,
        }
    }

    /// The volumes that he has to do with: for him there are no others.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Refuses to name something as what is not his: what there is of that name, if anything, does not show.
    pub(super) fn check_own(&self, volume: &str) -> Result<(), ApiError> {
        let Some(project) = self.bounds.project().filter(|_| !self.bounds.sees(volume)) else { return Ok(()) };
        let message =
            format!("{} makes volumes in the project '{project}' alone, and '{volume}' is named otherwise", self.name);
        let name = volume.split_once('/').map_or(volume, |(_, name)| name);
        let hint = if project == DEFAULT_PROJECT { name.to_owned() } else { format!("{project}/{name}") };
        Err(ApiError::new(ErrorCode::Forbidden, message, Some(format!("name it {hint}"))))
    }

    /// Refuses a secret that others may have read on its way: once it is sent so, it is none any more.
    pub(super) fn check_private(&self) -> Result<(), ApiError> {
        match self.door {
            Door::Local => Ok(()),
            Door::Port(arrival) if arrival.secured || arrival.address.ip().to_canonical().is_loopback() => Ok(()),
            Door::Port(_) => {
                let message = "a volume's secret came over http://, where others may have read it: it is not used";
                let hint = "take another secret, and ask over https://, or on the node's machine";
                Err(ApiError::new(ErrorCode::Refused, message, Some(hint.to_owned())))
            }
        }
    }

    /// Refuses what he may not.
    pub(super) fn check(&self, needs: Needs) -> Result<(), ApiError> {
        if self.for_clients && !matches!(needs, Needs::Nothing | Needs::Grant) {
            let message =
                format!("the key of {} is for some volumes, and so for their clients: not for the API", self.name);
            let hint = "for the API there are tokens, and keys without --volume (azekura key add)";
            return Err(ApiError::new(ErrorCode::Forbidden, message, Some(hint.to_owned())));
        }
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
    let hint = "log in with a token ('azekura login --help') over https://, show a certificate whose key has a grant, or ask on the node's machine through its \
                own socket (--api unix:DIR/api.sock, DIR being its --data)";
    ApiError::new(ErrorCode::Unauthorized, "the API of this cluster asks for a grant", Some(hint.to_owned()))
}

/// What a request shows.
enum Shown {
    Nothing,
    Token(Token),
    /// One that makes a machine a node.
    JoinToken(Token),
    /// What can't be read.
    Nonsense,
}

fn shown(headers: &HeaderMap) -> Shown {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (header, None) = (all.next(), all.next()) else { return Shown::Nonsense };
    let Some(header) = header else { return Shown::Nothing };
    let said = header.to_str().ok().and_then(|text| text.trim().split_once(' '));
    let read = said.and_then(|(scheme, proof)| match scheme.to_ascii_lowercase().as_str() {
        "bearer" => match (Token::read(proof.trim()), JoinToken::read(proof.trim())) {
            (Ok(token), _) => Some(Shown::Token(token)),
            (_, Ok(JoinToken { token, .. })) => Some(Shown::JoinToken(token)),
            _ => None,
        },
        _ => None,
    });
    read.unwrap_or(Shown::Nonsense)
}

/// Whom a proof has shown.
struct Known {
    name: String,
    role: Role,
    proof: AuditProof,
    grant: Option<GrantId>,
    for_clients: bool,
    bounds: Bounds,
}

impl Known {
    /// The owner of a grant.
    fn by(id: GrantId, grant: &GrantRecord, proof: AuditProof) -> Known {
        let (name, for_clients) = (grant.name.clone(), grant.volumes.is_some());
        let bounds = Bounds::of(grant.role, &grant.project);
        Known { name, role: grant.role, proof, grant: Some(id), for_clients, bounds }
    }

    /// Somebody without a grant, of no project.
    fn without(name: &str, role: Role, proof: AuditProof) -> Known {
        Known { name: name.to_owned(), role, proof, grant: None, for_clients: false, bounds: Bounds::All }
    }
}

/// The owner of the grant that a token proves.
fn grant_of(model: &Model, Token { id, secret }: &Token, joins: bool, now: u64) -> Option<Known> {
    let found = model.grants.get(id).filter(|grant| grant.kind == GrantKind::Token);
    let proved = is_proved(secret, found.map(|grant| grant.hash));
    let fits = |grant: &GrantRecord| (grant.role == Role::Join) == joins && grant.role != Role::Node;
    let grant = found.filter(|grant| proved && fits(grant) && grant.counts_at(now))?;
    Some(Known::by(*id, grant, AuditProof::Token))
}

/// Whoever a key proves: a node, unless it is removed; or the owner of a grant.
fn owner_of(model: &Model, key: PeerKey, now: u64) -> Option<Known> {
    let its = |keys: &Option<Vec<PeerKey>>| keys.as_ref().is_some_and(|keys| keys.contains(&key));
    if let Some(node) = model.nodes.values().find(|node| !node.removed && its(&node.keys)) {
        return Some(Known::without(&format!("node {}", node.name), Role::Node, AuditProof::Node));
    }
    let granted =
        |grant: &GrantRecord| grant.kind == GrantKind::Key && grant.hash.0 == key.0 && grant.role != Role::Node;
    let (id, grant) = model.grants.iter().find(|(_, grant)| granted(grant) && grant.counts_at(now))?;
    Some(Known::by(*id, grant, AuditProof::Key))
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
    let caller = |known: Known| {
        let Known { name, role, proof, grant, for_clients, bounds } = known;
        Some(Caller { name, role, proof, grant, for_clients, bounds, door })
    };
    let Door::Port(arrival) = door else {
        return Ok(caller(Known::without("the node's user", Role::Admin, AuditProof::Local)));
    };
    let open = model.settings().api_access == ApiAccess::Open;
    // Where grants are asked for, none is looked at that others may have read on its way.
    if !(open || arrival.secured || arrival.address.ip().to_canonical().is_loopback()) {
        return Ok(None);
    }
    let found = match shown(&parts.headers) {
        Shown::Nothing => match arrival.key.and_then(|key| owner_of(model, key, unix_seconds())) {
            // A key that this node has not read yet is as good as none.
            None if open => return Ok(caller(Known::without("anybody", Role::Admin, AuditProof::Open))),
            None => return Ok(None),
            found => found,
        },
        Shown::Token(token) => grant_of(model, &token, false, unix_seconds()),
        Shown::JoinToken(token) => grant_of(model, &token, true, unix_seconds()),
        Shown::Nonsense => None,
    };
    let Some(known) = found else {
        let wait = gate.tries.failed(arrival.address.ip(), Instant::now());
        tracing::warn!("API: a wrong token from {door}, answered after {} s", wait.as_secs());
        tokio::time::sleep(wait).await;
        return Err(unauthorized());
    };
    Ok(caller(known))
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
        let token = Token { id: GrantId(5), secret: azekura_base::Secret([6; 32]) };
        let text = token.reveal();
        assert!(matches!(shown(&headers(&[])), Shown::Nothing));
        for said in [format!("Bearer {text}"), format!("bearer  {text} ")] {
            assert!(matches!(shown(&headers(&[&said])), Shown::Token(read) if read == token), "{said}");
        }
        let bearer = format!("Bearer {text}");
        let twice = [bearer.as_str(), bearer.as_str()];
        let cut = &bearer[..bearer.len() - 1];
        for wrong in [&twice[..], &[cut], &[&text], &["Basic YTpi"], &["Bearer"], &[""]] {
            assert!(matches!(shown(&headers(wrong)), Shown::Nonsense), "{wrong:?}");
        }
    }

    /// A request that came through the port from this address, over HTTPS or not.
    fn request(address: &str, secured: bool) -> Parts {
        let arrival = Arrival { address: address.parse().unwrap(), secured, key: None };
        let request =
            axum::http::Request::builder().header("Host", "10.0.0.1").extension(ConnectInfo(Door::Port(arrival)));
        request.body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn no_grant_is_looked_at_that_came_over_the_network_in_clear() {
        let token = Token { id: GrantId(5), secret: azekura_base::Secret([6; 32]) };
        let mut memory = azekura_model::Memory::new();
        let grant = GrantRecord {
            name: "ann".to_owned(),
            kind: GrantKind::Token,
            hash: crate::proofs::hash_of(&token.secret),
            role: Role::User,
            project: azekura_model::DEFAULT_PROJECT.to_owned(),
            volumes: None,
            host: None,
            until: None,
            created: String::new(),
            by: String::new(),
            unknown: azekura_model::Unknown::default(),
        };
        let grants = azekura_model::SettingsRecord { api_access: ApiAccess::Grants, ..Default::default() };
        let put = azekura_model::Txn::new().put(&azekura_model::Key::Grant(token.id).to_string(), &grant);
        memory.run(&put.put(&azekura_model::Key::Settings.to_string(), &grants)).unwrap();
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.reveal())).unwrap();
        for (address, secured, admitted) in [
            ("10.0.0.9:5", false, false),
            ("10.0.0.9:5", true, true),
            ("127.0.0.1:5", false, true),
            ("[::ffff:127.0.0.1]:5", false, true),
            ("[fe80::1]:5", false, false),
        ] {
            let mut parts = request(address, secured);
            parts.headers.insert(AUTHORIZATION, bearer.clone());
            let outcome = admit(&parts, &Gate::new(&[]), memory.model(), Needs::SeeVolumes).await;
            assert_eq!(outcome.is_ok(), admitted, "{address} {secured}");
        }
    }
}
