//! Which keys wrap the data keys of encrypted volumes, and wrapping them with the newest (docs/decisions/0038).

use std::collections::BTreeMap;

use azekura_api::endpoint::{KekRewrap, KekShow, NodeKeksShow};
use azekura_api::{ErrorCode, KekMarkView, KekVersionView, KekView, NodeKeks, NodeKeksView, RewrapKeys, RewrappedView};
use azekura_base::NodeId;
use azekura_model::Model;

use super::call::{Answer, Call};
use super::error::ApiError;
use super::{Api, peers};

/// Data keys that one request wraps anew at most.
const REWRAPS_MAX: usize = 200;

pub(super) async fn node(Call { api, .. }: Call<NodeKeksShow>) -> Answer<NodeKeksShow> {
    Ok(own(&api, &api.meta.model()).await.into())
}

pub(super) async fn show(Call { api, .. }: Call<KekShow>) -> Answer<KekShow> {
    let model = api.meta.model();
    let keks = Keks::gather(&api, &model).await;
    let mut versions: BTreeMap<u32, u64> = keks.own.keks.iter().map(|kek| (kek.version, 0)).collect();
    for version in model.data_keys.values().filter_map(|record| api.keys.version_of(record)) {
        *versions.entry(version).or_default() += 1;
    }
    let view = KekView {
        keys: model.data_keys.len() as u64,
        newest: keks.own.keks.last().map(|kek| kek.version),
        versions: versions.into_iter().map(|(version, keys)| KekVersionView { version, keys }).collect(),
        nodes: keks.nodes.iter().map(|(node, answer)| view(&model, *node, answer)).collect(),
        why_not: keks.why_not(&model, false),
    };
    Ok(view.into())
}

pub(super) async fn rewrap(Call { api, body, .. }: Call<KekRewrap>) -> Answer<KekRewrap> {
    let RewrapKeys { force } = body;
    let model = api.meta.model();
    let keks = Keks::gather(&api, &model).await;
    if let Some(why) = keks.why_not(&model, force) {
        let hint = "'azekura kek show' says which node has which version; nodes read their key files whenever these \
                    change";
        return Err(ApiError::new(ErrorCode::Refused, format!("no key is wrapped anew: {why}"), Some(hint.to_owned())));
    }
    let version = keks.own.keks.last().map_or(0, |kek| kek.version);
    let refused = |why| ApiError::new(ErrorCode::Unavailable, why, None);
    let older = model.data_keys.values().filter(|record| api.keys.version_of(record) != Some(version)).count();
    let mut known_at = 0;
    let mut told = RewrappedView { version, rewrapped: 0, left: 0, failed: Vec::new() };
    for (id, wrapped) in api.keys.rewrap(&model, REWRAPS_MAX).await.map_err(refused)? {
        match wrapped {
            Ok((from, to)) => {
                let (is_done, revision) = api.meta.rewrap_key(id, &from, &to).await?;
                told.rewrapped += u64::from(is_done);
                known_at = revision.max(known_at);
            }
            Err(why) => told.failed.push(format!("data key {id}: {why}")),
        }
    }
    // The next request goes on behind these.
    api.meta.model_at(known_at).await?;
    told.left = (older as u64).saturating_sub(told.rewrapped + told.failed.len() as u64);
    Ok(told.into())
}

/// What this node has.
async fn own(api: &Api, model: &Model) -> NodeKeks {
    match api.keys.keks(model).await {
        Ok(keks) => {
            let view = |kek: azekura_secrets::KekMark| KekMarkView { version: kek.version, mark: kek.mark };
            NodeKeks { keks: keks.into_iter().map(view).collect(), problem: None }
        }
        Err(why) => NodeKeks { keks: Vec::new(), problem: Some(why) },
    }
}

fn name(model: &Model, node: NodeId) -> String {
    model.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone())
}

fn view(model: &Model, node: NodeId, answer: &Result<NodeKeks, String>) -> NodeKeksView {
    let (versions, problem) = match answer {
        Ok(keks) => (keks.keks.iter().map(|kek| kek.version).collect(), keks.problem.clone()),
        Err(problem) => (Vec::new(), Some(problem.clone())),
    };
    NodeKeksView { name: name(model, node), versions, problem }
}

