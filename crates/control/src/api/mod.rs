//! The REST API: the handlers of what `azekura_api` describes.

use std::sync::Arc;

use axum::Router;
use azekura_base::{Bounds, NodeId};
use azekura_meta::MetaClient;
use azekura_meta::cluster::Deed;
use azekura_model::AuditRecord;
use azekura_transport::https::Https;
use tokio::task::JoinHandle;

use crate::attachments::Attacher;
use crate::authorities::Authorities;
use crate::data_keys::DataKeys;
use crate::snapshot::NodeStatistics;
use crate::snapshots::Snapshots;

use call::Routes;
pub(crate) use caller::Door;
use caller::Gate;

mod audit;
mod authority;
mod call;
mod caller;
mod classes;
mod data_keys;
mod device_names;
mod diff;
mod drain;
mod error;
mod expose;
mod fallback;
mod freed;
mod grants;
mod health;
mod host;
mod hosts;
mod idempotency;
mod jobs;
mod joining;
mod keks;
mod known;
mod layer_questions;
mod members;
mod metrics;
mod openapi;
mod pages;
pub(crate) mod peers;
mod projects;
mod ready;
mod removal;
mod resync;
mod scrub;
mod settings;
mod shown;
mod shut_out;
mod snapshots;
mod space;
mod stats;
mod status;
mod targets;
mod tries;
mod unlock;
mod unread;
mod views;
mod volumes;
mod watch;

/// Largest request body accepted, bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    meta: MetaClient,
    node: NodeId,
    statistics: Arc<dyn NodeStatistics>,
    attacher: Attacher,
    snapshots: Snapshots,
    keys: DataKeys,
    gate: Gate,
    /// By which other nodes know this one.
    https: Https,
    authorities: Authorities,
    feed: watch::Feed,
}

impl Api {
    /// The handlers' state for this node, which is asked by the names that its certificate has; and a task that goes on
    /// as long as it is asked.
    pub(crate) fn new(
        meta: MetaClient,
        node: NodeId,
        statistics: Arc<dyn NodeStatistics>,
        attacher: Attacher,
        snapshots: Snapshots,
        keys: DataKeys,
        authorities: Authorities,
    ) -> (Api, JoinHandle<()>) {
        let (gate, https) = (Gate::new(&authorities.names), authorities.https.clone());
        let (feed, following) = watch::Feed::start(&meta, &keys);
        (Api { meta, node, statistics, attacher, snapshots, keys, gate, https, authorities, feed }, following)
    }

    /// The configuration.
    pub(crate) fn meta(&self) -> &MetaClient {
        &self.meta
    }

    /// This node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Who attaches volumes.
    pub(crate) fn attacher(&self) -> &Attacher {
        &self.attacher
    }

    /// The keys of encrypted volumes.
    pub(crate) fn keys(&self) -> &DataKeys {
        &self.keys
    }

    /// How other nodes are asked.
    pub(crate) fn https(&self) -> &Https {
        &self.https
    }

    /// This node's data plane.
    pub(crate) fn data_plane(&self) -> &dyn crate::DataPlane {
        &**self.attacher.data_plane()
    }

    /// The same on behalf of somebody whose deed has this record: it is written with all that he changes.
    fn acting(&self, record: AuditRecord) -> (Api, Deed) {
        let (meta, deed) = self.meta.run_as(record);
        (self.by(meta), deed)
    }

    /// The same for somebody who has to do with these volumes alone: to its handlers there are no others.
    fn within(&self, bounds: &Bounds) -> Api {
        self.by(self.meta.within(bounds))
    }

    /// The same through another client.
    fn by(&self, meta: MetaClient) -> Api {
        let (attacher, snapshots) = (self.attacher.acting(&meta), self.snapshots.acting(&meta));
        let authorities = self.authorities.acting(&meta);
        Api { meta, attacher, snapshots, authorities, ..self.clone() }
    }
}

/// What nodes ask each other.
fn between_nodes(routes: Routes) -> Routes {
    routes
        .serve(unlock::node)
        .serve(data_keys::node)
        .serve(authority::secret)
        .serve(keks::node)
        .serve(stats::node)
        .serve(space::node)
        .serve(layer_questions::compare)
        .serve(layer_questions::measure)
        .serve(expose::node)
}

/// Every endpoint with its handler.
fn routes() -> Routes {
    targets::routes(between_nodes(Routes::new()))
        .serve(health::health)
        .serve(ready::ready)
        .serve(status::status)
        .serve(stats::cluster)
        .serve(space::show)
        .serve(jobs::list)
        .stream(watch::watch)
        .serve(volumes::list)
        .serve(volumes::create)
        .serve(volumes::show)
        .serve(volumes::delete)
        .serve(volumes::resize)
        .serve(volumes::limit)
        .serve(volumes::attach)
        .serve(volumes::detach)
        .serve(expose::expose)
        .serve(expose::unexpose)
        .serve(unlock::unlock)
        .serve(unlock::change)
        .serve(data_keys::show)
        .serve(data_keys::rotate)
        .serve(snapshots::revert)
        .serve(snapshots::clone)
        .serve(snapshots::protect)
        .serve(snapshots::list_of_volume)
        .serve(snapshots::show)
        .serve(snapshots::delete)
        .serve(diff::show)
        .serve(diff::show_allocated)
        .serve(snapshots::list)
        .serve(snapshots::create)
        .serve(classes::list)
        .serve(classes::create)
        .serve(classes::show)
        .serve(classes::change)
        .serve(removal::class)
        .serve(members::nodes)
        .serve(removal::node)
        .serve(drain::drain_node)
        .serve(drain::undrain_node)
        .serve(shut_out::shut_out)
        .serve(shut_out::let_in)
        .serve(members::devices)
        .serve(removal::device)
        .serve(drain::drain_device)
        .serve(drain::undrain_device)
        .serve(members::groups)
        .serve(scrub::start)
        .serve(settings::show)
        .serve(settings::change)
        .serve(projects::list)
        .serve(projects::create)
        .serve(projects::show)
        .serve(projects::change)
        .serve(projects::delete)
        .serve(grants::list)
        .serve(grants::create)
        .serve(grants::create_key)
        .serve(hosts::create)
        .serve(grants::revoke)
        .serve(grants::whoami)
        .serve(joining::join)
        .serve(audit::show)
        .serve(authority::show)
        .serve(authority::replace)
        .serve(keks::show)
        .serve(keks::rewrap)
        .serve(openapi::show)
        .serve(metrics::metrics)
}

/// The routes.
pub(crate) fn router(api: Api) -> Router {
    let Routes { router, .. } = routes();
    router
        .fallback(fallback::no_such_path)
        .method_not_allowed_fallback(fallback::no_such_method)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(unread::read))
        .with_state(api)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use azekura_api::endpoint::ROUTES;
    use azekura_api::{OPENAPI, Route};

    use super::*;

    #[test]
    fn what_is_served_is_what_is_described() {
        let Routes { served, .. } = routes();
        let served: BTreeSet<Route> = served.into_iter().collect();
        assert_eq!(served, ROUTES.iter().copied().collect());
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase()))
        });
        let described: BTreeSet<(String, String)> = described.collect();
        let served = served.iter().map(|route| (route.path.to_owned(), route.method.word().to_owned()));
        assert_eq!(served.collect::<BTreeSet<_>>(), described);
    }
}
