//! Where the configuration servers are, and who is known by what.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura_model::EtcdError;
use azekura_transport::https::{HTTP2, OutsideError, ShownPem, outside};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::cluster_tls::ClusterTls;

/// The longest file of certificates or keys that is read, bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// The longest file with a password that is read, bytes.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

/// Where the configuration servers are, how they are known, and what this end proves to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Each `host:port`, `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// What TLS goes by, where etcd is asked.
    pub tls: Option<TlsFiles>,
    /// What TLS goes by, where a node of the cluster is asked. With it there is neither [`Servers::tls`] nor a user.
    pub cluster: Option<ClusterTls>,
    /// The user that this end is to etcd, where a password says so.
    pub user: Option<User>,
}

/// The files of TLS. They are read for each connection, so new ones count without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities that sign the servers' (`--config-ca`), PEM.
    pub authorities: PathBuf,
    /// What this end shows, if it shows something.
    pub shown: Option<ShownFiles>,
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFiles {
    /// The certificate (`--config-cert`).
    pub certificate: PathBuf,
    /// The key (`--config-key`), which nobody else may read.
    pub key: PathBuf,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name (`--config-user`).
    pub name: String,
    /// The file with the password (`--config-password-file`), which nobody else may read. It is read for each token.
    pub password_file: PathBuf,
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// With scheme, host and port.
    pub(super) url: String,
    /// Host and port.
    pub(super) authority: String,
    /// The name that the server's certificate has to be for; `None`: without TLS.
    pub(super) name: Option<ServerName<'static>>,
    /// Nothing that is sent there leaves the machine.
    is_local: bool,
}

impl Address {
    /// Whether the server is at an address of this machine; a name is not looked up.
    pub(super) fn is_of_this_machine(&self) -> bool {
        let Ok(address) = self.authority.parse::<SocketAddr>() else { return self.is_local };
        UdpSocket::bind((address.ip(), 0)).is_ok()
    }
}

impl From<Vec<String>> for Servers {
    fn from(endpoints: Vec<String>) -> Servers {
        Servers { endpoints, ..Servers::default() }
    }
}

impl From<&[String]> for Servers {
    fn from(endpoints: &[String]) -> Servers {
        endpoints.to_vec().into()
    }
}

impl<const N: usize> From<&[String; N]> for Servers {
    fn from(endpoints: &[String; N]) -> Servers {
        endpoints.to_vec().into()
    }
}

impl Servers {
    /// Where the servers are; also looks whether all files can be used.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, EtcdError> {
        if self.endpoints.is_empty() {
            let reason = "the list of endpoints is empty".into();
            return Err(EtcdError::Endpoint { endpoint: String::new(), reason });
        }
        let addresses: Vec<Address> = self.endpoints.iter().map(|given| address(given)).collect::<Result<_, _>>()?;
        for address in &addresses {
            self.check(address).map_err(EtcdError::Proof)?;
        }
        if let Some(tls) = &self.tls {
            tls.config().map_err(EtcdError::Proof)?;
        }
        if let Some(user) = &self.user {
            user.password().map_err(EtcdError::Proof)?;
        }
        Ok(addresses)
    }

    /// What is asked for beside an address must not be less than what the address says, and the other way round.
    fn check(&self, address: &Address) -> Result<(), String> {
        let url = &address.url;
        if self.cluster.is_some() {
            return self.check_of_cluster(address);
        }
        match (&address.name, &self.tls) {
            (Some(_), None) => Err(format!(
                "{url} is to be known by a certificate: name the file with its authority's (--config-ca FILE); where that is \
                 a node's --serve-config, name the data folder of a node whose key is to be shown (--as-node DIR)"
            )),
            (None, Some(_)) => {
                Err(format!("{url} would be asked without TLS, although --config-ca is given: write https://"))
            }
            (None, None) if self.user.is_some() && !address.is_local => {
                Err(format!("the password of --config-user would cross the network to {url} in clear: write https://"))
            }
            _ => Ok(()),
        }
    }

    /// The same where nodes know each other by their keys.
    fn check_of_cluster(&self, address: &Address) -> Result<(), String> {
        let url = &address.url;
        if self.tls.is_some() {
            return Err(format!("{url} is either etcd's, with --config-ca, or a node's, without it"));
        }
        if self.user.is_some() {
            return Err(format!("--config-user is for etcd, which {url} is with --config-ca FILE alone"));
        }
        match address.name {
            Some(_) => Ok(()),
            None => Err(format!("{url} would be asked without TLS, although others are not: write https://")),
        }
    }
}

