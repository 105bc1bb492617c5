//! Which keys wrap the data keys of encrypted volumes, and wrapping them with the newest (docs/decisions/0038).

use std::collections::BTreeMap;

use azekura_api::endpoint::{KekRewrap, KekShow, NodeKeksShow};
use azekura_api::{
    ErrorCode, KekMarkView, KekVersionView, KekView, NodeKekView, NodeKeks, NodeKeksView, RewrapKeys, RewrappedView,
};
use azekura_base::{KeyGeneration, KeyId, NodeId};
use azekura_model::{CSI_PROVIDER, Model};
use azekura_secrets::version_of;

use super::call::{Answer, Call};
use super::error::ApiError;
use super::{Api, peers};
use crate::data_keys::Part;

/// Data keys that one request wraps anew at most.
const REWRAPS_MAX: usize = 200;

pub(super) async fn node(Call { api, .. }: Call<NodeKeksShow>) -> Answer<NodeKeksShow> {
    Ok(own(&api, &api.meta.model()).await.into())
}

pub(super) async fn show(Call { api, .. }: Call<KekShow>) -> Answer<KekShow> {
    let model = api.meta.model();
    let keks = Keks::gather(&api, &model).await;
    let own = keks.own.keks.iter().map(|kek| ((kek.provider.clone(), kek.version), 0));
    let mut versions: BTreeMap<(String, u32), u64> = own.collect();
    for generation in model.data_keys.values().flat_map(|record| &record.generations) {
        if let Some(version) = version_of(&generation.provider, &generation.wrapped) {
            *versions.entry((generation.provider.clone(), version)).or_default() += 1;
        }
    }
    let version = |((provider, version), keys)| KekVersionView { provider, version, keys };
    let view = KekView {
        keys: model.data_keys.len() as u64,
        wraps: keks.wraps.map(str::to_owned),
        newest: keks.newest().map(|kek| kek.version),
        versions: versions.into_iter().map(version).collect(),
        by_secrets: by_secrets(&model),
        nodes: keks.nodes.iter().map(|(node, answer)| view(&model, *node, answer)).collect(),
        why_not: keks.why_not(&model, false),
    };
    Ok(view.into())
}

pub(super) async fn rewrap(Call { api, body, .. }: Call<KekRewrap>) -> Answer<KekRewrap> {
    let RewrapKeys { force, after } = body;
    let model = api.meta.model();
    let keks = Keks::gather(&api, &model).await;
    if let Some(why) = keks.why_not(&model, force) {
        let hint = "'azekura kek show' says which node has which version; nodes read their key files, and ask \
                    servers, whenever they need a key";
        return Err(ApiError::new(ErrorCode::Refused, format!("no key is wrapped anew: {why}"), Some(hint.to_owned())));
    }
    let (provider, version) = keks.newest().map_or_else(Default::default, |kek| (kek.provider.clone(), kek.version));
    let refused = |why| ApiError::new(ErrorCode::Unavailable, why, None);
    let mut known_at = 0;
    let (by_secrets, after) = (by_secrets(&model), after.map(KeyId));
    let Part { done, left, upto } = api.keys.rewrap(&model, version, after, REWRAPS_MAX).await.map_err(refused)?;
    let (left, next) = (left as u64, upto.filter(|_| left > 0).map(|id| id.0));
    let mut told = RewrappedView { provider, version, rewrapped: 0, left, next, by_secrets, failed: Vec::new() };
    for ((id, number), wrapped) in done {
        match wrapped {
            Ok((from, to)) => {
                let (is_done, revision) = api.meta.rewrap_key(id, &from, &to).await?;
                told.rewrapped += u64::from(is_done);
                known_at = revision.max(known_at);
            }
            Err(why) => told.failed.push(match number {
                KeyGeneration::FIRST => format!("data key {id}: {why}"),
                number => format!("data key {id}, generation {number}: {why}"),
            }),
        }
    }
    // The next request goes on behind these.
    api.meta.model_at(known_at).await?;
    Ok(told.into())
}

/// Data keys that no provider has wrapped.
fn by_secrets(model: &Model) -> u64 {
    let all = model.data_keys.values().filter_map(|record| record.current());
    all.filter(|generation| generation.provider == CSI_PROVIDER).count() as u64
}

