//! Whether this node serves, for load balancers and probes.

use azekura_api::HealthView;
use azekura_api::endpoint::Health;

use super::call::{Answer, Call};
use super::error::ApiError;
use super::known::stale;

/// 200 while the data plane answers, else 503. It is 200 also while the configuration is away, and says so: I/O goes on
/// without it, and a balancer or probe that took the node out, or restarted it, would end what works.
pub(super) async fn health(Call { api, .. }: Call<Health>) -> Answer<Health> {
    if api.statistics.snapshot().await.is_none() {
        return Err(ApiError::silent("look into the node's log"));
    }
    let away = stale(&api);
    Ok(HealthView {
        serving: true,
        configuration_reachable: away.is_none(),
        configuration_away_seconds: away.as_ref().map(|away| away.seconds),
        configuration: away.map_or_else(|| "reachable".to_owned(), |away| away.reason),
    }
    .into())
}