impl TlsFiles {
    /// What the files say now.
    ///
    /// # Errors
    /// A sentence that names the file and the option.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let authorities = read(&self.authorities, "--config-ca", PEM_BYTES_MAX)?;
        let shown = match &self.shown {
            None => None,
            Some(ShownFiles { certificate, key }) => Some((
                read(certificate, "--config-cert", PEM_BYTES_MAX)?,
                read_secret(key, "--config-key", PEM_BYTES_MAX)?,
            )),
        };
        let pem = shown.as_ref().map(|(certificate, key)| ShownPem { certificate, key });
        outside(&authorities, pem, &[HTTP2]).map_err(|error| match (&error, &self.shown) {
            (OutsideError::Certificate(_), Some(shown)) => cannot(&shown.certificate, "--config-cert", &error),
            (OutsideError::Key(_), Some(shown)) => cannot(&shown.key, "--config-key", &error),
            (OutsideError::Mismatch, Some(shown)) => format!(
                "{}: the certificate is in {}, --config-cert",
                cannot(&shown.key, "--config-key", &error),
                shown.certificate.display()
            ),
            _ => cannot(&self.authorities, "--config-ca", &error),
        })
    }
}

impl User {
    /// The password that the file has now: its first line.
    ///
    /// # Errors
    /// A sentence that names the file and the option.
    pub(super) fn password(&self) -> Result<String, String> {
        let (path, option) = (&self.password_file, "--config-password-file");
        let text = String::from_utf8(read_secret(path, option, PASSWORD_BYTES_MAX)?)
            .map_err(|_| cannot(path, option, &"it is no text"))?;
        let password = text.lines().next().unwrap_or_default();
        if password.is_empty() {
            return Err(cannot(path, option, &"its first line is to have the password, and is empty"));
        }
        Ok(password.to_owned())
    }
}

fn cannot(path: &Path, option: &str, why: &dyn std::fmt::Display) -> String {
    format!("can't use {} ({option}): {why}", path.display())
}

fn read_file(file: &File, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn read(path: &Path, option: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
    File::open(path).and_then(|file| read_file(&file, bytes_max)).map_err(|error| cannot(path, option, &error))
}

/// Reads a file that nobody else can read.
fn read_secret(path: &Path, option: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| cannot(path, option, &error))?;
    let mode = file.metadata().map_err(|error| cannot(path, option, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let what = format!("others can read it, and it has a secret: chmod 600 {}", path.display());
        return Err(cannot(path, option, &what));
    }
    read_file(&file, bytes_max).map_err(|error| cannot(path, option, &error))
}

fn address(given: &str) -> Result<Address, EtcdError> {
    let invalid = |reason: &str| EtcdError::Endpoint { endpoint: given.into(), reason: reason.into() };
    let endpoint = given.trim().trim_end_matches('/');
    let (scheme, authority) = match endpoint.split_once("://") {
        Some((scheme @ ("http" | "https"), authority)) => (scheme, authority),
        Some(_) => return Err(invalid("it begins with http://, https:// or the host")),
        None => ("http", endpoint),
    };
    let expected = "expected host:port, as in 127.0.0.1:2379";
    let (host, port) = authority.rsplit_once(':').ok_or_else(|| invalid(expected))?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(invalid(expected));
    }
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(host.to_owned()).map_err(|_| invalid("that is neither a name nor an address"));
    let name = if scheme == "https" { Some(name?) } else { None };
    let is_local =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    Ok(Address { url: format!("{scheme}://{authority}"), authority: authority.to_owned(), name, is_local })
}

#[cfg(test)]
mod tests;
