//! The unary gRPC services: keys, leases (renewal is a stream), status.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::database::random_id;
use super::error::RequestError;
use super::limits::STREAM_ANSWERS_MAX;
use super::stopping::Stopping;
use super::writer::Writer;
use crate::etcd::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseStatus, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
    kv_server::KV, lease_server::Lease, maintenance_server::Maintenance,
};
use crate::stream::ReceiverStream;

/// Serves requests from the shared state and the writer.
#[derive(Clone, Debug)]
pub struct Services {
    /// Executes what changes the state.
    pub writer: Writer,
    /// Turns true when the server stops; streams end then.
    pub stopping: Stopping,
}

impl Services {
    async fn header(&self) -> Option<ResponseHeader> {
        self.writer.shared.state.read().await.header()
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl KV for Services {
    async fn range(&self, request: Request<RangeRequest>) -> Answer<RangeResponse> {
        let state = self.writer.shared.state.read().await;
        Ok(Response::new(state.range(request.get_ref())?))
    }

    async fn put(&self, request: Request<PutRequest>) -> Answer<PutResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.writer.write(move |execution| execution.put(&request)).await?))
    }

    async fn delete_range(&self, request: Request<DeleteRangeRequest>) -> Answer<DeleteRangeResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.writer.write(move |execution| execution.delete_range(&request)).await?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Answer<TxnResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.writer.write(move |execution| execution.txn(&request)).await?))
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Answer<CompactionResponse> {
        let revision = request.into_inner().revision;
        self.writer.write(move |execution| execution.compact(revision)).await?;
        Ok(Response::new(CompactionResponse { header: self.header().await }))
    }
}

#[tonic::async_trait]
impl Lease for Services {
    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> Answer<LeaseGrantResponse> {
        let LeaseGrantRequest { ttl, id } = request.into_inner();
        let id = if id == 0 { random_id() as i64 } else { id };
        // etcd grants at least a second or two; ours grants what is asked for, from one second.
        let ttl = ttl.max(1);
        self.writer.write(move |execution| execution.grant(id, ttl, Instant::now())).await?;
        Ok(Response::new(LeaseGrantResponse { header: self.header().await, id, ttl, error: String::new() }))
    }

    async fn lease_revoke(&self, request: Request<LeaseRevokeRequest>) -> Answer<LeaseRevokeResponse> {
        let id = request.into_inner().id;
        self.writer.write(move |execution| execution.revoke(id)).await?;
        Ok(Response::new(LeaseRevokeResponse { header: self.header().await }))
    }

    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Answer<Self::LeaseKeepAliveStream> {
        let mut requests = request.into_inner();
        let services = self.clone();
        let (answers, stream) = mpsc::channel(STREAM_ANSWERS_MAX);
        tokio::spawn(async move {
            let mut stopping = services.stopping.clone();
            loop {
                let request = tokio::select! {
                    message = requests.message() => message,
                    () = stopping.told() => break,
                };
                let Ok(Some(LeaseKeepAliveRequest { id })) = request else { break };
                let ttl = services.writer.shared.leases().renew(id, Instant::now()).unwrap_or(0);
                // The revision is the one that the watches know; a renewal must not wait for a commit in progress.
                let header = ResponseHeader {
                    revision: *services.writer.shared.revision.borrow(),
                    raft_term: 1,
                    ..ResponseHeader::default()
                };
                let answer = LeaseKeepAliveResponse { header: Some(header), id, ttl };
                if answers.send(Ok(answer)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream(stream))))
    }

    async fn lease_time_to_live(&self, request: Request<LeaseTimeToLiveRequest>) -> Answer<LeaseTimeToLiveResponse> {
        let LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let header = self.header().await;
        let leases = self.writer.shared.leases();
        let Some(lease) = leases.get(id) else {
            return Ok(Response::new(LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() }));
        };
        let left = lease.deadline.saturating_duration_since(Instant::now());
        Ok(Response::new(LeaseTimeToLiveResponse {
            header,
            id,
            ttl: left.as_secs() as i64,
            granted_ttl: lease.ttl,
            keys: if keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
        }))
    }

    async fn lease_leases(&self, _: Request<LeaseLeasesRequest>) -> Answer<LeaseLeasesResponse> {
        let header = self.header().await;
        let leases = self.writer.shared.leases().ids().map(|id| LeaseStatus { id }).collect();
        Ok(Response::new(LeaseLeasesResponse { header, leases }))
    }
}

#[tonic::async_trait]
impl Maintenance for Services {
    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        let header = self.header().await;
        let size = self.writer.shared.size.load(Ordering::Relaxed) as i64;
        let revision = header.as_ref().map_or(0, |header| header.revision as u64);
        let failure = self.writer.shared.state.read().await.check_failure();
        Ok(Response::new(StatusResponse {
            leader: header.as_ref().map_or(0, |header| header.member_id),
            header,
            version: concat!("azekura-", env!("CARGO_PKG_VERSION")).into(),
            db_size: size,
            db_size_in_use: size,
            raft_index: revision,
            raft_applied_index: revision,
            raft_term: 1,
            errors: failure
                .err()
                .map(|error: RequestError| Status::from(error).message().to_owned())
                .into_iter()
                .collect(),
        }))
    }
}
