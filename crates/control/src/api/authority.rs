//! The certificate authority: shown to clients, replaced, given to other nodes.

use azekura_api::endpoint::{AuthorityReplace, AuthorityShow, NodeAuthority};
use azekura_api::{AuthorityKey, AuthorityView, ErrorCode};
use azekura_model::AuthorityRecord;
use azekura_model::transitions::authorities::newest_authority;
use azekura_transport::https::fingerprint;

use super::call::{Answer, Call};
use super::error::ApiError;
use crate::authorities::Replaced;

pub(super) fn view(authority: &AuthorityRecord) -> Result<AuthorityView, ApiError> {
    let read = fingerprint(&authority.certificate);
    let fingerprint = read.map_err(|error| {
        let message = format!("the record of authority {} is damaged: {error}", authority.number);
        ApiError::new(ErrorCode::Internal, message, Some("replace it: azekura ca replace".to_owned()))
    })?;
    Ok(AuthorityView {
        number: authority.number,
        fingerprint: fingerprint.to_string(),
        certificate: authority.certificate.clone(),
        created: authority.created.clone(),
        by: authority.by.clone(),
    })
}

pub(super) fn not_yet() -> ApiError {
    let hint = "the first node makes one at its start: ask again in a moment, or look into its log";
    ApiError::new(ErrorCode::Unavailable, "the cluster has no certificate authority yet", Some(hint.to_owned()))
}

pub(super) async fn show(Call { api, .. }: Call<AuthorityShow>) -> Answer<AuthorityShow> {
    let model = api.meta.model();
    Ok(view(newest_authority(&model).ok_or_else(not_yet)?)?.into())
}

/// Why nothing is signed.
pub(super) fn not_signed(error: Replaced) -> ApiError {
    match error {
        Replaced::NotYet => not_yet(),
        Replaced::NoKey => {
            let hint = "ask another node, or this one when it has the key";
            let message = "this node does not have the authority's key, by which this would have to be signed";
            ApiError::new(ErrorCode::Unavailable, message, Some(hint.to_owned()))
        }
        Replaced::Failed(reason) => ApiError::new(ErrorCode::Internal, reason, None),
    }
}

pub(super) async fn replace(Call { api, caller, .. }: Call<AuthorityReplace>) -> Answer<AuthorityReplace> {
    let by = caller.map(|caller| caller.name).unwrap_or_default();
    let made = api.authorities.replace(&by).await.map_err(not_signed)?;
    Ok(view(&made)?.into())
}

pub(super) async fn secret(Call { api, query, .. }: Call<NodeAuthority>) -> Answer<NodeAuthority> {
    let message = || format!("this node does not have the key of authority {}", query.number);
    let pem = api.authorities.secret(query.number);
    let pem = pem.ok_or_else(|| ApiError::new(ErrorCode::Unavailable, message(), None))?;
    Ok(AuthorityKey { pem }.into())
}
