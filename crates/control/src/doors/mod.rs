//! Where the REST API is asked: a port, and a socket in the node's data folder.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use azekura_base::NodeId;
use azekura_meta::MetaClient;
use azekura_transport::https::{Https, StreamTls};
use azekura_transport::{ChannelError, NodeKey};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::Door;
use crate::authorities::{Authorities, Secrets};
use crate::host_secrets::{self, OpenedSecrets};

mod port;
mod starting;

pub(crate) use port::{Arrival, Port};
use starting::{PATIENCE, Starting};

/// The longest name of a socket's file, in bytes (unix(7)), without the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where the REST API is asked, and what its node is known by.
#[derive(Debug)]
pub struct Doors {
    port: TcpListener,
    local: Option<UnixListener>,
    /// Answers as long as nobody serves.
    starting: Option<Starting>,
    pub(crate) names: Vec<String>,
    pub(crate) key: Arc<NodeKey>,
    pub(crate) https: Https,
    pub(crate) secrets: Arc<dyn Secrets>,
}

/// Listens for the REST API's clients; port 0 takes a free one.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Listens at a socket of this name, which only the process's user can connect to. The file of an earlier process goes:
/// nobody else may use the folder now.
///
/// # Errors
/// What the system says.
pub fn bind_local(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => (folder, name),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let listener = if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        UnixListener::bind(path)?
    } else {
        // The kernel takes no longer name, but one that leads there.
        let folder = File::open(folder)?;
        UnixListener::bind(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))?
    };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Doors {
    /// A port, and the node's own socket, whose file says who may connect: whoever does may everything. `names`: of
    /// this node, beside addresses and loopbacks.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn new(
        port: TcpListener,
        local: Option<UnixListener>,
        names: Vec<String>,
        key: Arc<NodeKey>,
        secrets: Arc<dyn Secrets>,
    ) -> Result<Doors, ChannelError> {
        let https = Https::new(&key)?;
        Ok(Doors { port, local, starting: None, names, key, https, secrets })
    }

    /// Until [`crate::start`], answers that the node is starting, with this text: once that takes longer than clients
    /// wait gladly.
    ///
    /// # Errors
    /// What the system says.
    pub fn tell_start(&mut self, text: String) -> io::Result<()> {
        self.starting = Some(Starting::begin(&self.port, self.local.as_ref(), &self.https, text, PATIENCE)?);
        Ok(())
    }

    /// The secrets of hosts, opened with the keys that this node has, or gets from others: whenever they change.
    #[must_use]
    pub fn host_secrets(&self, meta: &MetaClient, node: NodeId) -> watch::Receiver<Arc<OpenedSecrets>> {
        host_secrets::follow(Authorities::new(meta.clone(), node, self))
    }

    /// The key by which this node is known.
    #[must_use]
    pub fn key(&self) -> &NodeKey {
        &self.key
    }

    /// What this node shows at its API, and to other nodes.
    #[must_use]
    pub fn https(&self) -> &Https {
        &self.https
    }

    /// What this node shows to clients of volumes that speak TLS: the certificate of the API, whenever that changes.
    #[must_use]
    pub fn streams(&self) -> StreamTls {
        self.https.streams()
    }

    /// Serves at each of them.
    pub(crate) fn serve(self, router: Router) -> Vec<JoinHandle<()>> {
        drop(self.starting);
        let ended = |outcome: io::Result<()>| {
            if let Err(error) = outcome {
                tracing::error!("the REST API ended: {error}");
            }
        };
        let service = router.into_make_service_with_connect_info::<Door>();
        let (port, at_port) = (Port::open(self.port, &self.https), service.clone());
        let mut tasks = vec![tokio::spawn(async move {
            ended(match port {
                Ok(port) => axum::serve(port, at_port).await,
                Err(error) => Err(error),
            });
        })];
        if let Some(local) = self.local {
            tasks.push(tokio::spawn(async move { ended(axum::serve(local, service).await) }));
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn the_local_door_is_its_users_however_long_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        for folder in [folder.path(), &deep] {
            let path = folder.join("api.sock");
            for _ in 0..2 {
                let _listener = bind_local(&path).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                let at = File::open(folder).unwrap();
                UnixStream::connect(format!("/proc/self/fd/{}/api.sock", at.as_raw_fd())).unwrap();
            }
        }
        assert!(bind_local(&folder.path().join("missing/api.sock")).is_err());
    }
}
