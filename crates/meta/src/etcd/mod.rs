//! The subset of the etcd v3 gRPC API that the client and the embedded server speak.
//!
//! Message and field numbers are those of etcd's `rpc.proto` and `kv.proto` (v3.4 and later); fields that neither side
//! uses are left out, as protobuf allows.

mod auth;
mod messages;

pub use auth::{AuthenticateRequest, AuthenticateResponse};
pub use messages::*;

#[allow(missing_docs, clippy::all)]
mod stubs {
    pub mod kv {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.KV.rs"));
    }
    pub mod watch {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.Watch.rs"));
    }
    pub mod lease {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.Lease.rs"));
    }
    pub mod maintenance {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.Maintenance.rs"));
    }
    pub mod auth {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.Auth.rs"));
    }
}

pub use stubs::auth::auth_client::AuthClient;
pub use stubs::kv::{k_v_client::KVClient, k_v_server as kv_server};
pub use stubs::lease::{lease_client::LeaseClient, lease_server};
pub use stubs::maintenance::maintenance_server;
pub use stubs::watch::{watch_client::WatchClient, watch_server};

impl From<KeyValue> for azekura_model::KeyValue {
    fn from(kv: KeyValue) -> azekura_model::KeyValue {
        let KeyValue { key, value, mod_revision, lease, .. } = kv;
        azekura_model::KeyValue { key, value, mod_revision, lease }
    }
}

impl Event {
    /// What has changed; `None` for an event that names no key.
    #[must_use]
    pub fn into_change(self) -> Option<azekura_model::Change> {
        let kv = self.kv?;
        let deleted = self.r#type == i32::from(EventType::Delete);
        Some(if deleted { azekura_model::Change::Delete(kv.key) } else { azekura_model::Change::Put(kv.into()) })
    }
}

/// The end of the range that holds every key starting with `prefix` (etcd API, "Range"): the prefix with its last
/// byte below 0xff raised by one; `[0]`, meaning "to the last key", when there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn prefix_ends() {
        assert_eq!(prefix_end(b"a/"), b"a0");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
        assert_eq!(prefix_end(b""), b"\0");
    }
}
