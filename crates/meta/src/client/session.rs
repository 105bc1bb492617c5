//! Who this end is to etcd: its user's token, and what etcd has against a request.
//!
//! A token ends five minutes after its last use (`etcd --auth-token-ttl`), when its member restarts, and if it is a
//! JSON Web Token also with each change of etcd's users and roles. So nothing is reckoned: a token is used until etcd
//! refuses it, and a request that was refused for it was not executed, so even a write may be sent again.

use std::time::Duration;

use azekura_model::EtcdError;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::servers::User;
use super::{REQUEST_TIMEOUT, Trouble, describe, is_endpoint_trouble};
use crate::etcd::{AuthClient, AuthenticateRequest};

/// After a refusal etcd is not asked for a token again before this: it takes long over passwords, on purpose.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// The name by which requests show a token.
const TOKEN: &str = "token";

/// A connection, with what shows whose requests it takes.
pub(super) type Line = InterceptedService<Channel, Ticket>;

/// What a request shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticket {
    token: Option<MetadataValue<Ascii>>,
    /// Tells tokens apart.
    number: u64,
}

impl Interceptor for Ticket {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        Ok(request)
    }
}

/// What etcd, or the way to it, has against a request.
#[derive(Debug)]
pub(super) enum Objection {
    /// The endpoint is the trouble: another one may do.
    Endpoint(String, Trouble),
    /// The endpoint said nothing in time.
    Silence,
    /// The token counts no more. The request was not executed.
    Ticket(String),
    /// The request itself.
    Final(EtcdError),
}

/// The user, and the token in use.
#[derive(Debug, Default)]
pub(super) struct Session {
    user: Option<User>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ticket: Option<Ticket>,
    /// Tokens that there were.
    count: u64,
    refused: Option<(Instant, EtcdError)>,
}

impl Session {
    pub(super) fn new(user: Option<User>) -> Session {
        Session { user, state: Mutex::default() }
    }

    /// What requests show now; asks for a token if there is none.
    pub(super) async fn ticket(&self, url: &str, channel: &Channel) -> Result<Ticket, Objection> {
        let Some(user) = &self.user else { return Ok(Ticket::default()) };
        let mut state = self.state.lock().await;
        if let Some(ticket) = &state.ticket {
            return Ok(ticket.clone());
        }
        if let Some((when, error)) = &state.refused
            && when.elapsed() < REFUSAL_PAUSE
        {
            return Err(Objection::Final(error.clone()));
        }
        match authenticate(user, url, channel).await {
            Ok(token) => {
                state.count += 1;
                let ticket = Ticket { token, number: state.count };
                *state = State { ticket: Some(ticket.clone()), count: state.count, refused: None };
                Ok(ticket)
            }
            Err(Objection::Final(error)) => {
                state.refused = Some((Instant::now(), error.clone()));
                Err(Objection::Final(error))
            }
            Err(objection) => Err(objection),
        }
    }

    /// This one counts no more: the next request asks for another.
    pub(super) async fn spent(&self, ticket: &Ticket) {
        let mut state = self.state.lock().await;
        if state.ticket.as_ref().is_some_and(|now| now.number == ticket.number) {
            state.ticket = None;
        }
    }

    /// What a status means.
    pub(super) fn objection(&self, url: &str, status: &Status) -> Objection {
        let message = status.message();
        let denied = |reason: String| Objection::Final(EtcdError::Denied { endpoint: url.to_owned(), reason });
        match (denial(status.code(), message), &self.user) {
            (Some(Denial::Token | Denial::Nobody), Some(_)) => Objection::Ticket(message.to_owned()),
            (Some(Denial::Token | Denial::Nobody), None) => denied(format!(
                "it asks who we are ({message}): give --config-user and --config-password-file, or with --config-cert a \
                 certificate whose common name is one of its users"
            )),
            (Some(Denial::Permission), user) => denied(no_permission(user.as_ref(), message)),
            (None, _) if is_endpoint_trouble(status) => Objection::Endpoint(describe(status), Trouble::of(status)),
            (None, _) => Objection::Final(super::refusal(status)),
        }
    }

    /// Whether etcd has ended a watch, or not begun it, because of who asks; what that means.
    pub(super) fn watch_denied(&self, reason: &str) -> Option<String> {
        denial_of(reason).map(|_| no_permission(self.user.as_ref(), reason))
    }
}

