//! Who may ask a server that speaks TLS: nodes that its own database knows by their keys, and the node that serves it.

use std::collections::BTreeSet;
use std::sync::Arc;

use azekura_base::PeerKey;
use azekura_model::{NodeRecord, PREFIX};
use tokio::sync::watch;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use super::range::KeyRange;
use super::state::State;
use crate::etcd::prefix_end;

/// The keys of all nodes.
pub type Keys = Arc<BTreeSet<PeerKey>>;

/// The key that the other end of a connection has proved, as requests carry it.
#[derive(Clone, Copy, Debug)]
pub struct Proved(pub PeerKey);

/// Who is let in.
#[derive(Clone, Debug)]
pub struct Admission {
    own: PeerKey,
    keys: watch::Receiver<Keys>,
}

/// Refuses requests of those who are not let in any more; without an [`Admission`] nobody is asked.
#[derive(Clone, Debug)]
pub struct Gate(pub Option<Admission>);

fn nodes() -> Vec<u8> {
    format!("{PREFIX}nodes/").into_bytes()
}

/// Whether a change of this key may change who is let in.
#[must_use]
pub fn concerns(key: &[u8]) -> bool {
    key.strip_prefix(PREFIX.as_bytes()).is_some_and(|rest| rest.starts_with(b"nodes/"))
}

/// The keys in the records of nodes. A node that was shut out has none, one that has left for good opens nothing, and
/// nor does a record that can't be read.
#[must_use]
pub fn keys_in(state: &State) -> Keys {
    let start = nodes();
    let range = KeyRange::new(start.clone(), prefix_end(&start));
    let records = state.scan(&range).filter_map(|kv| serde_json::from_slice::<NodeRecord>(&kv.value).ok());
    let keys = records.filter(|node| !node.removed).flat_map(|node| node.keys.unwrap_or_default());
    Arc::new(keys.collect())
}

impl Admission {
    /// `own`: of the node that serves, which is let in before any node is registered, and whatever the database says:
    /// it has the database in its folder.
    #[must_use]
    pub fn new(own: PeerKey, keys: watch::Receiver<Keys>) -> Admission {
        Admission { own, keys }
    }

    /// Whether who has proved this key is let in now.
    #[must_use]
    pub fn admits(&self, key: PeerKey) -> bool {
        key == self.own || self.keys.borrow().contains(&key)
    }

    /// Waits until who has proved this key is let in no more.
    pub async fn ended(mut self, key: PeerKey) {
        if key == self.own {
            std::future::pending::<()>().await;
        }
        // An end of the sender is the end of the server.
        drop(self.keys.wait_for(|keys| !keys.contains(&key)).await);
    }
}

impl Interceptor for Gate {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(admission) = &self.0 else { return Ok(request) };
        match request.extensions().get::<Proved>() {
            Some(Proved(key)) if admission.admits(*key) => Ok(request),
            // The connection ends at the same time; this is for what has been received on it already.
            _ => Err(Status::unauthenticated("this key is no node's of the cluster")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::KeyValue;

    fn state(records: &[(&str, serde_json::Value)]) -> State {
        let mut state = State::default();
        for (name, record) in records {
            let (key, value) = (format!("{PREFIX}{name}").into_bytes(), record.to_string().into_bytes());
            state.keys.insert(key.clone(), Arc::new(KeyValue { key, value, ..KeyValue::default() }));
        }
        state
    }

    fn node(keys: &[PeerKey], removed: bool) -> serde_json::Value {
        serde_json::json!({
            "id": 1, "uuid": "u", "name": "n", "data_address": "127.0.0.1:1", "api_address": "127.0.0.1:2",
            "nbd_addresses": [], "keys": keys, "removed": removed,
        })
    }

    #[test]
    fn nodes_that_are_there_are_let_in_and_the_one_that_serves() {
        let [own, first, second, gone, other] = [1, 2, 3, 4, 5].map(|byte| PeerKey([byte; 32]));
        let mut without = node(&[], false);
        without.as_object_mut().unwrap().remove("keys");
        let state = state(&[
            ("nodes/1", node(&[first, second], false)),
            ("nodes/2", node(&[], false)),
            ("nodes/3", node(&[gone], true)),
            ("nodes/4", serde_json::json!({ "keys": [other] })),
            ("nodes/5", without),
            ("nodesy", node(&[other], false)),
            ("devices/1", node(&[other], false)),
        ]);
        let keys = keys_in(&state);
        assert_eq!(*keys, BTreeSet::from([first, second]));
        let (sender, receiver) = watch::channel(keys);
        let admission = Admission::new(own, receiver);
        assert!(admission.admits(own) && admission.admits(first) && !admission.admits(gone));
        sender.send_replace(Keys::default());
        assert!(admission.admits(own) && !admission.admits(first));
    }

    #[test]
    fn records_of_nodes_concern_and_nothing_else() {
        assert!(concerns(b"/azekura/v1/nodes/1") && !concerns(b"/azekura/v1/nodesy") && !concerns(b"nodes/1"));
        assert!(!concerns(b"/azekura/v1/alive/1") && !concerns(b""));
    }

    #[test]
    fn a_request_without_a_key_is_refused_where_keys_are_asked_for() {
        let (own, (_sender, receiver)) = (PeerKey([1; 32]), watch::channel(Keys::default()));
        let mut gate = Gate(Some(Admission::new(own, receiver)));
        assert!(gate.call(Request::new(())).is_err());
        for (key, passes) in [(own, true), (PeerKey([2; 32]), false)] {
            let mut request = Request::new(());
            request.extensions_mut().insert(Proved(key));
            assert_eq!(gate.call(request).is_ok(), passes);
        }
        assert!(Gate(None).call(Request::new(())).is_ok());
    }
}
