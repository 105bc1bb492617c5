//! `GET /v1/watch`: changes as they happen, as server-sent events.
//!
//! One task of the node compares each state of the cluster with the one before and keeps what users see of that in a
//! [`Ring`]. A watcher is a position in it: a slow one costs no more than one that waits, and when the ring has lost
//! its position it is told the whole state.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use azekura_api::endpoint::Watch;
use azekura_api::{
    Answer as _, ErrorCode, Events, LAST_EVENT_HEADER, NO_POSITION, RESET_EVENT, ResetView, Watched, write_event,
};
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::Model;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use super::call::Call;
use super::caller::{Caller, unauthorized};
use super::error::ApiError;
use super::jobs::jobs;
use crate::data_keys::DataKeys;
use differences::{differences, nodes, told_job, told_node, told_volume, volume};
use ring::{Change, Next, Ring, Told};

mod differences;
mod ring;

/// Watchers at once; each has a connection, and at most [`CHUNKS_MAX`] chunks on their way.
const WATCHERS_MAX: usize = 256;
/// A watcher hears something so often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A watcher that takes nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(30);
/// A position that another node has told may come to this one so much later.
const OTHERS_LEAD: Duration = Duration::from_secs(2);
/// Events are sent together up to about so much, bytes.
const CHUNK_BYTES: usize = 32 << 10;
/// Chunks that wait for the connection to take them.
const CHUNKS_MAX: usize = 2;

/// What the node knows, and what led there.
#[derive(Debug)]
struct Seen {
    model: Arc<Model>,
    ring: Ring,
}

/// The changes of this node's cluster.
#[derive(Clone)]
pub(super) struct Feed {
    seen: Arc<Mutex<Seen>>,
    /// The newest position, whenever there is one; closed when the node stops.
    news: watch::Receiver<i64>,
    places: Arc<Semaphore>,
    keys: DataKeys,
}

impl Feed {
    /// Follows the cluster until the task is ended.
    pub(super) fn start(meta: &MetaClient, keys: &DataKeys) -> (Feed, JoinHandle<()>) {
        let mut models = meta.watch_model();
        let model = models.borrow_and_update().clone();
        let (sender, news) = watch::channel(model.revision);
        let ring = Ring::new(model.revision);
        let seen = Arc::new(Mutex::new(Seen { model, ring }));
        let feed = Feed { seen, news, places: Arc::new(Semaphore::new(WATCHERS_MAX)), keys: keys.clone() };
        let own = feed.clone();
        let task = tokio::spawn(async move {
            while models.changed().await.is_ok() {
                let model = models.borrow_and_update().clone();
                sender.send_replace(own.step(model));
            }
        });
        (feed, task)
    }

