//! Grants: listed, made, revoked. Whoever may not make a grant does not see it either.

use azekura_api::endpoint::{GrantCreate, GrantList, GrantRevoke, KeyCreate, Whoami};
use azekura_api::{ErrorCode, GrantCreated, GrantProof, GrantView, HostView, KeyCreated, NoContent, WhoView};
use azekura_base::{GrantId, JoinToken, PeerKey, Role, SecretHash, Token, rfc3339_seconds};
use azekura_meta::time::{now_rfc3339, unix_seconds};
use azekura_model::transitions::authorities::newest_authority;
use azekura_model::transitions::grants::JOIN_SECONDS;
use azekura_model::{DEFAULT_PROJECT, GrantKind, GrantRecord, Kind, MetaError, Unknown};

use azekura_transport::https::{POINT_BYTES, fingerprint, key_of_point};

use super::authority::{not_signed, not_yet};
use super::call::{Answer, Call};
use super::caller::{Caller, unauthorized};
use super::error::ApiError;
use crate::proofs::{draw_secret, hash_of};

pub(super) fn view(id: GrantId, grant: &GrantRecord) -> GrantView {
    GrantView {
        id: id.to_string(),
        name: grant.name.clone(),
        role: grant.role,
        proof: match grant.kind {
            GrantKind::Token => GrantProof::Token,
            GrantKind::Key => GrantProof::Key,
            GrantKind::Host => GrantProof::Host,
        },
        key: (grant.kind == GrantKind::Key).then(|| PeerKey(grant.hash.0).to_string()),
        volumes: grant.volumes.as_ref().map(|volumes| volumes.iter().cloned().collect()),
        project: grant.project.clone(),
        host: grant.host.as_ref().map(|host| HostView {
            name: host.name.to_string(),
            chap_user: host.chap.as_ref().map(|chap| chap.user.clone()),
            mutual_user: host.mutual.as_ref().map(|mutual| mutual.user.clone()),
        }),
        until: grant.until.map(rfc3339_seconds),
        created: grant.created.clone(),
        by: grant.by.clone(),
    }
}

pub(super) fn known(caller: Option<Caller>) -> Result<Caller, ApiError> {
    caller.ok_or_else(unauthorized)
}

pub(super) async fn whoami(Call { caller, .. }: Call<Whoami>) -> Answer<Whoami> {
    let caller = known(caller)?;
    let project = caller.bounds().project().map(str::to_owned);
    Ok(WhoView { name: caller.name, role: caller.role, project }.into())
}

pub(super) async fn list(Call { api, caller, .. }: Call<GrantList>) -> Answer<GrantList> {
    let (caller, model) = (known(caller)?, api.meta.model());
    let seen = model.grants.iter().filter(|(_, grant)| caller.role.may_grant(grant.role));
    let mut grants: Vec<GrantView> = seen.map(|(id, grant)| view(*id, grant)).collect();
    grants.sort_by(|one, other| (&one.project, &one.name).cmp(&(&other.project, &other.name)));
    Ok(grants.into())
}

/// Refuses to give what the caller may not give.
pub(super) fn check(caller: &Caller, role: Role) -> Result<(), ApiError> {
    if caller.role.may_grant(role) {
        return Ok(());
    }
    let message = format!("the role '{}' may give nobody the role '{role}'", caller.role);
    Err(ApiError::new(ErrorCode::Forbidden, message, None))
}

/// The project that a grant of this role is about: the one that is named, or else that of whoever gives it.
pub(super) fn project(caller: &Caller, role: Role, named: Option<String>) -> Result<String, ApiError> {
    let own = caller.bounds().project();
    let project = named.unwrap_or_else(|| own.filter(|_| role.has_project()).unwrap_or(DEFAULT_PROJECT).to_owned());
    if caller.bounds().has(&project) {
        return Ok(project);
    }
    Err(MetaError::NotFound { kind: Kind::Project, name: project }.into())
}

pub(super) fn draw_id() -> Result<GrantId, ApiError> {
    let drawn = draw_secret().map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string(), None))?;
    let [a, b, c, d, e, f, g, h, ..] = drawn.0;
    Ok(GrantId(u64::from_be_bytes([a, b, c, d, e, f, g, h])))
}

