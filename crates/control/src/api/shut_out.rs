//! Nodes that are shut out, and let in again.

use azekura_api::endpoint::{NodeLetIn, NodeShutOut};
use azekura_api::{AuthorityView, ErrorCode, GrantView, LetInNode, NoContent, ShutOutNode, ShutOutView, Transport};
use azekura_base::{NodeId, rfc3339_seconds};
use azekura_meta::time::unix_seconds;
use azekura_model::Model;
use azekura_model::transitions::authorities::newest_authority;

use super::Api;
use super::call::{Answer, Call};
use super::error::ApiError;
use super::removal::find_node;
use super::{authority, grants};
use crate::snapshots::when;

/// First nobody listens to the node any more; then what it has in its hands is taken from it: volumes, and the
/// authority by which clients know nodes. What was interrupted can be asked again.
pub(super) async fn shut_out(Call { api, names: [name], body, caller, .. }: Call<NodeShutOut>) -> Answer<NodeShutOut> {
    let since = grants_since(&body)?;
    let node = find_node(&api.meta.model(), &name)?;
    if node == api.node {
        let message = format!("node {name} can't shut itself out: whoever has it could go back on that");
        let hint = "ask another node (--api)";
        return Err(ApiError::new(ErrorCode::Conflict, message, Some(hint.to_owned())));
    }
    let by = caller.map(|caller| caller.name).unwrap_or_default();
    let (record, revision) = api.meta.shut_out(node, &by).await?;
    let model = api.meta.model_at(revision).await?;
    let out_since = record.shut_out.map(|out| out.since).unwrap_or_default();
    let mut undone = Vec::new();
    if model.settings().transport != Transport::Tls {
        undone.push(format!(
            "nodes need no keys among each other (transport is '{}'), so whoever has its machine can greet as any node: \
             azekura cluster set transport tls, or keep the machine off the network",
            model.settings().transport
        ));
    }
    let detached = detach_all(&api, &model, node, &mut undone).await;
    let authority = next_authority(&api, &model, &out_since, &by, &mut undone).await;
    undone.push(
        "if it reaches the configuration server, end that there: whoever writes the configuration may do everything"
            .to_owned(),
    );
    if !model.data_keys.is_empty() {
        undone.push("it had the keys of encrypted volumes: copy what must stay secret to new volumes".to_owned());
    }
    let listed = model.grants.iter().filter(|(_, grant)| grant.created >= since);
    let grants: Vec<GrantView> = listed.map(|(id, grant)| grants::view(*id, grant)).collect();
    Ok(ShutOutView { node: name, authority, detached, grants, undone }.into())
}

/// From when on grants are listed, RFC 3339.
fn grants_since(ShutOutNode { grants_since }: &ShutOutNode) -> Result<String, ApiError> {
    let Some(text) = grants_since else { return Ok(String::new()) };
    when::parse(text, unix_seconds()).map(rfc3339_seconds).ok_or_else(|| {
        let hint = "write it as 2026-11-26T10:00:00Z, '2 days ago' or 10:30".to_owned();
        ApiError::new(ErrorCode::Refused, format!("'{text}' is no time"), Some(hint))
    })
}

/// Takes the volumes away from the node's clients; gives those of which that is certain.
async fn detach_all(api: &Api, model: &Model, node: NodeId, undone: &mut Vec<String>) -> Vec<String> {
    let mut detached = Vec::new();
    for record in model.attachments.values().filter(|record| record.of_node(node).next().is_some()) {
        let Some(volume) = model.volume_by_id(record.volume).map(|volume| volume.name.clone()) else { continue };
        match api.attacher.detach(&volume, Some(&node.to_string())).await {
            Ok(_) => detached.push(volume),
            Err(error) => undone.push(format!(
                "volume {volume} is not taken away from its clients everywhere yet ({error}), and nobody else is given it \
                 before: azekura volume show {volume}"
            )),
        }
    }
    detached
}

/// The authority that takes the place of the one whose key the node has, and that no former one vouches for.
async fn next_authority(
    api: &Api,
    model: &Model,
    out_since: &str,
    by: &str,
    undone: &mut Vec<String>,
) -> Option<AuthorityView> {
    let newest = newest_authority(model)?;
    // One that was made since is of an earlier attempt.
    if newest.signed_by_previous.is_none() && newest.number > 1 && newest.created.as_str() >= out_since {
        return authority::view(newest).ok();
    }
    match api.authorities.replace_alone(by).await {
        Ok(made) => authority::view(&made).ok(),
        Err(reason) => {
            undone.push(format!(
                "it has the key of the authority by which clients know nodes, and no other one could be made ({reason}): \
                 ask for this once more"
            ));
            None
        }
    }
}

pub(super) async fn let_in(Call { api, names: [name], body, .. }: Call<NodeLetIn>) -> Answer<NodeLetIn> {
    let LetInNode { key, same_keys } = body;
    if key.is_some() == same_keys {
        let message = "it needs either 'key' or 'same_keys': true";
        let hint = "the start of a node names its machine's key; 'same_keys' is for one that was shut out by mistake";
        return Err(ApiError::new(ErrorCode::Refused, message, Some(hint.to_owned())));
    }
    let node = find_node(&api.meta.model(), &name)?;
    api.meta.let_in(node, key).await?;
    Ok(NoContent.into())
}
