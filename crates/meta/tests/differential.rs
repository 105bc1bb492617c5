//! The embedded server against etcd itself: the same random requests to both, the same answers from both.
#![allow(clippy::unwrap_used)]

use crate::support::Server;
use azekura_meta::etcd::{
    CompactionRequest, Compare, DeleteRangeRequest, Event, KVClient, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchClient, WatchCreateRequest, WatchRequest, compare::TargetUnion, request_op, watch_request,
};
use prost::Message;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// SplitMix64, for requests that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next(100) < percent
    }

    fn key(&mut self) -> Vec<u8> {
        if self.chance(1) {
            return Vec::new();
        }
        format!("k{}", self.next(6)).into_bytes()
    }

    fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let end = match self.next(5) {
            0..=2 => Vec::new(),
            3 => vec![0],
            _ => self.key(),
        };
        (self.key(), end)
    }

    fn put(&mut self) -> PutRequest {
        let ignore_value = self.chance(10);
        PutRequest {
            key: self.key(),
            value: if ignore_value && self.chance(80) { Vec::new() } else { format!("v{}", self.next(4)).into_bytes() },
            lease: if self.chance(3) { 12345 } else { 0 },
            prev_kv: self.chance(50),
            ignore_value,
            ignore_lease: self.chance(5),
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = self.range();
        DeleteRangeRequest { key, range_end, prev_kv: self.chance(50) }
    }

    /// A deletion for a transaction. etcd 3.4 overlooks that a put lies in a deletion "to the last key" of its
    /// transaction; the embedded server refuses it like every other overlap.
    fn bounded_delete(&mut self) -> DeleteRangeRequest {
        let mut request = self.delete();
        if request.range_end == [0] {
            request.range_end = b"k9".to_vec();
        }
        request
    }

    fn read(&mut self, newest: i64) -> RangeRequest {
        let (key, range_end) = self.range();
        let sort_order = self.next(3) as i32;
        RangeRequest {
            key,
            range_end,
            limit: self.next(4) as i64,
            revision: if self.chance(30) { self.next(newest as u64 + 3) as i64 } else { 0 },
            sort_order,
            // Ties are in no particular order in etcd but for unique targets: the key and the revision of change,
            // and that only when no two keys were changed by one transaction.
            sort_target: 0,
            keys_only: self.chance(10),
            count_only: self.chance(10),
            min_mod_revision: if self.chance(10) { self.next(newest as u64) as i64 } else { 0 },
            max_create_revision: if self.chance(10) { self.next(newest as u64) as i64 } else { 0 },
            ..RangeRequest::default()
        }
    }

    fn condition(&mut self, newest: i64) -> Compare {
        let (key, range_end) = if self.chance(20) { self.range() } else { (self.key(), Vec::new()) };
        let revision = self.next(newest as u64 + 1) as i64;
        let (target, union) = match self.next(4) {
            0 => (0, TargetUnion::Version(self.next(4) as i64)),
            1 => (1, TargetUnion::CreateRevision(if self.chance(50) { 0 } else { revision })),
            2 => (2, TargetUnion::ModRevision(if self.chance(50) { 0 } else { revision })),
            _ => (3, TargetUnion::Value(format!("v{}", self.next(4)).into_bytes())),
        };
        Compare { result: self.next(4) as i32, target, key, target_union: Some(union), range_end }
    }

    fn txn(&mut self, newest: i64, depth: u32) -> TxnRequest {
        let conditions = self.next(3);
        let compare = (0..conditions).map(|_| self.condition(newest)).collect();
        let mut branch = || {
            let length = self.next(4);
            (0..length)
                .map(|_| {
                    let request = match self.next(10) {
                        0..=4 => request_op::Request::Put(self.put()),
                        5..=6 => request_op::Request::DeleteRange(self.bounded_delete()),
                        7 if depth > 0 => request_op::Request::Txn(self.txn(newest, depth - 1)),
                        _ => request_op::Request::Range(self.read(newest)),
                    };
                    RequestOp { request: Some(request) }
                })
                .collect()
        };
        let (success, failure) = (branch(), branch());
        TxnRequest { compare, success, failure }
    }
}

/// One server's client, and what it has answered so far.
struct Side {
    kv: KVClient<Channel>,
    channel: Channel,
}

impl Side {
    async fn new(server: &Server) -> Side {
        let channel = Endpoint::from_shared(server.endpoint()).unwrap().connect().await.unwrap();
        Side { kv: KVClient::new(channel.clone()), channel }
    }

