//! Asking other nodes' APIs.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;

/// Longest wait for another node's answer.
const PEER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Largest answer accepted, bytes: 10,000 groups' counters and more.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// GETs `path` from another node; an error is a sentence's end ("no answer in time").
pub(super) async fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> Result<T, String> {
    match tokio::time::timeout(PEER_TIMEOUT, fetch(address, path)).await {
        Ok(Ok(bytes)) => serde_json::from_slice(&bytes).map_err(|error| format!("its answer can't be read: {error}")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

async fn fetch(address: SocketAddr, path: &str) -> Result<Bytes, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let request = hyper::Request::get(path)
        .header(hyper::header::HOST, address.to_string())
        .header(hyper::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    // The connection is driven here, and ends here, also when the wait is over.
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| text(&error))?;
        if response.status() != hyper::StatusCode::OK {
            return Err(format!("it answered {}", response.status()));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        body.collect().await.map(|body| body.to_bytes()).map_err(|error| text(&error))
    };
    tokio::pin!(exchange);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut connection => {
            // What was received before the end may still make the answer complete.
            let rest = exchange.await;
            match ended {
                Ok(()) => rest,
                Err(error) => rest.map_err(|_| text(&error)),
            }
        }
    }
}
