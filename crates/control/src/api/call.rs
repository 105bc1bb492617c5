//! A request as its handler gets it, and the routes. Both follow the endpoints of `azekura_api`, so that a handler can
//! neither take nor answer anything else than what is described.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use azekura_api::endpoint::Ready;
use azekura_api::{Answer as _, Endpoint, ErrorCode, Method, NEXT_HEADER, Needs, Route, STALE_HEADER, Stale};
use azekura_meta::cluster::Deed;

use super::Api;
use super::audit;
use super::caller::{Caller, admit, unauthorized};
use super::error::{ApiError, bad_body, bad_path, bad_query, not_json};
use super::idempotency::{self, End, Once};

/// A request.
pub(super) struct Call<E: Endpoint> {
    pub(super) api: Api,
    /// The names in its path.
    pub(super) names: E::Names,
    pub(super) query: E::Query,
    pub(super) body: E::Body,
    /// Who asks; `None`: nobody in particular, where nothing is needed.
    pub(super) caller: Option<Caller>,
    /// What is noted of it, where it may change something.
    pub(super) deed: Option<Deed>,
    /// By what it is known when it is sent again, if it came with a key.
    once: Option<Once>,
}

impl<E: Endpoint> FromRequest<Api> for Call<E> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Call<E>, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = admit(&parts, &api.gate, &api.meta.model(), E::ROUTE.needs).await?;
        if E::ROUTE.method != Method::Get && !is_json(&parts.headers) {
            return Err(not_json());
        }
        let key = idempotency::key(E::ROUTE, &parts.headers)?;
        let names = Path::from_request_parts(&mut parts, api).await.map_err(|rejection| bad_path(&rejection))?;
        let query = Query::from_request_parts(&mut parts, api).await.map_err(|rejection| bad_query(&rejection))?;
        let body = match E::no_body() {
            Some(none) => none,
            None => {
                let request = Request::from_parts(parts, body);
                Json::from_request(request, api).await.map_err(|rejection| bad_body(&rejection))?.0
            }
        };
        let (names, query) = (names.0, query.0);
        let once = caller.as_ref().zip(key).map(|(caller, key)| Once::new::<E>(caller, &key, &names, &query, &body));
        // The one place where it is decided what a handler comes to see: it has no other way to the configuration.
        let within = caller.as_ref().map(|caller| api.within(caller.bounds()));
        let api = within.as_ref().unwrap_or(api);
        let (api, deed) = match caller.as_ref().filter(|_| E::ROUTE.method != Method::Get) {
            Some(caller) => {
                let (api, deed) = api.acting(audit::record::<E>(api, caller, &names, &query, &body));
                (api, Some(deed))
            }
            None => (api.clone(), None),
        };
        Ok(Call { api, names, query, body, caller, deed, once })
    }
}

/// For what is at no path.
impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Caller, ApiError> {
        admit(parts, &api.gate, &api.meta.model(), Needs::Grant).await?.ok_or_else(unauthorized)
    }
}

/// Whether the request says that its body is JSON. A web page can't, unless the server lets it: pages may send forms
/// and nothing at all to wherever they like.
fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// What is answered.
pub(super) struct Reply<T> {
    answer: T,
    stale: Option<Stale>,
    /// Where the next page begins, if it is one.
    next: Option<String>,
}

impl<T> Reply<T> {
    /// An answer that may be out of date, which a header says.
    pub(super) fn as_known(answer: T, stale: Option<Stale>) -> Reply<T> {
        Reply { answer, stale, next: None }
    }

    /// What is answered.
    pub(super) fn answer(&self) -> &T {
        &self.answer
    }

    /// A page of it: a header says where the next one begins.
    pub(super) fn before(self, next: Option<String>) -> Reply<T> {
        Reply { next, ..self }
    }
}

impl<T> From<T> for Reply<T> {
    fn from(answer: T) -> Reply<T> {
        Reply { answer, stale: None, next: None }
    }
}

/// What a handler returns.
pub(super) type Answer<E> = Result<Reply<<E as Endpoint>::Answer>, ApiError>;

fn respond<E: Endpoint>(outcome: Answer<E>) -> Response {
    let Reply { answer, stale, next } = match outcome {
        Ok(reply) => reply,
        Err(error) => return error.into_response(),
    };
    let bytes = match answer.to_bytes() {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("the answer can't be written: {error}");
            return ApiError::new(ErrorCode::Internal, message, None).into_response();
        }
    };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::from_u16(E::STATUS).unwrap_or_default();
    if let Some(media_type) = <E::Answer as azekura_api::Answer>::MEDIA_TYPE {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
    if let Some(said) = stale.and_then(|stale| HeaderValue::from_str(&stale.to_string()).ok()) {
        response.headers_mut().insert(STALE_HEADER, said);
    }
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT_HEADER, next);
    }
    response
}

/// Carries a request out that came with a key, unless it was: also when nobody waits for the answer any more, so that
/// it is known to whoever asks again.
async fn carry_out_once<E, F, A>(call: Call<E>, once: Once, deed: Deed, handler: F) -> Response
where
    E: Endpoint,
    F: Fn(Call<E>) -> A + Send + 'static,
    A: Future<Output = Answer<E>> + Send + 'static,
{
    let task = tokio::spawn(async move {
        let api = call.api.clone();
        if let Err(response) = idempotency::begin::<E>(&api, &deed, &once).await {
            return response;
        }
        let outcome = handler(call).await;
        End::of::<E>(&deed, &outcome).note(&api, &deed).await;
        respond::<E>(outcome)
    });
    let failed = |error| ApiError::new(ErrorCode::Internal, format!("the request has failed: {error}"), None);
    task.await.unwrap_or_else(|error| failed(error).into_response())
}

/// The routes, with what they serve.
pub(super) struct Routes {
    pub(super) router: Router<Api>,
    pub(super) served: Vec<Route>,
}

impl Routes {
    pub(super) fn new() -> Routes {
        Routes { router: Router::new(), served: Vec::new() }
    }

    /// Adds an endpoint, which follows from the handler's type.
    pub(super) fn serve<E, F, A>(mut self, handler: F) -> Routes
    where
        E: Endpoint,
        F: Fn(Call<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Answer<E>> + Send + 'static,
    {
        let Route { path, method, .. } = E::ROUTE;
        let method = match method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Delete => MethodFilter::DELETE,
        };
        let answer = move |call: Call<E>| {
            let (nobody, deed) = (call.caller.is_none(), call.deed.clone());
            let handler = handler.clone();
            async move {
                let response = match (call.once.clone(), deed.clone()) {
                    (Some(once), Some(deed)) => carry_out_once(call, once, deed, handler).await,
                    _ => respond::<E>(handler(call).await),
                };
                if let Some(deed) = deed {
                    audit::log(&deed, response.status().as_u16());
                }
                // Whoever shows no grant learns the status alone, unless the answer names nothing.
                if nobody && E::ROUTE != Ready::ROUTE { response.status().into_response() } else { response }
            }
        };
        self.router = self.router.route(path, on(method, answer));
        self.served.push(E::ROUTE);
        self
    }

    /// Adds an endpoint that shows something without an end: its handler makes the response.
    pub(super) fn stream<E, F, A>(mut self, handler: F) -> Routes
    where
        E: Endpoint,
        F: Fn(HeaderMap, Call<E>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        self.router = self.router.route(E::ROUTE.path, on(MethodFilter::GET, handler));
        self.served.push(E::ROUTE);
        self
    }
}
