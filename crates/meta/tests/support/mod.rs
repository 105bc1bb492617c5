//! Servers for the tests: the embedded one, and a real `etcd` process.
#![allow(dead_code)]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azekura_meta::server::EmbeddedServer;

/// A folder that is deleted at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("azekura-meta-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A port that nobody listens at. The kernel takes the ports of connections, and of those who ask for any, from 32768
/// on: a port below is not taken by another test between now and the moment when the server listens, nor while the
/// server is stopped.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let drawn = std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(20_000 + drawn % 12_000).unwrap();
        if TcpListener::bind(loopback(port)).is_ok() {
            return port;
        }
    }
}

/// A server under test.
pub enum Server {
    Embedded { folder: Folder, server: Option<EmbeddedServer>, address: SocketAddr },
    Etcd { folder: Folder, process: Option<Child>, client: u16, peer: u16, options: Vec<String> },
}

impl Server {
    pub async fn embedded() -> Server {
        let folder = Folder::new("embedded");
        let server = EmbeddedServer::start(&folder.0.join("config.redb"), loopback(0)).await.unwrap();
        let address = server.address();
        Server::Embedded { folder, server: Some(server), address }
    }

    /// Starts Debian's etcd; `None`, with a note, where it is not installed.
    pub async fn etcd() -> Option<Server> {
        Server::etcd_with(&[]).await
    }

    /// The same with further options.
    pub async fn etcd_with(options: &[&str]) -> Option<Server> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            eprintln!("etcd is not installed: the real-etcd half of this test is skipped");
            return None;
        }
        let folder = Folder::new("etcd");
        let options = options.iter().map(ToString::to_string).collect();
        let mut server = Server::Etcd { folder, process: None, client: free_port(), peer: free_port(), options };
        server.start().await;
        Some(server)
    }

    pub fn endpoint(&self) -> String {
        match self {
            Server::Embedded { address, .. } => format!("http://{address}"),
            Server::Etcd { client, .. } => format!("http://127.0.0.1:{client}"),
        }
    }

    /// Stops the server; its data stays.
    pub async fn stop(&mut self) {
        match self {
            Server::Embedded { server, .. } => server.take().unwrap().stop().await,
            Server::Etcd { process, .. } => {
                let mut process = process.take().unwrap();
                process.kill().unwrap();
                process.wait().unwrap();
            }
        }
    }

    /// Starts the stopped server again at its address.
    pub async fn start(&mut self) {
        match self {
            Server::Embedded { folder, server, address } => {
                *server = Some(EmbeddedServer::start(&folder.0.join("config.redb"), *address).await.unwrap());
            }
            Server::Etcd { folder, process, client, peer, options } => {
                let (client_url, peer_url) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
                let log = folder.0.join("etcd.log");
                let mut child = Command::new("etcd")
                    .args(["--name", "test", "--data-dir"])
                    .arg(folder.0.join("data"))
                    .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
                    .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                    .args(["--initial-cluster", &format!("test={peer_url}"), "--log-level", "error"])
                    .args(options.iter())
                    .stdout(Stdio::null())
                    .stderr(File::create(&log).unwrap())
                    .spawn()
                    .unwrap();
                let deadline = Instant::now() + Duration::from_secs(120);
                while tokio::net::TcpStream::connect(loopback(*client)).await.is_err() {
                    let ended = child.try_wait().unwrap();
                    if ended.is_some() || Instant::now() > deadline {
                        let said = std::fs::read_to_string(&log).unwrap();
                        let _ = child.kill();
                        panic!("etcd does not listen at {client_url} ({ended:?}); it said:\n{said}");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                *process = Some(child);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Server::Etcd { process: Some(process), .. } = self {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
