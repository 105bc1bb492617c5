//! Asking other nodes' APIs.

use std::net::SocketAddr;
use std::time::Duration;

use azekura_api::{Answer as _, Endpoint, NoQuery};
use azekura_base::{NodeId, Secret};
use azekura_model::Model;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::caller::node_header;

/// Nodes asked at once.
const PEERS_AT_ONCE: usize = 64;
/// Longest wait for another node's answer.
const PEER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Largest answer accepted, bytes: 10,000 groups' counters and more.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What this node shows others to be known by.
#[derive(Clone, Debug)]
pub(super) struct Proof(HeaderValue);

impl Proof {
    pub(super) fn of(node: NodeId, secret: &Secret) -> Proof {
        let mut header = HeaderValue::from_str(&node_header(node, secret)).unwrap_or(HeaderValue::from_static(""));
        // Nothing prints it.
        header.set_sensitive(true);
        Proof(header)
    }
}

/// GETs something from every node that gives signs of life, except from this one, which has `own` (`None`: it can't be
/// had). By node number, ascending; an error is a sentence's end.
pub(super) async fn ask_all<E>(
    here: NodeId,
    proof: &Proof,
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
    for (id, address) in model.nodes.values().map(|node| (node.id, node.api_address)) {
        if asked.len() >= PEERS_AT_ONCE {
            answers.extend(asked.join_next().await.and_then(Result::ok));
        }
        if let Some(own) = own.take_if(|_| id == here) {
            asked.spawn(async move { (id, own.await.ok_or_else(|| "its data plane does not answer".to_owned())) });
        } else if model.alive.contains_key(&id) {
            let proof = proof.clone();
            asked.spawn(async move { (id, get_within::<E>(address, &proof, &NoQuery {}, PEER_TIMEOUT).await) });
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
pub(super) async fn get_within<E: Endpoint<Names = [String; 0]>>(
    address: SocketAddr,
    proof: &Proof,
    query: &E::Query,
    longest: Duration,
) -> Result<E::Answer, String> {
    let path = E::target(&[], query).map_err(|error| error.to_string())?;
    match tokio::time::timeout(longest, fetch(address, proof, &path)).await {
        Ok(Ok(bytes)) => E::Answer::from_bytes(&bytes).map_err(|error| format!("its answer can't be read: {error}")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

async fn fetch(address: SocketAddr, proof: &Proof, path: &str) -> Result<Bytes, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let request = hyper::Request::get(path)
        .header(hyper::header::HOST, address.to_string())
        .header(hyper::header::CONNECTION, "close")
        .header(hyper::header::AUTHORIZATION, proof.0.clone())
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
