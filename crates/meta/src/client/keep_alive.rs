//! Renewing a lease.

use std::time::Duration;

use tokio::sync::mpsc;
use tonic::Streaming;

use super::session::{Objection, line};
use super::{EtcdClient, EtcdError, SILENCE, Trouble, describe, require_leader};
use crate::etcd::{LeaseClient, LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use crate::stream::ReceiverStream;

/// What is said of a stream that has ended.
const CLOSED: &str = "the server closed the stream";

/// A stream of renewals of one lease.
#[derive(Debug)]
pub struct LeaseStream {
    lease: i64,
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
    client: EtcdClient,
    turn: usize,
    url: String,
}

impl EtcdClient {
    /// Opens a stream of renewals and renews once; `Ok(None)`: the lease is gone.
    pub async fn keep_alive(&self, lease: i64, wait: Duration) -> Result<Option<LeaseStream>, EtcdError> {
        let (turn, connection) = self.current();
        let lost = |reason: String, trouble| {
            self.give_up(turn, trouble);
            EtcdError::Uncertain { endpoint: connection.url.clone(), reason }
        };
        let (requests, stream) = mpsc::channel(1);
        let first = LeaseKeepAliveRequest { id: lease };
        requests.try_send(first).map_err(|error| lost(error.to_string(), Trouble::Unable))?;
        let opened = async {
            let ticket = self.session.ticket(&connection.url, &connection.channel).await?;
            let mut client = LeaseClient::new(line(&connection.channel, &ticket));
            let asked = async {
                let mut answers = client.lease_keep_alive(require_leader(ReceiverStream(stream))).await?.into_inner();
                let first = answers.message().await?;
                Ok((answers, first))
            };
            match asked.await {
                Ok(opened) => Ok(opened),
                Err(status) => Err(self.object(connection, &ticket, &status).await),
            }
        };
        match tokio::time::timeout(wait, opened).await {
            Ok(Ok((_, Some(answer)))) if answer.ttl <= 0 => Ok(None),
            Ok(Ok((answers, Some(_)))) => {
                let url = connection.url.clone();
                Ok(Some(LeaseStream { lease, requests, answers, client: self.clone(), turn, url }))
            }
            Ok(Ok((_, None))) => Err(lost(CLOSED.to_owned(), Trouble::Unable)),
            // The caller tries again, with another token.
            Ok(Err(Objection::Ticket(reason))) => Err(EtcdError::Denied { endpoint: connection.url.clone(), reason }),
            Ok(Err(Objection::Final(error))) => Err(error),
            Ok(Err(Objection::Endpoint(reason, trouble))) => Err(lost(reason, trouble)),
            Ok(Err(Objection::Silence)) | Err(_) => Err(lost(SILENCE.to_owned(), Trouble::Silent)),
        }
    }
}

impl LeaseStream {
    /// Renews the lease; false: it is gone.
    pub async fn renew(&mut self, wait: Duration) -> Result<bool, EtcdError> {
        let exchange = async {
            let request = LeaseKeepAliveRequest { id: self.lease };
            self.requests.send(request).await.map_err(|_| (CLOSED.to_owned(), Trouble::Unable))?;
            match self.answers.message().await {
                Ok(Some(answer)) => Ok(answer.ttl > 0),
                Ok(None) => Err((CLOSED.to_owned(), Trouble::Unable)),
                Err(status) => Err((describe(&status), Trouble::of(&status))),
            }
        };
        let outcome = tokio::time::timeout(wait, exchange).await;
        let outcome = outcome.unwrap_or_else(|_| Err((SILENCE.to_owned(), Trouble::Silent)));
        outcome.map_err(|(reason, trouble)| {
            self.client.give_up(self.turn, trouble);
            EtcdError::Uncertain { endpoint: self.url.clone(), reason }
        })
    }
}