/// What all nodes have.
struct Keks {
    own: NodeKeks,
    nodes: Vec<(NodeId, Result<NodeKeks, String>)>,
}

impl Keks {
    async fn gather(api: &Api, model: &Model) -> Keks {
        let own = own(api, model).await;
        let here = {
            let own = own.clone();
            async move { Some(own) }
        };
        let nodes = peers::ask_all::<NodeKeksShow>(api.node, &api.https, model, here).await;
        Keks { own, nodes: nodes.into_iter().filter(|(node, _)| !is_removed(model, *node)).collect() }
    }

    /// Why nothing may be wrapped with this node's newest KEK: a node that does not have it could not open the volumes
    /// any more. Silent nodes count unless `forced`.
    fn why_not(&self, model: &Model, forced: bool) -> Option<String> {
        if let Some(problem) = &self.own.problem {
            return Some(problem.clone());
        }
        let newest = self.own.keks.last()?;
        let of_node = |(node, answer): &(NodeId, Result<NodeKeks, String>)| {
            let name = name(model, *node);
            let keks = match answer {
                Err(_) if forced && !model.alive.contains_key(node) => return None,
                Err(problem) => return Some(format!("node {name}: {problem}")),
                Ok(keks) => keks,
            };
            if let Some(problem) = &keks.problem {
                return Some(format!("node {name}: {problem}"));
            }
            let version = newest.version;
            match keks.keks.iter().find(|kek| kek.version == version) {
                None => Some(format!("node {name} does not have version {version}")),
                Some(kek) if kek.mark != newest.mark => {
                    Some(format!("version {version} of node {name} is another key than this node's"))
                }
                Some(_) => {
                    let newer = keks.keks.last().filter(|kek| kek.version > version)?;
                    Some(format!("node {name} has version {}, which this node does not have", newer.version))
                }
            }
        };
        let all: Vec<String> = self.nodes.iter().filter_map(of_node).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

fn is_removed(model: &Model, node: NodeId) -> bool {
    model.nodes.get(&node).is_none_or(|node| node.removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keks(of: &[(u32, &str)]) -> NodeKeks {
        let kek = |(version, mark): &(u32, &str)| KekMarkView { version: *version, mark: (*mark).to_owned() };
        NodeKeks { keks: of.iter().map(kek).collect(), problem: None }
    }

    fn why_not(own: NodeKeks, other: Result<NodeKeks, String>, forced: bool) -> Option<String> {
        let nodes = vec![(NodeId(1), Ok(own.clone())), (NodeId(2), other)];
        Keks { own, nodes }.why_not(&Model::default(), forced)
    }

    #[test]
    fn nothing_is_wrapped_with_a_key_that_a_node_does_not_have() {
        let own = || keks(&[(1, "a"), (2, "b")]);
        assert_eq!(why_not(own(), Ok(own()), false), None);
        assert_eq!(why_not(own(), Ok(keks(&[(2, "b")])), false), None, "who has dropped the older one");
        let refused = |other| why_not(own(), other, false).expect("it is refused");
        assert!(refused(Ok(keks(&[(1, "a")]))).contains("does not have version 2"));
        assert!(refused(Ok(keks(&[(1, "a"), (2, "x")]))).contains("another key"));
        assert!(refused(Ok(keks(&[(2, "b"), (3, "c")]))).contains("has version 3"));
        let broken = NodeKeks { keks: Vec::new(), problem: Some("the key file can't be read".to_owned()) };
        assert!(refused(Ok(broken.clone())).contains("can't be read"));
        assert!(why_not(broken, Ok(own()), true).is_some(), "nor by a node without keys");
    }

    #[test]
    fn only_silent_nodes_may_be_passed_over() {
        let own = || keks(&[(1, "a")]);
        let silent = || Err("it gives no sign of life".to_owned());
        assert!(why_not(own(), silent(), false).is_some());
        assert_eq!(why_not(own(), silent(), true), None);
        assert!(why_not(own(), Ok(keks(&[(1, "x")])), true).is_some());
    }
}