    async fn events(&self, from: i64, upto: i64) -> Vec<Event> {
        let create = WatchCreateRequest {
            key: vec![0],
            range_end: vec![0],
            start_revision: from,
            prev_kv: true,
            ..WatchCreateRequest::default()
        };
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let request = WatchRequest { request: Some(watch_request::Request::Create(create)) };
        sender.send(request).await.unwrap();
        let requests = Requests(receiver);
        let mut answers = WatchClient::new(self.channel.clone()).watch(requests).await.unwrap().into_inner();
        let mut events: Vec<Event> = Vec::new();
        while events.last().and_then(|event| event.kv.as_ref()).is_none_or(|kv| kv.mod_revision < upto) {
            let answer = tokio::time::timeout(std::time::Duration::from_secs(10), answers.message()).await;
            let answer = answer.expect("all events arrive").unwrap().unwrap();
            assert!(!answer.canceled, "{answer:?}");
            events.extend(answer.events);
        }
        events
    }
}

struct Requests(tokio::sync::mpsc::Receiver<WatchRequest>);

impl tonic::codegen::tokio_stream::Stream for Requests {
    type Item = WatchRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<WatchRequest>> {
        self.0.poll_recv(context)
    }
}

/// An answer without what names the server.
fn comparable<T: Message + Clone + std::fmt::Debug>(
    answer: Result<tonic::Response<T>, Status>,
    strip: impl Fn(&mut T) -> Option<i64>,
) -> (String, Option<i64>) {
    match answer {
        Ok(answer) => {
            let mut answer = answer.into_inner();
            let revision = strip(&mut answer);
            (format!("{revision:?} {answer:?}"), revision)
        }
        Err(status) => (format!("{:?} {}", status.code(), status.message()), None),
    }
}

fn strip_txn(answer: &mut azekura_meta::etcd::TxnResponse) -> Option<i64> {
    use azekura_meta::etcd::response_op::Response;
    for operation in &mut answer.responses {
        match &mut operation.response {
            Some(Response::Range(inner)) => inner.header = None,
            Some(Response::Put(inner)) => inner.header = None,
            Some(Response::DeleteRange(inner)) => inner.header = None,
            Some(Response::Txn(inner)) => {
                strip_txn(inner);
            }
            None => {}
        }
    }
    answer.header.take().map(|header| header.revision)
}

macro_rules! on_both {
    ($sides:expr, $method:ident, $request:expr, $strip:expr) => {{
        let request = $request;
        let (a, b) = (&mut $sides.0, &mut $sides.1);
        let (a, b) = tokio::join!(a.kv.$method(request.clone()), b.kv.$method(request.clone()));
        let (a, b) = (comparable(a, $strip), comparable(b, $strip));
        assert_eq!(a.0, b.0, "embedded server (left) and etcd (right) differ about {request:?}");
        a.1
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_answers() {
    // Requests that once were answered differently.
    for seed in [9, 1234] {
        let Some(etcd) = Server::etcd().await else { return };
        compare_servers(seed, &Server::embedded().await, &etcd).await;
    }
}

async fn compare_servers(seed: u64, embedded: &Server, etcd: &Server) {
    let mut sides = (Side::new(embedded).await, Side::new(etcd).await);
    let mut random = Random(seed);
    let mut newest = 1;
    for _ in 0..1_500 {
        let revision = match random.next(10) {
            0..=2 => on_both!(sides, put, random.put(), |answer| answer.header.take().map(|header| header.revision)),
            3 => on_both!(sides, delete_range, random.delete(), |answer| answer.header.take().map(|h| h.revision)),
            4..=5 => on_both!(sides, range, random.read(newest), |answer| answer.header.take().map(|h| h.revision)),
            _ => on_both!(sides, txn, random.txn(newest, 2), strip_txn),
        };
        newest = revision.unwrap_or(newest).max(newest);
    }
    assert!(newest > 300, "{newest}");
    let (mine, theirs) = tokio::join!(sides.0.events(1, newest), sides.1.events(1, newest));
    for (mine, theirs) in mine.iter().zip(&theirs) {
        assert_eq!(mine, theirs);
    }
    assert_eq!(mine.len(), theirs.len());
    // And after a compaction.
    let compact = CompactionRequest { revision: newest - 50, physical: true };
    on_both!(sides, compact, compact.clone(), |answer| answer.header.take().map(|header| header.revision));
    on_both!(sides, compact, compact.clone(), |answer| answer.header.take().map(|header| header.revision));
    for _ in 0..200 {
        on_both!(sides, range, random.read(newest), |answer| answer.header.take().map(|header| header.revision));
    }
    let (mine, theirs) = tokio::join!(sides.0.events(newest - 49, newest), sides.1.events(newest - 49, newest));
    assert_eq!(mine, theirs);
}
