//! Hosts that come over iSCSI and NVMe: let in by the names that they give themselves, and by secrets
//! (docs/decisions/0053-hosts.md).

use std::sync::Arc;

use azekura_api::endpoint::HostCreate;
use azekura_api::{ChapCreated, CreateChap, ErrorCode, HostCreated};
use azekura_base::{ChapSecret, HostName, Role, check_chap};
use azekura_meta::time::{now_rfc3339, unix_seconds};
use azekura_model::{DEFAULT_PROJECT, GrantKind, GrantRecord, HostRecord, Unknown};

use super::Api;
use super::call::{Answer, Call};
use super::caller::Caller;
use super::error::ApiError;
use super::grants::{check, draw_id, known, project, view};
use crate::host_secrets::{Side, seal};
use crate::proofs::{draw_secret, hash_of_text};

/// Characters of a secret that is made here. Each has 6 bits, so all have 96, which is the least (RFC 7143 section
/// 9.2.1); and Windows takes no more than 16 bytes.
const SECRET_CHARACTERS: usize = 16;
/// They mean nothing in URLs.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// What the target calls itself to initiators that ask it for a proof.
const TARGET_USER: &str = "azekura";

fn refused(what: String) -> ApiError {
    ApiError::new(ErrorCode::Refused, what, None)
}

fn internal(what: String) -> ApiError {
    ApiError::new(ErrorCode::Internal, what, None)
}

/// A secret of random characters.
fn draw() -> Result<String, ApiError> {
    let drawn = draw_secret().map_err(|error| internal(error.to_string()))?;
    let character = |byte: &u8| char::from(ALPHABET[usize::from(byte % 64)]);
    Ok(drawn.0.iter().take(SECRET_CHARACTERS).map(character).collect())
}

/// What was asked for, with what was left to this node; and that as it is answered.
fn complete(asked: Option<CreateChap>, user: &str) -> Result<Option<(ChapSecret, ChapCreated)>, ApiError> {
    let Some(CreateChap { user: wanted, secret: given }) = asked else { return Ok(None) };
    let user = wanted.unwrap_or_else(|| user.to_owned());
    let (secret, told) = match given {
        Some(given) => (given, None),
        None => {
            let made = draw()?;
            (made.clone(), Some(made))
        }
    };
    check_chap(&user, secret.as_bytes()).map_err(refused)?;
    let secret = ChapSecret { user: user.clone(), secret: Arc::new(secret.into_bytes().into()) };
    Ok(Some((secret, ChapCreated { user, secret: told })))
}

/// A host's name is nobody's proof, and has one grant in the cluster: an owner could take the name of another project's
/// host, and would learn from a refusal that there is such a host.
fn check_giver(api: &Api, caller: &Caller) -> Result<(), ApiError> {
    // The client that acts for the caller shows his project alone, or none.
    let alone = caller.bounds().has(DEFAULT_PROJECT) && api.meta.watch_model().borrow().projects.is_empty();
    if caller.bounds().project().is_none() || alone {
        return Ok(());
    }
    let message =
        format!("where there are projects, hosts are let in by an administrator, not by the role '{}'", caller.role);
    Err(ApiError::new(ErrorCode::Forbidden, message, Some("keys (azekura key add) prove what they are".to_owned())))
}

pub(super) async fn create(Call { api, caller, body, .. }: Call<HostCreate>) -> Answer<HostCreate> {
    let caller = known(caller)?;
    check(&caller, Role::User)?;
    let project = project(&caller, Role::User, body.project)?;
    check_giver(&api, &caller)?;
    let name: HostName = body.host.parse().map_err(|error| refused(format!("'{}': {error}", body.host)))?;
    let chap = complete(body.chap, name.as_str())?;
    let mutual = complete(body.mutual, TARGET_USER)?;
    if let (Some((own, _)), Some((other, _))) = (&chap, &mutual)
        && own.secret == other.secret
    {
        let why = "both directions have one secret: whoever asks the target what it knows could show that as his own";
        return Err(refused(why.to_owned()));
    }
    let (id, model) = (draw_id()?, api.meta.model());
    let sealed = |side, secret: &Option<(ChapSecret, ChapCreated)>| {
        let sealed = secret.as_ref().map(|(secret, _)| seal(&api.authorities, &model, id, side, secret));
        let hint = || Some("ask another node, or this one in a moment".to_owned());
        sealed
            .transpose()
            .map_err(|why| ApiError::new(ErrorCode::Unavailable, format!("the secret can't be kept: {why}"), hint()))
    };
    let host = HostRecord {
        name: name.clone(),
        chap: sealed(Side::Initiator, &chap)?,
        mutual: sealed(Side::Target, &mutual)?,
        unknown: Unknown::default(),
    };
    let record = GrantRecord {
        name: body.name,
        kind: GrantKind::Host,
        hash: hash_of_text(name.as_str()),
        role: Role::User,
        project,
        volumes: body.volumes.map(|volumes| volumes.into_iter().collect()),
        host: Some(host),
        until: body.ends_after_seconds.map(|seconds| unix_seconds().saturating_add(seconds)),
        created: now_rfc3339(),
        by: caller.name,
        unknown: Unknown::default(),
    };
    api.meta.create_grant(id, &record).await?;
    let told = |made: Option<(ChapSecret, ChapCreated)>| made.map(|(_, told)| told);
    Ok(HostCreated { grant: view(id, &record), chap: told(chap), mutual: told(mutual) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_given_or_made() {
        let asked = |user: Option<&str>, secret: Option<&str>| {
            let own = |text: &str| text.to_owned();
            complete(Some(CreateChap { user: user.map(own), secret: secret.map(own) }), "iqn.a").map(Option::unwrap)
        };
        let (one, told) = asked(None, None).unwrap();
        assert_eq!((one.user.as_str(), one.secret.len()), ("iqn.a", SECRET_CHARACTERS));
        assert_eq!(told.secret.unwrap().as_bytes(), &**one.secret);
        assert_ne!(asked(None, None).unwrap().0.secret, one.secret);
        let (given, told) = asked(Some("me"), Some("twelve bytes")).unwrap();
        assert_eq!((given.user.as_str(), told.secret), ("me", None), "what was told is not told back");
        assert!(asked(None, Some("eleven byte")).is_err() && asked(Some(""), None).is_err());
        assert!(complete(None, "iqn.a").unwrap().is_none());
    }
}
