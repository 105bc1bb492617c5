//! A call's function on a thread that may wait.

use tonic::{Request, Response, Status};

use crate::Outcome;

/// Runs a call, and tells the log of one that failed.
pub(crate) async fn run<Q, A>(
    name: &'static str,
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
        tracing::warn!("{name}: {:?}: {}", status.code(), status.message());
    }
    outcome.map(Response::new)
}

/// A service whose calls are functions of `self`: `Service for Type { name: Request => Answer, … }`.
macro_rules! service {
    ($service:path => $type:ty { $($name:ident: $request:ident => $answer:ident;)+ }) => {
        #[tonic::async_trait]
        impl $service for $type {
            $(
                async fn $name(
                    &self,
                    request: tonic::Request<crate::proto::$request>,
                ) -> Result<tonic::Response<crate::proto::$answer>, tonic::Status> {
                    let this = self.clone();
                    crate::calls::run(stringify!($name), request, move |request| <$type>::$name(&this, request)).await
                }
            )+
        }
    };
}

pub(crate) use service;
