//! The KEK on a KMIP server, which gives it out whenever it is needed (OASIS, "Key Management Interoperability Protocol
//! Specification", version 1.2; later versions have the same).

use crate::keks::{KEY_BYTES, Keks, parts};
use crate::lines::lines;
use crate::tls::{self, Identity};
use crate::{DataKey, KekMark, KeyPlace, KeyProvider, PROVIDER_WAIT, SecretsError, private_file};
use message::{get, key_in};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{Read, Result as IoResult, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

mod message;
mod ttlv;

/// The longest file of keys that is read, bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The longest identifier, bytes.
const IDENTIFIER_BYTES_MAX: usize = 256;
/// The longest answer that is read, bytes: a key and what belongs to it take some hundreds.
const ANSWER_BYTES_MAX: u32 = 64 << 10;

/// Where the server is, who asks it, and for what.
#[derive(Clone, Debug)]
pub struct KmipOptions {
    /// `HOST:PORT`; 5696 is KMIP's port.
    pub server: String,
    /// The file with the authorities that sign the server's certificate, in PEM.
    pub authorities: PathBuf,
    /// The file with the client's certificate, in PEM.
    pub certificate: PathBuf,
    /// The file with its private key, in PEM.
    pub private_key: PathBuf,
    /// The file that names the keys: lines `VERSION IDENTIFIER`.
    pub keys: PathBuf,
}

/// The KEK is on a server. All files are read anew each time, and each call has a connection of its own: no memory
/// keeps the KEK.
#[derive(Clone, Debug)]
pub struct KmipProvider {
    options: KmipOptions,
    /// The server's name without its port.
    host: String,
    /// The server, for errors.
    from: String,
}

/// Unique identifiers of keys, by version.
type Names = BTreeMap<u32, String>;

impl KmipProvider {
    /// Its name in records.
    pub const NAME: &'static str = "kmip";

    /// The one with these options. The server is not asked yet, and files are not looked at.
    ///
    /// # Errors
    /// When the server's name is none.
    pub fn new(options: KmipOptions) -> Result<KmipProvider, SecretsError> {
        let named = options.server.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = named.map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
        let host = host.filter(|host| ServerName::try_from(host.as_str()).is_ok());
        let setup = || SecretsError::Setup { what: "--kmip".to_owned(), reason: "give HOST:PORT".to_owned() };
        let from = format!("the KMIP server {}", options.server);
        Ok(KmipProvider { host: host.ok_or_else(setup)?, from, options })
    }

    fn names(&self) -> Result<Names, SecretsError> {
        let path = &self.options.keys;
        let bytes = private_file::read_public("the file of KMIP keys", path, FILE_BYTES_MAX)?;
        let mut names = Names::new();
        for line in lines(&String::from_utf8_lossy(&bytes)) {
            let malformed = |line, reason| SecretsError::MalformedNames { path: path.clone(), line, reason };
            let (at, version, name) = line.map_err(|(at, reason)| malformed(at, reason))?;
            if name.is_empty() || name.len() > IDENTIFIER_BYTES_MAX || name.chars().any(char::is_control) {
                return Err(malformed(at, "the identifier is none"));
            }
            if names.insert(version, name.to_owned()).is_some() {
                return Err(malformed(at, "the version was there before"));
            }
        }
        match names.is_empty() {
            true => Err(SecretsError::NoKeks { from: format!("the file of KMIP keys {}", path.display()) }),
            false => Ok(names),
        }
    }

    /// The keys of these versions, of those that have a name.
    fn fetch(&self, wanted: impl Iterator<Item = (u32, String)>) -> Result<Keks, SecretsError> {
        let until = Instant::now() + PROVIDER_WAIT;
        let mut stream = self.connect(until)?;
        let away = |error: std::io::Error| {
            let reason = match Instant::now() >= until {
                true => format!("it took more than {} s", PROVIDER_WAIT.as_secs()),
                false => error.to_string(),
            };
            SecretsError::Away { from: self.from.clone(), reason }
        };
        let mut keys = BTreeMap::new();
        for (version, name) in wanted {
            stream.write_all(&get(&name)).and_then(|()| stream.flush()).map_err(away)?;
            let mut answer = Zeroizing::new(vec![0; 8]);
            stream.read_exact(&mut answer).map_err(away)?;
            let foreign = |reason: &str| SecretsError::Foreign { from: self.from.clone(), reason: reason.to_owned() };
            let length = message::length(&answer).map_err(foreign)?;
            if length > ANSWER_BYTES_MAX {
                return Err(foreign("it is too long"));
            }
            answer = Zeroizing::new(vec![0; length as usize]);
            stream.read_exact(&mut answer).map_err(away)?;
            let key = key_in(&answer, &name).map_err(|no| self.refusal(&name, no))?;
            keys.insert(version, key);
        }
        Ok(Keks { from: self.from.clone(), keys })
    }

    fn refusal(&self, name: &str, no: message::No) -> SecretsError {
        let from = self.from.clone();
        match no {
            message::No::Foreign(reason) => SecretsError::Foreign { from, reason: reason.to_owned() },
            message::No::Refused(reason) => SecretsError::Refused { from, reason: format!("key '{name}': {reason}") },
            message::No::Kind(reason) => SecretsError::Refused {
                from,
                reason: format!("key '{name}' {reason}; an AES key with {} bits is needed", 8 * KEY_BYTES),
            },
        }
    }

    fn connect(&self, until: Instant) -> Result<StreamOwned<ClientConnection, Timed>, SecretsError> {
        let KmipOptions { server, authorities, certificate, private_key, .. } = &self.options;
        let tls = tls::config(authorities, Some(Identity { certificate, private_key }))?;
        let away = |reason: String| SecretsError::Away { from: self.from.clone(), reason };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| away(error.to_string()))?;
        let addresses = server.to_socket_addrs().map_err(|error| away(error.to_string()))?;
        let mut failed = "it has no address".to_owned();
        for address in addresses {
            match left(until).and_then(|left| TcpStream::connect_timeout(&address, left)) {
                Ok(stream) => {
                    let session = ClientConnection::new(tls, name).map_err(|error| away(error.to_string()))?;
                    return Ok(StreamOwned::new(session, Timed { stream, until }));
                }
                Err(error) => failed = error.to_string(),
            }
        }
        Err(away(failed))
    }
}

/// The time that is left.
fn left(until: Instant) -> IoResult<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A connection that breaks at an instant.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> IoResult<()> {
        self.stream.flush()
    }
}

impl KeyProvider for KmipProvider {
    fn name(&self) -> &'static str {
        KmipProvider::NAME
    }

    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        self.fetch(self.names()?.pop_last().into_iter())?.wrap(place, key)
    }

    fn unwrap(&self, wrapped: &[(KeyPlace, &str)]) -> Result<Vec<Result<DataKey, SecretsError>>, SecretsError> {
        let mut names = self.names()?;
        let wanted: Names = wrapped
            .iter()
            .filter_map(|(_, text)| parts(text).ok())
            .filter_map(|(version, _)| names.remove_entry(&version))
            .collect();
        let keks = match wanted.is_empty() {
            true => {
                Keks { from: format!("the file of KMIP keys {}", self.options.keys.display()), keys: BTreeMap::new() }
            }
            false => self.fetch(wanted.into_iter())?,
        };
        Ok(wrapped.iter().map(|(place, wrapped)| keks.unwrap(*place, wrapped)).collect())
    }

    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError> {
        Ok(self.fetch(self.names()?.into_iter())?.marks(cluster))
    }
}

#[cfg(test)]
mod tests;