    /// Takes another state in; gives its position.
    fn step(&self, model: Arc<Model>) -> i64 {
        let before = Arc::clone(&self.seen().model);
        // Only this task changes it: nobody waits while views are made.
        let events = differences(&self.keys, &before, &model);
        let (mut seen, revision) = (self.seen(), model.revision);
        match events {
            Some(events) => seen.ring.push(revision, events),
            None => seen.ring.restart(revision),
        }
        seen.model = model;
        revision
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has asked what.
struct Watcher {
    feed: Feed,
    caller: Caller,
    kinds: Vec<Watched>,
    /// Up to where he was told; `None`: nothing that counts.
    position: Option<i64>,
    out: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

/// The watcher is gone, or is to be.
struct Over;

impl Watcher {
    /// Tells what there is until the watcher goes, or his grant does, or the node stops.
    async fn run(mut self) -> Result<(), Over> {
        let mut news = self.feed.news.clone();
        if let Some(position) = self.position {
            let reached = news.wait_for(|newest| *newest >= position);
            // Else it is of another past, which the ring tells.
            let _ = tokio::time::timeout(OTHERS_LEAD, reached).await;
        }
        loop {
            news.mark_unchanged();
            let (next, model) = {
                let seen = self.feed.seen();
                let next = self.position.map_or(Next::Unknown, |position| seen.ring.next(position));
                (next, Arc::clone(&seen.model))
            };
            if !self.caller.counts(&model, unix_seconds()) {
                return Err(Over);
            }
            match next {
                Next::Events(position, events) => self.tell(position, &events).await?,
                Next::Unknown => self.tell_all(&model.within(self.caller.bounds())).await?,
                Next::Nothing => tokio::select! {
                    changed = news.changed() => changed.map_err(|_| Over)?,
                    () = self.out.closed() => return Err(Over),
                    () = tokio::time::sleep(KEEP_ALIVE) => self.keep_alive().await?,
                },
            }
        }
    }

    async fn send(&self, text: &mut String) -> Result<(), Over> {
        let bytes = Bytes::from(std::mem::take(text));
        match tokio::time::timeout(PATIENCE, self.out.send(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Over),
        }
    }

    /// Writes an event, and sends what is written when that is enough.
    async fn add(&self, text: &mut String, id: &str, told: &Told) -> Result<(), Over> {
        write_event(text, id, &format!("{}.{}", told.kind.noun(), told.change.word()), &told.data);
        if text.len() >= CHUNK_BYTES { self.send(text).await } else { Ok(()) }
    }

    /// Only the last event has the new position: who was told half of them is told all of them again.
    async fn tell(&mut self, position: i64, events: &[Told]) -> Result<(), Over> {
        let (before, after) = (self.id(), position.to_string());
        let bounds = self.caller.bounds();
        let seen = |told: &&Told| told.volume.as_ref().is_none_or(|volume| bounds.sees(volume));
        let wanted: Vec<&Told> = events.iter().filter(|told| self.kinds.contains(&told.kind)).filter(seen).collect();
        let mut text = String::new();
        for (at, told) in wanted.iter().enumerate() {
            let id = if at + 1 == wanted.len() { &after } else { &before };
            self.add(&mut text, id, told).await?;
        }
        self.position = Some(position);
        if text.is_empty() { Ok(()) } else { self.send(&mut text).await }
    }

    /// The whole state; the last event of it has its position.
    async fn tell_all(&mut self, model: &Model) -> Result<(), Over> {
        let nodes = if self.kinds.contains(&Watched::Nodes) { nodes(model) } else { Vec::new() };
        let volumes = self.kinds.contains(&Watched::Volumes);
        let jobs = if self.kinds.contains(&Watched::Jobs) { jobs(model) } else { Vec::new() };
        let things = nodes.len() + jobs.len() + if volumes { model.volumes.len() } else { 0 };
        let (last, mut left, mut text) = (model.revision.to_string(), things, String::new());
        let data = serde_json::to_string(&ResetView { revision: model.revision, things }).map_err(|_| Over)?;
        write_event(&mut text, if things == 0 { &last } else { NO_POSITION }, RESET_EVENT, &data);
        for node in &nodes {
            left -= 1;
            let id = if left == 0 { &last } else { NO_POSITION };
            self.add(&mut text, id, &told_node(Change::Created, node)).await?;
        }
        for job in &jobs {
            left -= 1;
            let id = if left == 0 { &last } else { NO_POSITION };
            self.add(&mut text, id, &told_job(Change::Created, job)).await?;
        }
        for record in model.volumes.values().filter(|_| volumes) {
            left -= 1;
            let id = if left == 0 { &last } else { NO_POSITION };
            let told = told_volume(Change::Created, &volume(&self.feed.keys, model, record));
            self.add(&mut text, id, &told).await?;
        }
        self.position = Some(model.revision);
        if text.is_empty() { Ok(()) } else { self.send(&mut text).await }
    }

    /// The position as an id.
    fn id(&self) -> String {
        self.position.map_or_else(|| NO_POSITION.to_owned(), |position| position.to_string())
    }

    /// A comment, and up to where nothing has changed: the client need not come again from further back.
    async fn keep_alive(&self) -> Result<(), Over> {
        self.send(&mut format!(":\nid: {}\n\n", self.id())).await
    }
}

/// The body of an answer that has no end.
struct Stream(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// From where a client wants to go on.
fn position_of(headers: &HeaderMap, since: Option<&str>) -> Result<Option<i64>, ApiError> {
    let header = headers.get(LAST_EVENT_HEADER).map(|value| value.to_str().unwrap_or("?"));
    let Some(said) = header.or(since).filter(|said| !said.is_empty()) else { return Ok(None) };
    let position = said.parse::<i64>().map_err(|_| {
        let message = format!("'{}' is not the id of an event", said.escape_debug());
        let hint = "send the id of the last event that came, or none to be told the whole state".to_owned();
        ApiError::new(ErrorCode::Refused, message, Some(hint))
    });
    position.map(Some)
}

pub(super) async fn watch(headers: HeaderMap, call: Call<Watch>) -> Result<Response, ApiError> {
    let Call { api, query, caller, .. } = call;
    let caller = caller.ok_or_else(unauthorized)?;
    let kinds = Watched::list(&query.of).map_err(|word| {
        let message = format!("'{}' can't be watched", word.escape_debug());
        let words = Watched::ALL.map(Watched::word).join(", ");
        ApiError::new(ErrorCode::Refused, message, Some(format!("what can: {words}, with commas between them")))
    })?;
    kinds.iter().try_for_each(|kind| caller.check(kind.needs()))?;
    let position = position_of(&headers, query.since.as_deref())?;
    let place = Arc::clone(&api.feed.places).try_acquire_owned().map_err(|_| {
        let message = format!("{WATCHERS_MAX} watchers are here already");
        ApiError::new(ErrorCode::Unavailable, message, Some("watch through another node".to_owned()))
    })?;
    let (out, chunks) = mpsc::channel(CHUNKS_MAX);
    let watcher = Watcher { feed: api.feed, caller, kinds, position, out, _place: place };
    tokio::spawn(async move {
        // The end of the stream tells it.
        let _ = watcher.run().await;
    });
    let mut response = Response::new(Body::new(Stream(chunks)));
    let media_type = HeaderValue::from_static(Events::MEDIA_TYPE.unwrap_or_default());
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read() {
        let with = |said: &str| {
            HeaderMap::from_iter([(
                axum::http::HeaderName::from_static(LAST_EVENT_HEADER),
                HeaderValue::from_str(said).unwrap(),
            )])
        };
        assert_eq!(position_of(&HeaderMap::new(), None).unwrap(), None);
        assert_eq!(position_of(&HeaderMap::new(), Some("7")).unwrap(), Some(7));
        assert_eq!(position_of(&with("8"), Some("7")).unwrap(), Some(8), "where a browser has the URL of before");
        assert_eq!(position_of(&with(""), None).unwrap(), None);
        for wrong in ["x", "1.5", "99999999999999999999"] {
            assert!(position_of(&with(wrong), None).is_err(), "{wrong}");
        }
    }
}
