//! The embedded server with TLS: nodes that the database knows by their keys are let in, and nobody else.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Folder, loopback};
use azekura_base::PeerKey;
use azekura_meta::MetaClient;
use azekura_meta::client::{Admission, ClusterTls, EtcdClient, KnownServers, Servers, Txn, admission};
use azekura_meta::cluster::NodeSpec;
use azekura_meta::server::{EmbeddedServer, ServerTls};
use azekura_model::SettingsRecord;
use azekura_transport::NodeKey;
use azekura_transport::https::{Authority, Https, Reached, outside};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};

/// Long enough for a machine that is busy; nothing waits so long if all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> i64 {
    i64::try_from(azekura_meta::time::unix_seconds()).unwrap()
}

/// A machine with a key.
struct Machine {
    key: NodeKey,
    https: Https,
}

impl Machine {
    fn new() -> Machine {
        let key = NodeKey::generate().unwrap();
        let https = Https::new(&key).unwrap();
        Machine { key, https }
    }

    fn name(&self) -> PeerKey {
        self.key.name().unwrap()
    }

    /// The server at this address, as this machine asks it, which knows `known`.
    fn asking(&self, address: SocketAddr, known: KnownServers) -> Servers {
        let (_, known) = watch::channel(Arc::new(known));
        let cluster = Some(ClusterTls::new(&self.https, self.name(), known));
        Servers { cluster, ..vec![format!("https://{address}")].into() }
    }

    /// The same, known by its key.
    fn asking_key(&self, address: SocketAddr, key: PeerKey) -> Servers {
        self.asking(address, KnownServers { keys: [key].into(), authority: None })
    }
}

/// A server with the node that serves it, and that node's client.
struct Cluster {
    _folder: Folder,
    server: EmbeddedServer,
    first: Machine,
    client: MetaClient,
}

fn spec(number: u16, key: PeerKey) -> NodeSpec {
    NodeSpec {
        uuid: format!("uuid-{number}"),
        name: format!("n{number}"),
        data_address: loopback(number),
        api_address: loopback(number + 100),
        endpoints: Vec::new(),
        site: String::new(),
        rack: String::new(),
        incarnation: 0,
        shards: std::num::NonZeroU8::MIN,
        key,
        api_tls: true,
    }
}

async fn cluster() -> Cluster {
    let (folder, first) = (Folder::new("secured"), Machine::new());
    let tls = ServerTls::new(&first.https, first.name());
    let server = EmbeddedServer::start_secured(&folder.0.join("config.redb"), loopback(0), tls).await.unwrap();
    let client = MetaClient::connect(first.asking_key(server.address(), first.name())).await.unwrap();
    client.ensure_cluster("c", SettingsRecord::default(), None).await.unwrap();
    client.register_node(&spec(1, first.name())).await.unwrap();
    Cluster { _folder: folder, server, first, client }
}

impl Cluster {
    fn asked_by(&self, machine: &Machine) -> Servers {
        machine.asking_key(self.server.address(), self.first.name())
    }
}