/// The line with a ticket.
pub(super) fn line(channel: &Channel, ticket: &Ticket) -> Line {
    InterceptedService::new(channel.clone(), ticket.clone())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denial {
    /// The token counts no more.
    Token,
    /// The request shows nobody.
    Nobody,
    /// The user may not do that.
    Permission,
}

/// What etcd's words mean, which are the same in all versions from 3.2 on (`rpctypes`); codes have changed.
fn denial_of(message: &str) -> Option<Denial> {
    let has = |words| message.contains(words);
    if has("invalid auth token") || has("revision of auth store is old") || has("revision in header is old") {
        Some(Denial::Token)
    } else if has("user name is empty") {
        Some(Denial::Nobody)
    } else if has("permission denied") {
        Some(Denial::Permission)
    } else {
        None
    }
}

fn denial(code: Code, message: &str) -> Option<Denial> {
    denial_of(message).or(match code {
        Code::Unauthenticated => Some(Denial::Token),
        Code::PermissionDenied => Some(Denial::Permission),
        _ => None,
    })
}

fn no_permission(user: Option<&User>, message: &str) -> String {
    let who = match user {
        Some(user) => format!("its user {}", user.name),
        None => "the user that is the common name of --config-cert".to_owned(),
    };
    format!("{who} may not do that ({message}): the role needs readwrite on the prefix /azekura/")
}

/// A token for the user; `None`: etcd has users, and does not ask for them.
async fn authenticate(user: &User, url: &str, channel: &Channel) -> Result<Option<MetadataValue<Ascii>>, Objection> {
    let denied = |reason: String| Objection::Final(EtcdError::Denied { endpoint: url.to_owned(), reason });
    let (name, file) = (&user.name, user.password_file.display());
    let password = user.password().map_err(denied)?;
    let request = AuthenticateRequest { name: name.clone(), password };
    let mut client = AuthClient::new(channel.clone());
    let status = match tokio::time::timeout(REQUEST_TIMEOUT, client.authenticate(request)).await {
        Ok(Ok(answer)) => {
            let token = answer.into_inner().token.parse();
            return token.map(Some).map_err(|_| denied("its token is none that can be shown".to_owned()));
        }
        Ok(Err(status)) => status,
        Err(_) => return Err(Objection::Silence),
    };
    match (status.code(), status.message()) {
        (_, message) if message.contains("authentication is not enabled") => Ok(None),
        (_, message) if message.contains("authentication failed") => Err(denied(format!(
            "user {name} (--config-user) with the password in {file} (--config-password-file): {message}"
        ))),
        // etcd 3.4 says so when its users were changed while it looked.
        (Code::InvalidArgument, message) if denial_of(message) == Some(Denial::Token) => {
            Err(Objection::Ticket(message.to_owned()))
        }
        (Code::Unimplemented, _) => {
            Err(denied("it has no users: --config-user is for etcd, and not for a node's --serve-config".to_owned()))
        }
        _ if is_endpoint_trouble(&status) => Err(Objection::Endpoint(describe(&status), Trouble::of(&status))),
        (_, message) => Err(denied(format!("user {name} (--config-user): {message}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(user: Option<&str>) -> Session {
        Session::new(user.map(|name| User { name: name.into(), password_file: "/etc/azekura/password".into() }))
    }

    /// The words are etcd's own: api/v3rpc/rpctypes/error.go.
    #[test]
    fn what_etcd_says_is_understood() {
        let (token, old) = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old");
        let (nobody, permission) = ("etcdserver: user name is empty", "etcdserver: permission denied");
        let objection = |user, code, message: &str| session(user).objection("http://e:1", &Status::new(code, message));
        for (code, message) in [
            (Code::Unauthenticated, token),
            (Code::InvalidArgument, old),
            (Code::InvalidArgument, nobody),
            (Code::Unauthenticated, "something later"),
        ] {
            assert!(matches!(objection(Some("u"), code, message), Objection::Ticket(_)), "{message}");
            let Objection::Final(EtcdError::Denied { endpoint, reason }) = objection(None, code, message) else {
                panic!("{message}")
            };
            assert!(endpoint == "http://e:1" && reason.contains("--config-user"), "{reason}");
        }
        for (user, who) in [(Some("u"), "user u "), (None, "common name")] {
            let Objection::Final(error) = objection(user, Code::PermissionDenied, permission) else { panic!() };
            assert!(error.to_string().contains(who) && error.to_string().contains("/azekura/"), "{error}");
        }
        assert!(matches!(objection(None, Code::Unavailable, "gone"), Objection::Endpoint(_, Trouble::Unable)));
        let other = objection(Some("u"), Code::InvalidArgument, "etcdserver: key is not provided");
        assert!(matches!(other, Objection::Final(EtcdError::Refused(_))));
        assert!(
            session(None)
                .watch_denied("rpc error: code = PermissionDenied desc = etcdserver: permission denied")
                .is_some()
        );
        assert_eq!(session(None).watch_denied("etcdserver: mvcc: required revision is a future revision"), None);
    }
}
