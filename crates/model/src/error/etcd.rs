//! What a configuration server, or the way to it, has against a request.

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// An endpoint that isn't `host:port` or `http://host:port`.
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
    /// History before the wanted revision is gone.
    #[error("the configuration server's history no longer reaches back to the wanted revision")]
    Compacted,
    /// The server refused the request.
    #[error("the configuration server refused: {0}")]
    Refused(String),
}
