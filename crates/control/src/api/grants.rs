//! Grants: listed, made, revoked. Whoever may not make a grant does not see it either.

use azekura_api::endpoint::{GrantCreate, GrantList, GrantRevoke, Whoami};
use azekura_api::{ErrorCode, GrantCreated, GrantView, NoContent, WhoView};
use azekura_base::{GrantId, JoinToken, Role, Token, rfc3339_seconds};
use azekura_meta::time::{now_rfc3339, unix_seconds};
use azekura_model::transitions::authorities::newest_authority;
use azekura_model::transitions::grants::JOIN_SECONDS;
use azekura_model::{DEFAULT_PROJECT, GrantKind, GrantRecord, Kind, MetaError, Unknown};

use azekura_transport::https::fingerprint;

use super::authority::not_yet;
use super::call::{Answer, Call};
use super::caller::{Caller, unauthorized};
use super::error::ApiError;
use crate::proofs::{draw_secret, hash_of};

pub(super) fn view(id: GrantId, grant: &GrantRecord) -> GrantView {
    GrantView {
        id: id.to_string(),
        name: grant.name.clone(),
        role: grant.role,
        project: grant.project.clone(),
        until: grant.until.map(rfc3339_seconds),
        created: grant.created.clone(),
        by: grant.by.clone(),
    }
}

fn known(caller: Option<Caller>) -> Result<Caller, ApiError> {
    caller.ok_or_else(unauthorized)
}

pub(super) async fn whoami(Call { caller, .. }: Call<Whoami>) -> Answer<Whoami> {
    let Caller { name, role, .. } = known(caller)?;
    Ok(WhoView { name, role }.into())
}

pub(super) async fn list(Call { api, caller, .. }: Call<GrantList>) -> Answer<GrantList> {
    let (caller, model) = (known(caller)?, api.meta.model());
    let seen = model.grants.iter().filter(|(_, grant)| caller.role.may_grant(grant.role));
    let mut grants: Vec<GrantView> = seen.map(|(id, grant)| view(*id, grant)).collect();
    grants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(grants.into())
}

pub(super) async fn create(Call { api, caller, body, .. }: Call<GrantCreate>) -> Answer<GrantCreate> {
    let caller = known(caller)?;
    if !caller.role.may_grant(body.role) {
        let message = format!("the role '{}' may give nobody the role '{}'", caller.role, body.role);
        return Err(ApiError::new(ErrorCode::Forbidden, message, None));
    }
    let no_randomness = |error: std::io::Error| ApiError::new(ErrorCode::Internal, error.to_string(), None);
    let secret = draw_secret().map_err(no_randomness)?;
    let [a, b, c, d, e, f, g, h, ..] = draw_secret().map_err(no_randomness)?.0;
    let token = Token { id: GrantId(u64::from_be_bytes([a, b, c, d, e, f, g, h])), secret };
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
        project: DEFAULT_PROJECT.to_owned(),
        until: ends_after_seconds.map(|seconds| unix_seconds().saturating_add(seconds)),
        created: now_rfc3339(),
        by: caller.name,
        unknown: Unknown::default(),
    };
    api.meta.create_grant(token.id, &record).await?;
    Ok(GrantCreated { token: text, grant: view(token.id, &record) }.into())
}

pub(super) async fn revoke(Call { api, caller, names: [name], .. }: Call<GrantRevoke>) -> Answer<GrantRevoke> {
    let (caller, model) = (known(caller)?, api.meta.model());
    let mut seen = model.grants.iter().filter(|(_, grant)| caller.role.may_grant(grant.role));
    let found = seen.find(|(id, grant)| grant.name == name || id.to_string() == name).map(|(id, _)| *id);
    let id = found.ok_or_else(|| MetaError::NotFound { kind: Kind::Grant, name: name.clone() })?;
    api.meta.revoke_grant(id).await?;
    Ok(NoContent.into())
}
