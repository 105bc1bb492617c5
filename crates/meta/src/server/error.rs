//! Errors of the embedded server: those that stop it from starting, and those that it answers, in etcd's own words, so
//! that etcd's clients understand them.

use std::net::SocketAddr;
use std::path::PathBuf;

use tonic::{Code, Status};

/// Why the embedded server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The database's folder can't be made.
    #[error("cannot create the folder of the configuration database, {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another process has the database open.
    #[error("the configuration database {path} is in use by another process; stop that process first")]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The database can't be opened, read or written.
    #[error("the configuration database {path} cannot be used: {reason}")]
    Database {
        /// The database file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The database was made by a newer version.
    #[error("the configuration database {path} has format {found}, this version reads {known}; use a newer azekura")]
    Format {
        /// The database file.
        path: PathBuf,
        /// Format in the file.
        found: u64,
        /// Format that this version writes.
        known: u64,
    },
    /// The address can't be listened on.
    #[error("the server can't listen on {address}: is another process using the port?")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
}

/// A request refused, or failed, with etcd's code and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A key is empty.
    EmptyKey,
    /// A value together with "keep the value".
    ValueProvided,
    /// A lease together with "keep the lease".
    LeaseProvided,
    /// "Keep the value" for a key that is not there.
    KeyNotFound,
    /// More operations or conditions than [`super::TXN_OPERATIONS_MAX`].
    TooManyOperations,
    /// One transaction writes a key twice.
    DuplicateKey,
    /// A message lacks its choice, or names an unknown enumeration value.
    Malformed(&'static str),
    /// The request's keys and values are larger than [`super::REQUEST_BYTES_MAX`].
    TooLarge,
    /// History before this revision is gone.
    Compacted,
    /// The revision is not there yet.
    FutureRevision,
    /// No such lease.
    LeaseNotFound,
    /// The lease's id is taken.
    LeaseExists,
    /// The lease would live longer than etcd allows.
    LeaseTooLong,
    /// The database failed; the server answers nothing more.
    Failed(String),
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Status {
        use RequestError as E;
        let (code, text) = match error {
            E::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided".into()),
            E::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided".into()),
            E::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided".into()),
            E::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found".into()),
            E::TooManyOperations => (Code::InvalidArgument, "etcdserver: too many operations in txn request".into()),
            E::DuplicateKey => (Code::InvalidArgument, "etcdserver: duplicate key given in txn request".into()),
            E::Malformed(what) => (Code::InvalidArgument, format!("malformed request: {what}")),
            E::TooLarge => (Code::InvalidArgument, "etcdserver: request is too large".into()),
            E::Compacted => (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted".into()),
            E::FutureRevision => (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision".into()),
            E::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found".into()),
            E::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists".into()),
            E::LeaseTooLong => (Code::OutOfRange, "etcdserver: too large lease TTL".into()),
            E::Failed(why) => (Code::Unavailable, format!("the configuration database failed: {why}")),
        };
        Status::new(code, text)
    }
}