pub(super) async fn create(Call { api, caller, body, .. }: Call<GrantCreate>) -> Answer<GrantCreate> {
    let caller = known(caller)?;
    check(&caller, body.role)?;
    let project = project(&caller, body.role, body.project)?;
    let secret = draw_secret().map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string(), None))?;
    let token = Token { id: draw_id()?, secret };
    let joins = body.role == Role::Join;
    let text = if joins {
        let model = api.meta.model();
        let newest = newest_authority(&model).ok_or_else(not_yet)?;
        let authority = fingerprint(&newest.certificate);
        let authority = authority.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string(), None))?;
        JoinToken { token: token.clone(), authority }.reveal()
    } else {
        token.reveal()
    };
    let ends_after_seconds = body.ends_after_seconds.or(joins.then_some(JOIN_SECONDS));
    let record = GrantRecord {
        name: body.name,
        kind: GrantKind::Token,
        hash: hash_of(&token.secret),
        role: body.role,
        project,
        volumes: None,
        host: None,
        until: ends_after_seconds.map(|seconds| unix_seconds().saturating_add(seconds)),
        created: now_rfc3339(),
        by: caller.name,
        unknown: Unknown::default(),
    };
    api.meta.create_grant(token.id, &record).await?;
    Ok(GrantCreated { token: text, grant: view(token.id, &record) }.into())
}

pub(super) async fn create_key(Call { api, caller, body, .. }: Call<KeyCreate>) -> Answer<KeyCreate> {
    let caller = known(caller)?;
    check(&caller, body.role)?;
    let project = project(&caller, body.role, body.project)?;
    let refused = |what: String| ApiError::new(ErrorCode::Refused, what, None);
    let key: PeerKey = body.key.parse().map_err(|error| refused(format!("{error}: the SHA-256 of its public half")))?;
    let authority = newest_authority(&api.meta.model()).ok_or_else(not_yet)?.certificate.clone();
    let certificate = match &body.point {
        None => None,
        Some(digits) => {
            let point = read_point(digits).ok_or_else(|| refused("'point' is no point of P-256".to_owned()))?;
            if key_of_point(point).ok() != Some(key) {
                return Err(refused(format!("'point' is not the key {key}")));
            }
            Some(api.authorities.sign_client(&body.name, point).map_err(not_signed)?)
        }
    };
    let record = GrantRecord {
        name: body.name,
        kind: GrantKind::Key,
        hash: SecretHash(key.0),
        role: body.role,
        project,
        volumes: body.volumes.map(|volumes| volumes.into_iter().collect()),
        host: None,
        until: body.ends_after_seconds.map(|seconds| unix_seconds().saturating_add(seconds)),
        created: now_rfc3339(),
        by: caller.name,
        unknown: Unknown::default(),
    };
    let id = draw_id()?;
    api.meta.create_grant(id, &record).await?;
    Ok(KeyCreated { grant: view(id, &record), certificate, authority }.into())
}

/// An uncompressed point, in hexadecimal digits.
fn read_point(digits: &str) -> Option<[u8; POINT_BYTES]> {
    let digits = digits.as_bytes();
    let mut point = [0; POINT_BYTES];
    if digits.len() != 2 * POINT_BYTES {
        return None;
    }
    for (byte, pair) in point.iter_mut().zip(digits.chunks(2)) {
        let text = std::str::from_utf8(pair).ok().filter(|_| pair.iter().all(u8::is_ascii_hexdigit))?;
        *byte = u8::from_str_radix(text, 16).ok()?;
    }
    // SEC 1, 2.3.3.
    (point[0] == 4).then_some(point)
}

pub(super) async fn revoke(Call { api, caller, names: [name], .. }: Call<GrantRevoke>) -> Answer<GrantRevoke> {
    let (caller, model) = (known(caller)?, api.meta.model());
    let mut seen = model.grants.iter().filter(|(_, grant)| caller.role.may_grant(grant.role));
    let (project, own) = match name.split_once('/') {
        Some(named) => named,
        None => (caller.bounds().project().unwrap_or(DEFAULT_PROJECT), name.as_str()),
    };
    let is_it = |grant: &GrantRecord| grant.name == own && grant.project == project;
    let found = seen.find(|(id, grant)| is_it(grant) || id.to_string() == name).map(|(id, _)| *id);
    let id = found.ok_or_else(|| MetaError::NotFound { kind: Kind::Grant, name: name.clone() })?;
    api.meta.revoke_grant(id).await?;
    Ok(NoContent.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_its_digits() {
        let mut point = [7; POINT_BYTES];
        point[0] = 4;
        let digits: String = point.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(read_point(&digits), Some(point));
        for wrong in ["", &digits[1..], &digits[2..], &format!("02{}", &digits[2..]), &format!("04+7{}", &digits[4..])]
        {
            assert_eq!(read_point(wrong), None, "{wrong}");
        }
    }
}
