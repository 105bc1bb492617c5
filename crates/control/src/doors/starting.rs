//! What is answered while a node starts: its listeners are there before it can serve.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use azekura_api::{ErrorBody, ErrorCode};
use azekura_transport::https::Https;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use super::Port;

/// Whoever asks within this time of the start waits: most starts are over by then, and he is served.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Answers at a node's listeners until it is dropped.
#[derive(Debug)]
pub(super) struct Starting {
    _tasks: JoinSet<()>,
}

impl Starting {
    /// Answers with this text, after `patience`.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn begin(
        port: &TcpListener,
        local: Option<&UnixListener>,
        https: &Https,
        text: String,
        patience: Duration,
    ) -> io::Result<Starting> {
        let router = Router::new().fallback(move || std::future::ready(answer(text.clone())));
        let mut tasks = JoinSet::new();
        // Further descriptors of the same sockets: whoever is not accepted here waits for those who serve.
        let port = TcpListener::from_std(std::net::TcpListener::from(port.as_fd().try_clone_to_owned()?))?;
        let (https, at_port) = (https.clone(), router.clone());
        tasks.spawn(async move {
            tokio::time::sleep(patience).await;
            if let Ok(port) = Port::open(port, &https) {
                let _ended = axum::serve(port, at_port).await;
            }
        });
        if let Some(local) = local {
            let local = std::os::unix::net::UnixListener::from(local.as_fd().try_clone_to_owned()?);
            let local = UnixListener::from_std(local)?;
            tasks.spawn(async move {
                tokio::time::sleep(patience).await;
                let _ended = axum::serve(local, router).await;
            });
        }
        Ok(Starting { _tasks: tasks })
    }
}

/// Connections end with it: the next request is for whoever serves then.
fn answer(message: String) -> Response {
    let hint = "wait until it has started ('azekura status --wait SECS'), or ask another node; its log tells more";
    let body = ErrorBody { code: ErrorCode::NotReady, message, hint: Some(hint.to_owned()) };
    let close = [(header::CONNECTION, HeaderValue::from_static("close"))];
    (StatusCode::SERVICE_UNAVAILABLE, close, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_transport::NodeKey;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};

    async fn asked(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_node_that_starts_says_so_until_it_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let (port, local) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), UnixListener::bind(&path).unwrap());
        let address = port.local_addr().unwrap();
        let https = Https::new(&NodeKey::generate().unwrap()).unwrap();
        let begin = |patience| Starting::begin(&port, Some(&local), &https, "it waits".into(), patience).unwrap();
        let starting = begin(Duration::ZERO);
        // The answers end their connections: else nothing would end the reading.
        let answers = [
            asked(TcpStream::connect(address).await.unwrap()).await,
            asked(UnixStream::connect(&path).await.unwrap()).await,
        ];
        for answer in answers {
            let answer = answer.to_lowercase();
            assert!(answer.starts_with("http/1.1 503") && answer.contains("connection: close"), "{answer}");
            assert!(answer.contains(r#""code":"not_ready","message":"it waits""#), "{answer}");
        }
        drop(starting);
        // Whoever asks before the patience is over is for those who serve.
        let patient = begin(Duration::from_secs(3600));
        let (_port, _local) = (TcpStream::connect(address).await.unwrap(), UnixStream::connect(&path).await.unwrap());
        drop(patient);
        let accepted = async { (port.accept().await.unwrap(), local.accept().await.unwrap()) };
        tokio::time::timeout(Duration::from_secs(60), accepted).await.expect("both are still there");
    }
}
