//! A call's function on a thread that may wait.

use tonic::{Request, Response, Status};

use crate::Outcome;

/// Runs a call, and tells the log of one that failed. `volume`: the name of the one that it is about, or
/// the names of several.
pub(crate) async fn run<Q, A>(
    name: &'static str,
    volume: Option<String>,
    request: Request<Q>,
    call: impl FnOnce(Q) -> Outcome<A> + Send + 'static,
) -> Result<Response<A>, Status>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    let request = request.into_inner();
    let outcome = tokio::task::spawn_blocking(move || call(request)).await;
    let outcome = outcome.unwrap_or_else(|error| Err(Status::internal(format!("{name} has ended: {error}"))));
    if let Err(status) = &outcome {
        tracing::warn!(volume, "{name}: {:?}: {}", status.code(), status.message());
    }
    outcome.map(Response::new)
}

/// A field that names volumes.
pub(crate) trait Names {
    /// The names, with commas between them.
    fn names(&self) -> String;
}

impl Names for String {
    fn names(&self) -> String {
        self.clone()
    }
}

impl Names for Vec<String> {
    fn names(&self) -> String {
        self.join(", ")
    }
}

/// A service whose calls are functions of `self`: `Service for Type { name: Request => Answer; … }`. Behind a request
/// that is about volumes or a snapshot stands the field that names them: `Request (volume_id)`.
macro_rules! service {
    ($service:path => $type:ty { $($name:ident: $request:ident $(($volume:ident))? => $answer:ident;)+ }) => {
        #[tonic::async_trait]
        impl $service for $type {
            $(
                async fn $name(
                    &self,
                    request: tonic::Request<crate::proto::$request>,
                ) -> Result<tonic::Response<crate::proto::$answer>, tonic::Status> {
                    let this = self.clone();
                    let call = move |request| <$type>::$name(&this, request);
                    let volume = None$(.or(Some(crate::calls::Names::names(&request.get_ref().$volume))))?;
                    crate::calls::run(stringify!($name), volume, request, call).await
                }
            )+
        }
    };
}

pub(crate) use service;
