//! Asking other nodes' APIs, over HTTPS. Both ends know each other by the keys in their records; no certificate counts.

use std::net::SocketAddr;
use std::time::Duration;

use azekura_api::{Answer as _, Endpoint, NoQuery};
use azekura_base::{NodeId, PeerKey};
use azekura_model::{Model, NodeRecord};
use azekura_transport::https::{Https, peer_of};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Nodes asked at once.
const PEERS_AT_ONCE: usize = 64;
/// Longest wait for another node's answer.
const PEER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Largest answer accepted, bytes: 10,000 groups' counters and more.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What another node is asked.
type Request = hyper::Request<Full<Bytes>>;

/// Where another node is asked, and by which keys it is known.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: SocketAddr,
    keys: Vec<PeerKey>,
}

impl Peer {
    /// A node's API; an error is a sentence's end.
    pub(crate) fn of(node: &NodeRecord) -> Result<Peer, String> {
        let keys =
            node.keys.clone().filter(|keys| !keys.is_empty()).ok_or("it is shut out, or its key is not known")?;
        if !node.api_tls {
            return Err("its version does not speak HTTPS".to_owned());
        }
        Ok(Peer { address: node.api_address, keys })
    }
}

/// GETs something from every node that gives signs of life, except from this one, which has `own` (`None`: it can't be
/// had). By node number, ascending; an error is a sentence's end.
pub(crate) async fn ask_all<E>(
    here: NodeId,
    https: &Https,
    model: &Model,
    own: impl Future<Output = Option<E::Answer>> + Send + 'static,
) -> Vec<(NodeId, Result<E::Answer, String>)>
where
    E: Endpoint<Names = [String; 0], Query = NoQuery>,
    E::Answer: 'static,
{
    let mut answers = Vec::with_capacity(model.nodes.len());
    let mut asked = JoinSet::new();
    let mut own = Some(own);
    for (id, peer) in model.nodes.values().map(|node| (node.id, Peer::of(node))) {
        if asked.len() >= PEERS_AT_ONCE {
            answers.extend(asked.join_next().await.and_then(Result::ok));
        }
        if let Some(own) = own.take_if(|_| id == here) {
            asked.spawn(async move { (id, own.await.ok_or_else(|| "its data plane does not answer".to_owned())) });
        } else if model.alive.contains_key(&id) {
            let https = https.clone();
            asked.spawn(async move {
                let answer = match peer {
                    Ok(peer) => get_within::<E>(&peer, &https, &NoQuery {}, PEER_TIMEOUT).await,
                    Err(reason) => Err(reason),
                };
                (id, answer)
            });
        } else {
            answers.push((id, Err("it gives no sign of life".to_owned())));
        }
    }
    while let Some(outcome) = asked.join_next().await {
        answers.extend(outcome.ok());
    }
    answers.sort_by_key(|(node, _)| *node);
    answers
}

/// GETs something from another node, within this time; an error is a sentence's end ("no answer in time").
pub(crate) async fn get_within<E: Endpoint<Names = [String; 0]>>(
    peer: &Peer,
    https: &Https,
    query: &E::Query,
    longest: Duration,
) -> Result<E::Answer, String> {
    let path = E::target(&[], query).map_err(|error| error.to_string())?;
    let request = hyper::Request::get(path).body(Full::default()).map_err(|error| error.to_string())?;
    answer::<E>(peer, https, request, longest).await
}

/// POSTs something to another node, within this time; an error is a sentence's end. Nobody knows then whether it was
/// done.
pub(crate) async fn post_within<E: Endpoint<Names = [String; 0], Query = NoQuery>>(
    peer: &Peer,
    https: &Https,
    body: &E::Body,
    longest: Duration,
) -> Result<E::Answer, String> {
    let path = E::target(&[], &NoQuery {}).map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let request = hyper::Request::post(path).header(hyper::header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::from(body)).map_err(|error| error.to_string())?;
    answer::<E>(peer, https, request, longest).await
}

async fn answer<E: Endpoint>(
    peer: &Peer,
    https: &Https,
    request: Request,
    longest: Duration,
) -> Result<E::Answer, String> {
    match tokio::time::timeout(longest, exchange(peer, https, request)).await {
        Ok(Ok(bytes)) => E::Answer::from_bytes(&bytes).map_err(|error| format!("its answer can't be read: {error}")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

async fn exchange(Peer { address, keys }: &Peer, https: &Https, mut request: Request) -> Result<Bytes, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(https.dialling()).connect(name, stream).await.map_err(|error| text(&error))?;
    if !peer_of(stream.get_ref().1.peer_certificates()).is_some_and(|key| keys.contains(&key)) {
        return Err("its key is not the one in its record".to_owned());
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let host = HeaderValue::from_str(&address.to_string()).map_err(|error| text(&error))?;
    request.headers_mut().insert(hyper::header::HOST, host);
    request.headers_mut().insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
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
