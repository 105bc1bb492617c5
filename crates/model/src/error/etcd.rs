//! What a configuration server, or the way to it, has against a request.

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// An endpoint that isn't `host:port`, `http://host:port` or `https://host:port`.
    #[error("'{endpoint}' is not an address of a configuration server: {reason}")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No endpoint answered in time.
    #[error("no configuration server answers at {endpoints}: {reason}")]
    Unreachable {
        /// All endpoints, separated by commas.
        endpoints: String,
        /// The last failure.
        reason: String,
    },
    /// A write whose answer was lost.
    #[error("the configuration server at {endpoint} did not confirm a change: {reason}")]
    Uncertain {
        /// The endpoint that the write was sent to.
        endpoint: String,
        /// The failure.
        reason: String,
    },
    /// What is to prove who this end and the servers are can't be used: a file, or options that contradict each other.
    #[error("{0}")]
    Proof(String),
    /// The server does not let this user do that, or does not know him.
    #[error("the configuration server at {endpoint} does not allow it: {reason}")]
    Denied {
        /// The endpoint that was asked.
        endpoint: String,
        /// What it said, and what that means.
        reason: String,
    },
    /// History before the wanted revision is gone.
    #[error("the configuration server's history no longer reaches back to the wanted revision")]
    Compacted,
    /// The server refused the request.
    #[error("the configuration server refused: {0}")]
    Refused(String),
}

impl EtcdError {
    /// What to do about it, when there is something to say.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            EtcdError::Endpoint { .. } => Some("give it as host:port, for example 127.0.0.1:2379"),
            EtcdError::Unreachable { .. } => {
                Some("check that etcd, or the node with the embedded server, runs and that the address is right")
            }
            EtcdError::Uncertain { .. } => Some("look whether the change was made, and try again if not"),
            EtcdError::Denied { .. } | EtcdError::Proof(_) => {
                Some("docs/operations/configuration-security.md says which users, roles and files are needed")
            }
            EtcdError::Compacted | EtcdError::Refused(_) => None,
        }
    }
}
