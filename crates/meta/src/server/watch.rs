//! The watch service. A watch is a cursor into the history: it is woken when the revision moves and sends what is new,
//! so a slow client costs no queue, and one that falls behind the history is told so ("compacted") and can start again.

use std::collections::BTreeMap;
use std::pin::Pin;

use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::error::RequestError;
use super::limits::{STREAM_ANSWERS_MAX, WATCH_EVENTS_MAX, WATCHES_PER_STREAM_MAX};
use super::range::KeyRange;
use super::services::Services;
use super::state::State;
use crate::etcd::{
    Event, EventType, WatchCreateRequest, WatchFilter, WatchRequest, WatchResponse, watch_request, watch_server::Watch,
};
use crate::stream::ReceiverStream;

/// The id that answers a progress request (etcd: `InvalidWatchID`).
const NO_WATCH: i64 = -1;

#[tonic::async_trait]
impl Watch for Services {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let (answers, stream) = mpsc::channel(STREAM_ANSWERS_MAX);
        let session = Session { services: self.clone(), watches: BTreeMap::new(), next_id: 0, answers };
        tokio::spawn(session.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream(stream))))
    }
}

/// One client's stream with its watches.
struct Session {
    services: Services,
    watches: BTreeMap<i64, Cursor>,
    next_id: i64,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
}

struct Cursor {
    range: KeyRange,
    /// The first revision not sent yet.
    next: i64,
    skip_puts: bool,
    skip_deletions: bool,
    with_before: bool,
}

/// The client is gone, or the server can't serve it any more.
struct Ended;

impl Session {
    async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let mut revision = self.services.writer.shared.revision.subscribe();
        let mut stopping = self.services.stopping.clone();
        loop {
            let outcome = tokio::select! {
                message = requests.message() => match message {
                    Ok(Some(WatchRequest { request: Some(request) })) => self.handle(request).await,
                    Ok(Some(WatchRequest { request: None })) => Ok(()),
                    Ok(None) | Err(_) => Err(Ended),
                },
                changed = revision.changed() => match changed {
                    Ok(()) => self.deliver_all().await,
                    Err(_) => Err(Ended),
                },
                () = stopping.told() => Err(Ended),
            };
            if outcome.is_err() {
                return;
            }
        }
    }

    async fn handle(&mut self, request: watch_request::Request) -> Result<(), Ended> {
        match request {
            watch_request::Request::Create(request) => self.create(request).await,
            watch_request::Request::Cancel(request) => {
                if self.watches.remove(&request.watch_id).is_some() {
                    let answer =
                        WatchResponse { watch_id: request.watch_id, canceled: true, ..WatchResponse::default() };
                    self.send(answer).await?;
                }
                Ok(())
            }
            watch_request::Request::Progress(_) => {
                // Everything up to the answered revision must have been sent before.
                self.deliver_all().await?;
                self.send(WatchResponse { watch_id: NO_WATCH, ..WatchResponse::default() }).await
            }
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), Ended> {
        let taken = request.watch_id != 0 && self.watches.contains_key(&request.watch_id);
        if taken || self.watches.len() >= WATCHES_PER_STREAM_MAX {
            let cancel_reason = if taken { "duplicate watch id" } else { "too many watches on one stream" }.to_owned();
            let answer = WatchResponse {
                watch_id: NO_WATCH,
                created: true,
                canceled: true,
                cancel_reason,
                ..WatchResponse::default()
            };
            return self.send(answer).await;
        }
        let id = if request.watch_id != 0 {
            request.watch_id
        } else {
            while self.watches.contains_key(&self.next_id) {
                self.next_id += 1;
            }
            self.next_id
        };
        self.next_id = self.next_id.max(id).saturating_add(1);
        let now = self.services.writer.shared.state.read().await.revision;
        let filters: Vec<WatchFilter> = request.filters().collect();
        // etcd: an empty key means "from the first key"; a past start is delivered from the history.
        let start = if request.key.is_empty() { vec![0] } else { request.key };
        let cursor = Cursor {
            range: KeyRange::new(start, request.range_end),
            next: if request.start_revision > 0 { request.start_revision } else { now + 1 },
            skip_puts: filters.contains(&WatchFilter::NoPut),
            skip_deletions: filters.contains(&WatchFilter::NoDelete),
            with_before: request.prev_kv,
        };
        self.watches.insert(id, cursor);
        self.send(WatchResponse { watch_id: id, created: true, ..WatchResponse::default() }).await?;
        self.deliver(id).await
    }

    async fn deliver_all(&mut self) -> Result<(), Ended> {
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            self.deliver(id).await?;
        }
        Ok(())
    }

    /// Sends one watch all that it has not seen.
    async fn deliver(&mut self, id: i64) -> Result<(), Ended> {
        loop {
            let Some(cursor) = self.watches.get_mut(&id) else { return Ok(()) };
            let state = self.services.writer.shared.state.read().await;
            if cursor.next > state.revision {
                return Ok(());
            }
            let (answer, ended) = match cursor.take(&state) {
                Ok(events) => (WatchResponse { watch_id: id, events, ..WatchResponse::default() }, false),
                Err(RequestError::Compacted) => {
                    let answer = WatchResponse {
                        watch_id: id,
                        canceled: true,
                        compact_revision: state.compacted,
                        cancel_reason: Status::from(RequestError::Compacted).message().to_owned(),
                        ..WatchResponse::default()
                    };
                    (answer, true)
                }
                Err(error) => {
                    drop(state);
                    // The stream ends either way.
                    let _gone = self.answers.send(Err(error.into())).await;
                    return Err(Ended);
                }
            };
            let header = state.header();
            drop(state);
            if ended {
                self.watches.remove(&id);
            }
            if ended || !answer.events.is_empty() {
                self.answers.send(Ok(WatchResponse { header, ..answer })).await.map_err(|_| Ended)?;
            }
        }
    }

    async fn send(&self, answer: WatchResponse) -> Result<(), Ended> {
        let header = self.services.writer.shared.state.read().await.header();
        self.answers.send(Ok(WatchResponse { header, ..answer })).await.map_err(|_| Ended)
    }
}

impl Cursor {
    /// The next events, whole revisions, about [`WATCH_EVENTS_MAX`] of them; moves the cursor behind what it looked at.
    fn take(&mut self, state: &State) -> Result<Vec<Event>, RequestError> {
        let mut events = Vec::new();
        let mut seen = state.revision;
        for change in state.changes_from(self.next)? {
            if events.len() >= WATCH_EVENTS_MAX && change.revision > seen {
                break;
            }
            if !self.range.contains(&change.key) {
                continue;
            }
            let deleted = change.after.is_none();
            if if deleted { self.skip_deletions } else { self.skip_puts } {
                continue;
            }
            let event = change.event(self.with_before);
            debug_assert_eq!(event.r#type == i32::from(EventType::Delete), deleted);
            events.push(event);
            if events.len() == WATCH_EVENTS_MAX {
                seen = change.revision;
            }
        }
        self.next = seen + 1;
        Ok(events)
    }
}
