//! What a client still sends when its request is answered already: read, and thrown away.
//!
//! A refusal, and what takes no body, is answered as soon as the head of the request has been read. To close a
//! connection on whose other end somebody sends resets it, and a reset may overtake the answer (RFC 9112, section 9.6):
//! the client would learn that, and not why it was refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::timeout;

use super::BODY_BYTES_MAX;

/// How long an answer waits for the rest of its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A body that its reader may leave half-read.
#[derive(Clone)]
struct Left(Arc<Mutex<Body>>);

impl Left {
    fn with<T>(&self, look: impl FnOnce(&mut Body) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what is left, unless that is more than any request has.
    async fn read(mut self) {
        let mut room = BODY_BYTES_MAX as u64;
        while self.size_hint().lower() <= room && !self.is_end_stream() {
            let Some(Ok(frame)) = self.frame().await else { return };
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            let Some(less) = room.checked_sub(bytes) else { return };
            room = less;
        }
    }
}

impl HttpBody for Left {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with(|body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|body| HttpBody::size_hint(body))
    }
}

/// Answers, and holds the answer back until its request has been read.
pub(super) async fn read(request: Request, next: Next) -> Response {
    // This client sends its body only when it is asked to (RFC 9110, section 10.1.1).
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let left = Left(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(head, Body::new(left.clone()))).await;
    let _ = timeout(PATIENCE, left.read()).await;
    response
}
