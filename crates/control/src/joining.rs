//! A machine asks a cluster to take it in. The node that it asks is known by its certificate before it is told the
//! token.

use std::time::Duration;

use azekura_api::endpoint::NodeJoin;
use azekura_api::{Answer as _, Endpoint, ErrorBody, JoinCluster, JoinedView};
use azekura_base::JoinToken;
use azekura_transport::https::{Trust, trusting};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Longest wait for all of that.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer accepted, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Asks the node at this URL (`https://HOST:PORT`) to take the machine in.
///
/// # Errors
/// A sentence that says why it did not, with what to do.
pub async fn join(url: &str, token: &JoinToken, machine: &JoinCluster) -> Result<JoinedView, String> {
    let address = url.trim().trim_end_matches('/').strip_prefix("https://").filter(|address| {
        let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
        matches!(port, Some(Ok(_))) && !address.contains('/')
    });
    let address = address.ok_or_else(|| format!("'{url}' is not the URL of a node's API: write https://HOST:PORT"))?;
    match tokio::time::timeout(PATIENCE, ask(address, token, machine)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer from {url} in time")),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn ask(address: &str, token: &JoinToken, machine: &JoinCluster) -> Result<JoinedView, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("no answer from {address}: {error}"))?;
    let client = trusting(&Trust::Fingerprint(token.authority)).map_err(text)?;
    let name = ServerName::try_from("node").map_err(text)?;
    let stream = TlsConnector::from(client).connect(name, stream).await.map_err(|error| {
        format!(
            "{address} has not proved to be a node of the cluster that the token is from, and was not told it ({error}); is it \
             the right address? If the cluster's authority was replaced since, make another token"
        )
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let driven = tokio::spawn(connection);
    let request = hyper::Request::post(NodeJoin::ROUTE.path)
        .header(HOST, address)
        .header(AUTHORIZATION, format!("Bearer {}", token.reveal()))
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(serde_json::to_vec(machine).map_err(text)?)))
        .map_err(text)?;
    let response = sender.send_request(request).await.map_err(text)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(text)?.to_bytes();
    driven.abort();
    match status {
        NodeJoin::STATUS => JoinedView::from_bytes(&body).map_err(|error| format!("its answer can't be read: {error}")),
        401 => {
            Err("the token is used up, ended or revoked: make another one (azekura token create NAME --join)"
                .to_owned())
        }
        _ => Err(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { message, hint: Some(hint), .. }) => format!("{message}\nhint: {hint}"),
            Ok(ErrorBody { message, .. }) => message,
            Err(_) => format!("it answered {status}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{GrantId, PeerKey, Secret, Token};

    #[tokio::test]
    async fn nothing_is_asked_where_it_would_be_read_on_the_way() {
        let token = Token { id: GrantId(1), secret: Secret([2; 32]) };
        let token = JoinToken { token, authority: PeerKey([3; 32]) };
        let machine = JoinCluster {
            name: "n2".to_owned(),
            uuid: "u".to_owned(),
            key: PeerKey([4; 32]),
            data_address: ([127, 0, 0, 1], 1).into(),
            api_address: ([127, 0, 0, 1], 2).into(),
            site: String::new(),
            rack: String::new(),
            cluster: None,
        };
        for url in
            ["http://127.0.0.1:7180", "127.0.0.1:7180", "https://127.0.0.1", "https://", "https://:1", "https://a:1/b"]
        {
            let refused = join(url, &token, &machine).await.unwrap_err();
            assert!(refused.contains("write https://"), "{url}: {refused}");
        }
    }
}
