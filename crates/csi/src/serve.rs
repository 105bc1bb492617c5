//! Serving at a socket until the process is told to stop.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::controller::Controller;
use crate::error::CsiError;
use crate::identity::Who;
use crate::metadata::Metadata;
use crate::node::Node;
use crate::proto::controller_server::ControllerServer;
use crate::proto::group_controller_server::GroupControllerServer;
use crate::proto::identity_server::IdentityServer;
use crate::proto::node_server::NodeServer;
use crate::proto::snapshot_metadata_server::SnapshotMetadataServer;

/// Threads that hold connections; calls have others.
const THREADS: usize = 2;

/// What is served beside the driver's identity.
#[derive(Debug)]
pub(crate) enum Offered {
    Controller(Controller),
    Node(Node),
}

/// The socket's file that an endpoint names.
fn socket(endpoint: &str) -> Result<PathBuf, CsiError> {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(CsiError {
            message: format!("'{endpoint}' is not an endpoint of this driver"),
            hint: "give a socket with its whole path: --endpoint unix:///csi/csi.sock",
        });
    }
    Ok(path.into())
}

/// Listens; the file of an earlier process goes, and nothing that is not a socket.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(std::io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(path)
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn serve(endpoint: &str, name: String, offered: Offered) -> Result<(), CsiError> {
    let path = socket(endpoint)?;
    let hint = "give a name with --driver-name";
    let who = Who::new(name, matches!(offered, Offered::Controller(_)))
        .map_err(|status| CsiError { message: status.message().to_owned(), hint })?;
    let failed = |what: &str, error: &dyn std::fmt::Display| CsiError {
        message: format!("{what} {}: {error}", path.display()),
        hint: "is its folder there, and may this process write to it? --endpoint names another one",
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| failed("can't start the threads for", &error))?;
    runtime.block_on(async {
        let listener = listen(&path).map_err(|error| failed("can't listen at", &error))?;
        let stop = stopped().map_err(|error| failed("can't wait for signals at", &error))?;
        let router = Server::builder().add_service(IdentityServer::new(who));
        let router = match offered {
            Offered::Controller(controller) => router
                .add_service(GroupControllerServer::new(controller.clone()))
                .add_service(SnapshotMetadataServer::new(Metadata::new(controller.cluster.clone())))
                .add_service(ControllerServer::new(controller)),
            Offered::Node(node) => {
                tokio::spawn(node.clone().watch());
                router.add_service(NodeServer::new(node))
            }
        };
        tracing::info!("serving at {}", path.display());
        let incoming = UnixListenerStream::new(listener);
        let served = router.serve_with_incoming_shutdown(incoming, stop).await;
        served.map_err(|error| failed("can't serve at", &error))
    })?;
    // A call that waits for the kernel may never end; what it has done is found by the next one.
    runtime.shutdown_background();
    Ok(())
}

fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for good in ["unix:///run/x", "unix:/run/x", "/run/x"] {
            assert_eq!(socket(good).unwrap(), Path::new("/run/x"), "{good}");
        }
        for bad in ["", "unix://", "tcp://1.2.3.4:5", "run/x"] {
            assert!(socket(bad).unwrap_err().message.contains(bad), "{bad}");
        }
    }
}
