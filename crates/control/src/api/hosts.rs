//! Hosts that come over iSCSI and NVMe: let in by the names that they give themselves, and by secrets
//! (docs/decisions/0053-hosts.md).

use std::sync::Arc;

use azekura_api::endpoint::HostCreate;
use azekura_api::{ChapCreated, CreateChap, ErrorCode, HostCreated};
use azekura_base::{ChapSecret, DhchapKey, DhchapTransform, HostName, Role, check_chap};
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

/// A secret of random bytes, as NVMe hosts have it.
fn draw_key() -> Result<String, ApiError> {
    let drawn = draw_secret().map_err(|error| internal(error.to_string()))?;
    Ok(DhchapKey { transform: DhchapTransform::None, bytes: drawn.0.to_vec().into() }.text().to_string())
}

/// What was asked for, with what was left to this node; and that as it is answered.
fn complete(
    asked: Option<CreateChap>,
    host: &HostName,
    user: &str,
) -> Result<Option<(ChapSecret, ChapCreated)>, ApiError> {
    let Some(CreateChap { user: wanted, secret: given }) = asked else { return Ok(None) };
    if host.is_nvme() && wanted.is_some() {
        return Err(refused("NVMe has no names for CHAP: a host is known by its NQN".to_owned()));
    }
    let user = wanted.unwrap_or_else(|| user.to_owned());
    let (secret, told) = match given {
        Some(given) => (given, None),
        None => {
            let made = if host.is_nvme() { draw_key() } else { draw() }?;
            (made.clone(), Some(made))
        }
    };
    if host.is_nvme() {
        DhchapKey::of(secret.as_bytes()).map_err(|error| refused(error.to_string()))?;
    } else {
        check_chap(&user, secret.as_bytes()).map_err(refused)?;
    }
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

/// Whether two secrets are the same, however they are written.
fn is_one_secret(one: &ChapSecret, other: &ChapSecret) -> bool {
    match (DhchapKey::of_secret(one), DhchapKey::of_secret(other)) {
        (Ok(one), Ok(other)) => one.bytes == other.bytes,
        _ => one.secret == other.secret,
    }
}

pub(super) async fn create(Call { api, caller, body, .. }: Call<HostCreate>) -> Answer<HostCreate> {
    let caller = known(caller)?;
    check(&caller, Role::User)?;
    let project = project(&caller, Role::User, body.project)?;
    check_giver(&api, &caller)?;
    let name: HostName = body.host.parse().map_err(|error| refused(format!("'{}': {error}", body.host)))?;
    let chap = complete(body.chap, &name, name.as_str())?;
    let mutual = complete(body.mutual, &name, TARGET_USER)?;
    if let (Some((own, _)), Some((other, _))) = (&chap, &mutual)
        && is_one_secret(own, other)
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
            let host = "iqn.a".parse().unwrap();
            complete(Some(CreateChap { user: user.map(own), secret: secret.map(own) }), &host, "iqn.a")
                .map(Option::unwrap)
        };
        let (one, told) = asked(None, None).unwrap();
        assert_eq!((one.user.as_str(), one.secret.len()), ("iqn.a", SECRET_CHARACTERS));
        assert_eq!(told.secret.unwrap().as_bytes(), &**one.secret);
        assert_ne!(asked(None, None).unwrap().0.secret, one.secret);
        let (given, told) = asked(Some("me"), Some("twelve bytes")).unwrap();
        assert_eq!((given.user.as_str(), told.secret), ("me", None), "what was told is not told back");
        assert!(asked(None, Some("eleven byte")).is_err() && asked(Some(""), None).is_err());
        assert!(complete(None, &"iqn.a".parse().unwrap(), "iqn.a").unwrap().is_none());
    }

    #[test]
    fn an_nvme_hosts_secret_is_a_key() {
        let asked = |user: Option<&str>, secret: Option<&str>| {
            let (own, host) = (|text: &str| text.to_owned(), "nqn.a".parse().unwrap());
            complete(Some(CreateChap { user: user.map(own), secret: secret.map(own) }), &host, "nqn.a")
                .map(Option::unwrap)
        };
        let (one, told) = asked(None, None).unwrap();
        assert_eq!(told.secret.unwrap().as_bytes(), &**one.secret);
        assert_eq!(DhchapKey::of_secret(&one).unwrap().bytes.len(), 32);
        let (other, _) = asked(None, None).unwrap();
        assert!(!is_one_secret(&one, &other) && is_one_secret(&one, &one));
        let (_, told) = asked(None, std::str::from_utf8(&one.secret).ok()).unwrap();
        assert_eq!(told.secret, None, "what was told is not told back");
        for (user, secret, why) in [(None, Some("twelve bytes"), "gen-dhchap-key"), (Some("me"), None, "NQN")] {
            let error = format!("{:?}", asked(user, secret).unwrap_err());
            assert!(error.contains(why) && !error.contains("twelve"), "{error}");
        }
        let written = |transform| {
            let key = DhchapKey { transform, ..DhchapKey::of_secret(&one).unwrap() };
            asked(None, Some(&key.text())).unwrap().0
        };
        assert!(is_one_secret(&written(DhchapTransform::Sha256), &written(DhchapTransform::Sha512)));
    }
}
