//! Following the changes of a range of keys.

use azekura_model::Change;
use tokio::sync::{mpsc, watch};
use tonic::Streaming;

use super::session::{Objection, line};
use super::{EtcdClient, EtcdError, REQUEST_TIMEOUT, SILENCE, Trouble, describe, require_leader};
use crate::etcd::{
    Event, WatchClient, WatchCreateRequest, WatchRequest, WatchResponse, prefix_end, watch_request::Request,
};
use crate::stream::ReceiverStream;

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The history no longer reaches back to where the watch began, or the server is behind it: read everything again.
    Resync,
    /// The connection is gone: watch again from the next revision.
    Lost(String),
}

/// A running watch.
#[derive(Debug)]
pub struct WatchStream {
    /// Keeps the request side open; the server ends the watch when it closes.
    _requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    turn: watch::Receiver<usize>,
}

impl EtcdClient {
    /// Watches all keys that start with `prefix`, from `revision` on.
    pub async fn watch_prefix(&self, prefix: &str, revision: i64) -> Result<WatchStream, WatchEnd> {
        let (turn, connection) = self.current();
        let receiver = self.turn.subscribe();
        let lost = |reason: String, trouble| {
            self.give_up(turn, trouble);
            WatchEnd::Lost(reason)
        };
        let (requests, stream) = mpsc::channel(1);
        let create = WatchCreateRequest {
            key: prefix.into(),
            range_end: prefix_end(prefix.as_bytes()),
            start_revision: revision,
            ..WatchCreateRequest::default()
        };
        let create = WatchRequest { request: Some(Request::Create(create)) };
        requests.try_send(create).map_err(|error| lost(error.to_string(), Trouble::Unable))?;
        let opened = async {
            let ticket = self.session.ticket(&connection.url, &connection.channel).await?;
            let mut client =
                WatchClient::new(line(&connection.channel, &ticket)).max_decoding_message_size(super::ANSWER_BYTES_MAX);
            let asked = async {
                let mut answers = client.watch(require_leader(ReceiverStream(stream))).await?.into_inner();
                let first = answers.message().await?;
                Ok((answers, first))
            };
            match asked.await {
                Ok((answers, first)) => Ok((answers, first, ticket)),
                Err(status) => Err(self.object(connection, &ticket, &status).await),
            }
        };
        let (answers, first, ticket) = match tokio::time::timeout(REQUEST_TIMEOUT, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(Objection::Endpoint(reason, trouble))) => return Err(lost(reason, trouble)),
            // Whoever follows reads everything again first, with another token.
            Ok(Err(Objection::Ticket(reason))) => return Err(WatchEnd::Lost(reason)),
            Ok(Err(Objection::Final(error))) => return Err(WatchEnd::Lost(error.to_string())),
            Ok(Err(Objection::Silence)) | Err(_) => return Err(lost(SILENCE.to_owned(), Trouble::Silent)),
        };
        let first = first.ok_or_else(|| lost("the server closed the watch".to_owned(), Trouble::Unable))?;
        if !first.created || first.canceled {
            // etcd 3.4 says "permission denied" of a token that counts no more, too.
            if let Some(denied) = self.session.watch_denied(&first.cancel_reason) {
                self.session.spent(&ticket).await;
                return Err(WatchEnd::Lost(denied));
            }
            return Err(end_of(&first));
        }
        // A server that has not come as far as we have (its data was lost) would stay silent until it has.
        if first.header.is_some_and(|header| header.revision + 1 < revision) {
            return Err(WatchEnd::Resync);
        }
        Ok(WatchStream { _requests: requests, answers, turn: receiver })
    }
}

impl WatchStream {
    /// The next changes, whole revisions of them, and the last revision that they reach.
    pub async fn next(&mut self) -> Result<(Vec<Change>, i64), WatchEnd> {
        loop {
            let message = tokio::select! {
                message = self.answers.message() => message,
                _ = self.turn.changed() => return Err(WatchEnd::Lost("another endpoint is in use".to_owned())),
            };
            let answer = match message {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(WatchEnd::Lost("the server closed the watch".to_owned())),
                Err(status) => return Err(WatchEnd::Lost(describe(&status))),
            };
            if answer.canceled {
                return Err(end_of(&answer));
            }
            let last = answer.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max();
            if let Some(last) = last {
                return Ok((answer.events.into_iter().filter_map(Event::into_change).collect(), last));
            }
        }
    }
}

fn end_of(answer: &WatchResponse) -> WatchEnd {
    if answer.compact_revision > 0 { WatchEnd::Resync } else { WatchEnd::Lost(answer.cancel_reason.clone()) }
}

impl From<WatchEnd> for EtcdError {
    fn from(end: WatchEnd) -> EtcdError {
        match end {
            WatchEnd::Resync => EtcdError::Compacted,
            WatchEnd::Lost(reason) => EtcdError::Refused(reason),
        }
    }
}
