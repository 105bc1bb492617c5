//! Generates the gRPC service stubs of the etcd v3 API subset that we speak. The messages are written by hand in
//! `src/etcd/messages.rs`, so that a build needs neither `protoc` nor a copy of etcd's files.

use tonic_build::manual::{Builder, Method, Service};

/// A method whose Rust name, route, request and response follow etcd's naming; `streams` is (client, server).
fn method(name: &str, route: &str, request: &str, response: &str, streams: (bool, bool)) -> Method {
    let mut method = Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::etcd::{request}"))
        .output_type(format!("crate::etcd::{response}"))
        .codec_path("tonic_prost::ProstCodec");
    if streams.0 {
        method = method.client_streaming();
    }
    if streams.1 {
        method = method.server_streaming();
    }
    method.build()
}

fn main() {
    let unary = (false, false);
    let both = (true, true);
    let kv = Service::builder()
        .name("KV")
        .package("etcdserverpb")
        .method(method("range", "Range", "RangeRequest", "RangeResponse", unary))
        .method(method("put", "Put", "PutRequest", "PutResponse", unary))
        .method(method("delete_range", "DeleteRange", "DeleteRangeRequest", "DeleteRangeResponse", unary))
        .method(method("txn", "Txn", "TxnRequest", "TxnResponse", unary))
        .method(method("compact", "Compact", "CompactionRequest", "CompactionResponse", unary))
        .build();
    let watch = Service::builder()
        .name("Watch")
        .package("etcdserverpb")
        .method(method("watch", "Watch", "WatchRequest", "WatchResponse", both))
        .build();
    let lease = Service::builder()
        .name("Lease")
        .package("etcdserverpb")
        .method(method("lease_grant", "LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse", unary))
        .method(method("lease_revoke", "LeaseRevoke", "LeaseRevokeRequest", "LeaseRevokeResponse", unary))
        .method(method("lease_keep_alive", "LeaseKeepAlive", "LeaseKeepAliveRequest", "LeaseKeepAliveResponse", both))
        .method(method(
            "lease_time_to_live",
            "LeaseTimeToLive",
            "LeaseTimeToLiveRequest",
            "LeaseTimeToLiveResponse",
            unary,
        ))
        .method(method("lease_leases", "LeaseLeases", "LeaseLeasesRequest", "LeaseLeasesResponse", unary))
        .build();
    let maintenance = Service::builder()
        .name("Maintenance")
        .package("etcdserverpb")
        .method(method("status", "Status", "StatusRequest", "StatusResponse", unary))
        .build();
    let auth = Service::builder()
        .name("Auth")
        .package("etcdserverpb")
        .method(method("authenticate", "Authenticate", "AuthenticateRequest", "AuthenticateResponse", unary))
        .build();
    Builder::new().compile(&[kv, watch, lease, maintenance, auth]);
}