/// What this node has.
async fn own(api: &Api, model: &Model) -> NodeKeks {
    let providers = match api.keys.keks(model).await {
        Ok(providers) => providers,
        Err(why) => return NodeKeks { keks: Vec::new(), problem: Some(why) },
    };
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for of in providers {
        let view = |kek: azekura_secrets::KekMark| KekMarkView {
            provider: of.provider.to_owned(),
            version: kek.version,
            mark: kek.mark,
        };
        match of.keks {
            Ok(keks) => all.extend(keks.into_iter().map(view)),
            Err(why) => problems.push(format!("'{}': {why}", of.provider)),
        }
    }
    NodeKeks { keks: all, problem: (!problems.is_empty()).then(|| problems.join("; ")) }
}

fn name(model: &Model, node: NodeId) -> String {
    model.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.name.clone())
}

fn view(model: &Model, node: NodeId, answer: &Result<NodeKeks, String>) -> NodeKeksView {
    let view = |kek: &KekMarkView| NodeKekView { provider: kek.provider.clone(), version: kek.version };
    let (keks, problem) = match answer {
        Ok(keks) => (keks.keks.iter().map(view).collect(), keks.problem.clone()),
        Err(problem) => (Vec::new(), Some(problem.clone())),
    };
    NodeKeksView { name: name(model, node), keks, problem }
}

/// What all nodes have.
struct Keks {
    /// The provider that wraps new data keys here.
    wraps: Option<&'static str>,
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
        let nodes = nodes.into_iter().filter(|(node, _)| !is_removed(model, *node)).collect();
        Keks { wraps: api.keys.wraps_by(), own, nodes }
    }

    /// The key that wraps new data keys here.
    fn newest(&self) -> Option<&KekMarkView> {
        self.own.keks.iter().rfind(|kek| Some(&*kek.provider) == self.wraps)
    }

    /// Why nothing may be wrapped with this node's newest KEK: a node that does not have it could not open the volumes
    /// any more. Silent nodes count unless `forced`.
    fn why_not(&self, model: &Model, forced: bool) -> Option<String> {
        let Some(newest) = self.newest() else { return self.own.problem.clone() };
        let of_node = |(node, answer): &(NodeId, Result<NodeKeks, String>)| {
            let name = name(model, *node);
            let keks = match answer {
                Err(_) if forced && !model.alive.contains_key(node) => return None,
                Err(problem) => return Some(format!("node {name}: {problem}")),
                Ok(keks) => keks,
            };
            let KekMarkView { provider, version, mark } = newest;
            let of = if provider == "file" { String::new() } else { format!(" of '{provider}'") };
            let same: Vec<&KekMarkView> = keks.keks.iter().filter(|kek| kek.provider == *provider).collect();
            match same.iter().find(|kek| kek.version == *version) {
                None => Some(match &keks.problem {
                    Some(problem) => format!("node {name}: {problem}"),
                    None => format!("node {name} does not have version {version}{of}"),
                }),
                Some(kek) if kek.mark != *mark => {
                    Some(format!("version {version}{of} of node {name} is another key than this node's"))
                }
                Some(_) => {
                    let newer = same.last().filter(|kek| kek.version > *version)?;
                    Some(format!("node {name} has version {}{of}, which this node does not have", newer.version))
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
        let kek = |(version, mark): &(u32, &str)| KekMarkView {
            provider: "file".to_owned(),
            version: *version,
            mark: (*mark).to_owned(),
        };
        NodeKeks { keks: of.iter().map(kek).collect(), problem: None }
    }

    fn why_not(own: NodeKeks, other: Result<NodeKeks, String>, forced: bool) -> Option<String> {
        let nodes = vec![(NodeId(1), Ok(own.clone())), (NodeId(2), other)];
        Keks { wraps: Some("file"), own, nodes }.why_not(&Model::default(), forced)
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
    fn only_the_provider_that_wraps_counts() {
        let of = |provider: &str, version| KekMarkView { provider: provider.into(), version, mark: "a".into() };
        let with =
            |keks: Vec<KekMarkView>, problem: Option<&str>| NodeKeks { keks, problem: problem.map(str::to_owned) };
        let both = || with(vec![of("file", 7), of("vault", 2)], None);
        let told = |other| {
            let nodes = vec![(NodeId(1), Ok(both())), (NodeId(2), Ok(other))];
            Keks { wraps: Some("vault"), own: both(), nodes }.why_not(&Model::default(), false)
        };
        assert_eq!(told(both()), None);
        let broken_file = with(vec![of("vault", 2)], Some("'file': it can't be read"));
        assert_eq!(told(broken_file), None, "it can open what 'vault' wraps");
        assert!(told(with(vec![of("file", 2)], None)).is_some_and(|why| why.contains("version 2 of 'vault'")));
        let away = with(vec![of("file", 7)], Some("'vault': no answer"));
        assert!(told(away).is_some_and(|why| why.contains("no answer")));
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