/// Whether a request is answered; why not.
async fn answer(servers: Servers) -> Result<(), String> {
    let client = EtcdClient::new(servers).map_err(|error| error.to_string())?;
    client.range_prefix("/azekura/", Duration::from_secs(2)).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_let_in_from_its_registration_until_it_is_shut_out() {
    let cluster = cluster().await;
    let second = Machine::new();
    assert_eq!(admission(&cluster.asked_by(&second)).await.unwrap(), Admission::Unknown);
    let refused = answer(cluster.asked_by(&second)).await.unwrap_err();
    assert!(refused.contains("does not know this machine's key") && refused.contains("--join"), "{refused}");
    let id = cluster.client.register_node(&spec(2, second.name())).await.unwrap().id;
    // Who was told of the registration is let in at once.
    assert_eq!(admission(&cluster.asked_by(&second)).await.unwrap(), Admission::Known);
    let client = EtcdClient::new(cluster.asked_by(&second)).unwrap();
    client.txn(Txn::new().put("/azekura/test", b"before".to_vec())).await.unwrap();
    let node = MetaClient::connect(cluster.asked_by(&second)).await.unwrap();
    let mut link = node.watch_link();
    assert!(link.borrow().is_none());

    cluster.client.shut_out(id, "the test").await.unwrap();
    // On the connection that stands nothing is written any more, and its watch has ended.
    client.txn(Txn::new().put("/azekura/test", b"after".to_vec())).await.unwrap_err();
    timeout(PATIENCE, link.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert_eq!(admission(&cluster.asked_by(&second)).await.unwrap(), Admission::Unknown);
    let own = EtcdClient::new(cluster.asked_by(&cluster.first)).unwrap();
    let (found, _) = own.range_prefix("/azekura/test", PATIENCE).await.unwrap();
    assert_eq!(found.iter().map(|kv| kv.value.as_slice()).collect::<Vec<_>>(), [b"before"]);

    // A key that its machine has made anew.
    let again = Machine::new();
    cluster.client.let_in(id, Some(again.name())).await.unwrap();
    assert_eq!(answer(cluster.asked_by(&again)).await, Ok(()));
    assert_eq!(admission(&cluster.asked_by(&second)).await.unwrap(), Admission::Unknown);
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_known_by_its_key_or_by_the_authority_that_a_token_names() {
    let cluster = cluster().await;
    let address = cluster.server.address();
    let [right, wrong] = [(); 2].map(|()| Authority::make("c", now()).unwrap());
    let by = |authority: &Authority| KnownServers { keys: [].into(), authority: Some(authority.fingerprint()) };
    let first = &cluster.first;
    let refused = answer(first.asking(address, by(&right))).await.unwrap_err();
    assert!(refused.contains(&first.name().to_string()) && refused.contains("--config-fingerprint"), "{refused}");
    let reached = Reached { name: "n1".to_owned(), names: Vec::new(), addresses: Vec::new() };
    first.https.show(&right.sign(&first.key, &reached, &[], now()).unwrap());
    assert_eq!(answer(first.asking(address, by(&right))).await, Ok(()));
    assert!(answer(first.asking(address, by(&wrong))).await.is_err());
    assert!(answer(first.asking_key(address, wrong.fingerprint())).await.is_err(), "another node's key");
    assert_eq!(answer(first.asking_key(address, first.name())).await, Ok(()));
    cluster.server.stop().await;
}

/// What comes back to bytes that are sent to the server; ends when the server hangs up.
async fn said_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut heard = Vec::new();
    // A reset says no less than an end.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the server hangs up");
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_no_tls_or_only_begins_learns_nothing() {
    let cluster = cluster().await;
    let address = cluster.server.address();
    for plain in
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"]
    {
        let heard = said_to(address, plain).await;
        // An alert of TLS at most (RFC 8446, 5.1).
        assert!(heard.len() <= 7 && heard.first().is_none_or(|first| *first == 21), "{heard:?}");
    }
    // Half a handshake has its time, and nobody waits for it.
    let halves = [&b""[..], &[22], &[22, 3, 1, 2, 0, 1]].map(|half| said_to(address, half));
    let [one, two, three] = halves.map(tokio::spawn);
    assert_eq!(answer(cluster.asked_by(&cluster.first)).await, Ok(()));
    for heard in [one.await.unwrap(), two.await.unwrap(), three.await.unwrap()] {
        assert_eq!(heard, b"");
    }
    let servers: Servers = vec![format!("http://{address}")].into();
    assert!(answer(servers).await.is_err());
    cluster.server.stop().await;
}

/// The error of a client with such a configuration, when it reads behind its handshake at the latest.
async fn refusal(address: SocketAddr, config: ClientConfig) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let mut stream = match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    match timeout(PATIENCE, stream.read(&mut [0; 64])).await.unwrap() {
        Ok(count) => format!("{count} bytes"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_tls_and_clients_without_a_key_are_refused() {
    let cluster = cluster().await;
    let address = cluster.server.address();
    let good = ClientConfig::clone(&cluster.first.https.dialling_nodes());
    let crypto = Arc::clone(good.crypto_provider());
    let verifier = || Arc::new(AnyServer(Arc::clone(&crypto)));
    let with = |versions| {
        let config = ClientConfig::builder_with_provider(Arc::clone(&crypto)).with_protocol_versions(versions).unwrap();
        config.dangerous().with_custom_certificate_verifier(verifier())
    };
    let anonymous = refusal(address, with(&[&version::TLS13]).with_no_client_auth()).await;
    assert!(anonymous.contains("CertificateRequired"), "{anonymous}");
    // Has suites of TLS 1.2, too.
    let authority = Authority::make("c", now()).unwrap();
    let provider = Arc::clone(outside(authority.pem().as_bytes(), None, &[]).unwrap().crypto_provider());
    let older = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS12]).unwrap();
    let older = older.dangerous().with_custom_certificate_verifier(verifier()).with_no_client_auth();
    let older = refusal(address, older).await;
    assert!(older.contains("ProtocolVersion"), "{older}");
    let mut other = good.clone();
    other.alpn_protocols = vec![b"http/1.1".to_vec()];
    assert!(refusal(address, other).await.contains("NoApplicationProtocol"));
    assert!(refusal(address, good).await.ends_with(" bytes"), "its own node hears a word of HTTP/2");
    let stranger = ClientConfig::clone(&Machine::new().https.dialling_nodes());
    assert_eq!(refusal(address, stranger).await, "0 bytes");
    cluster.server.stop().await;
}

/// Takes whatever is shown: what the server refuses is looked at here.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
