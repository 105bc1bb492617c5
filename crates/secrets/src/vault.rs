//! The KEK in Vault's or OpenBao's transit engine, which wraps and unwraps and never gives the key away
//! (HashiCorp, "Transit secrets engine (API)"; OpenBao has the same).

use crate::keks::belongs;
use crate::tls::{self, Secured};
use crate::told::printable;
use crate::{DataKey, KekMark, KeyPlace, KeyProvider, PROVIDER_WAIT, SecretsError, hex, private_file};
use answer::{Answer, Batch, Errors, Key, Unwrapped, Wrapped};
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector as _, TcpConnector};
use zeroize::Zeroizing;

mod answer;

/// The longest file with a token that is read, bytes.
const TOKEN_BYTES_MAX: u64 = 16 << 10;
/// The longest answer that is read, bytes: [`crate::UNWRAPS_MAX`] data keys take a tenth of it.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Room for a request, bytes: it does not grow while it is written, so that nothing is left behind in memory.
const REQUEST_BYTES: usize = 256 << 10;
/// The longest wrapped key, bytes: three times what transit makes of one.
const WRAPPED_BYTES_MAX: usize = 512;
/// Bytes of what tells KEKs apart.
const MARK_BYTES: usize = 8;
/// Keys of transit that know associated data and have 256 bits.
const KINDS: [&str; 3] = ["aes256-gcm96", "chacha20-poly1305", "xchacha20-poly1305"];

/// Where the transit engine is, and who asks it.
#[derive(Clone, Debug)]
pub struct VaultOptions {
    /// `https://HOST:PORT`, or `http://` on this machine.
    pub url: String,
    /// The key's name.
    pub key: String,
    /// Where the engine is mounted: `transit`.
    pub mount: String,
    /// The namespace, for servers that have some.
    pub namespace: Option<String>,
    /// The file with the token, read anew each time.
    pub token_file: PathBuf,
    /// The file with the authorities that sign the server's certificate, in PEM, read anew each time.
    pub authorities: PathBuf,
}

/// The KEK is in a server's transit engine. Each call has a connection of its own: tokens and authorities are read
/// anew, and calls are rare.
pub struct VaultProvider {
    options: VaultOptions,
    /// The server, for errors.
    from: String,
    /// How long it is waited for.
    wait: Duration,
}

impl fmt::Debug for VaultProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultProvider").field("from", &self.from).finish_non_exhaustive()
    }
}

/// The version of the KEK that wrapped (`vault:vN:…`).
pub(crate) fn version(wrapped: &str) -> Option<u32> {
    let (version, rest) = wrapped.strip_prefix("vault:v")?.split_once(':')?;
    let is_text = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    (is_text && wrapped.len() <= WRAPPED_BYTES_MAX).then(|| version.parse().ok().filter(|version| *version > 0))?
}

#[derive(Serialize)]
struct Wrap<'a> {
    plaintext: &'a str,
    associated_data: String,
}

#[derive(Serialize)]
struct Unwrap<'a> {
    ciphertext: &'a str,
    associated_data: String,
}

#[derive(Serialize)]
struct Unwraps<'a> {
    batch_input: Vec<Unwrap<'a>>,
}

impl VaultProvider {
    /// Its name in records.
    pub const NAME: &'static str = "vault";

    /// The one with these options. The server is not asked yet, and files are not looked at.
    ///
    /// # Errors
    /// When the URL, a name or the mount is none.
    pub fn new(options: VaultOptions) -> Result<VaultProvider, SecretsError> {
        let refused =
            |what: &str, reason: &str| Err(SecretsError::Setup { what: what.to_owned(), reason: reason.to_owned() });
        let url = options.url.trim_end_matches('/').to_owned();
        let Ok(parsed) = url.parse::<Uri>() else { return refused("--vault", "it is no URL") };
        let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        match parsed.scheme_str() {
            _ if host.is_empty() || parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
                return refused("--vault", "give https://HOST:PORT");
            }
            Some("https") => {}
            Some("http") if is_here => {}
            Some("http") => return refused("--vault", "over http:// everybody on the way reads the keys: https://"),
            _ => return refused("--vault", "give https://HOST:PORT"),
        }
        if parsed.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return refused("--vault", "give no path: --vault-mount names where the engine is");
        }
        if !is_name(&options.key) {
            return refused("--vault-key", "a name has letters, digits, '-', '_' and '.'");
        }
        if !options.mount.split('/').all(is_name) {
            return refused("--vault-mount", "names with letters, digits, '-', '_' and '.', separated by '/'");
        }
        if options.namespace.as_ref().is_some_and(|name| !name.trim_end_matches('/').split('/').all(is_name)) {
            return refused("--vault-namespace", "names with letters, digits, '-', '_' and '.', separated by '/'");
        }
        let from = format!("Vault at {url}");
        Ok(VaultProvider { options: VaultOptions { url, ..options }, from, wait: PROVIDER_WAIT })
    }

    fn agent(&self) -> Result<Agent, SecretsError> {
        let config = Agent::config_builder()
            .timeout_global(Some(self.wait))
            .http_status_as_error(false)
            // A token is for this server alone.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("azekura/", env!("CARGO_PKG_VERSION")))
            .build();
        if self.options.url.starts_with("http://") {
            return Ok(config.into());
        }
        let tls = tls::config(&self.options.authorities, None)?;
        Ok(Agent::with_parts(config, TcpConnector::default().chain(Secured(tls)), DefaultResolver::default()))
    }

    fn token(&self) -> Result<Zeroizing<String>, SecretsError> {
        let path = &self.options.token_file;
        let text = private_file::read("the file of Vault's token", path, TOKEN_BYTES_MAX)?;
        let token = Zeroizing::new(text.trim().to_owned());
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = format!("the file of Vault's token {}", path.display());
            return Err(SecretsError::Setup { what, reason: "there is no token in it, or something else".to_owned() });
        }
        Ok(token)
    }

    /// Asks the engine: `operation` of the key, with a body or without.
    fn ask<T: DeserializeOwned>(&self, operation: &str, body: Option<&impl Serialize>) -> Result<T, SecretsError> {
        let VaultOptions { url, mount, key, namespace, .. } = &self.options;
        let (agent, token, url) = (self.agent()?, self.token()?, format!("{url}/v1/{mount}/{operation}/{key}"));
        let answer = match body {
            None => {
                let mut request = agent.get(&url).header("X-Vault-Token", token.as_str());
                if let Some(namespace) = namespace {
                    request = request.header("X-Vault-Namespace", namespace);
                }
                request.call()
            }
            Some(body) => {
                let mut request = agent.post(&url).header("X-Vault-Token", token.as_str());
                if let Some(namespace) = namespace {
                    request = request.header("X-Vault-Namespace", namespace);
                }
                let mut written = Zeroizing::new(Vec::with_capacity(REQUEST_BYTES));
                serde_json::to_writer(&mut *written, body).map_err(|error| self.foreign(&error.to_string()))?;
                request.header("Content-Type", "application/json").send(&written[..])
            }
        };
        let away = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => self.away(&format!("it took more than {} s", self.wait.as_secs())),
            error => self.away(&error.to_string()),
        };
        let mut answer = answer.map_err(away)?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let text = Zeroizing::new(text.map_err(away)?);
        // Of a batch, status 400 says that some of it failed.
        let read = serde_json::from_slice::<Answer<T>>(&text);
        match read {
            Ok(answer) if status == StatusCode::OK || status == StatusCode::BAD_REQUEST => Ok(answer.data),
            Err(_) if status == StatusCode::OK => Err(self.foreign("it is nothing that transit answers")),
            _ => Err(self.refusal(operation, status, &text)),
        }
    }

    fn refusal(&self, operation: &str, status: StatusCode, text: &[u8]) -> SecretsError {
        let VaultOptions { mount, key, token_file, .. } = &self.options;
        let errors = serde_json::from_slice::<Errors>(text).map(|errors| errors.text()).unwrap_or_default();
        let said = if errors.is_empty() { format!("status {}", status.as_u16()) } else { errors };
        let reason = match status {
            StatusCode::FORBIDDEN => {
                let right = if operation == "keys" { "read" } else { "update" };
                format!(
                    "{said}: the token in {} has ended, or its policy has no '{right}' on {mount}/{operation}/{key}",
                    token_file.display()
                )
            }
            StatusCode::NOT_FOUND => format!("{said}: there is no key {key} at {mount} (--vault-key, --vault-mount)"),
            StatusCode::SERVICE_UNAVAILABLE => format!("{said}: it has to be unsealed first"),
            status if status.is_redirection() => {
                "it is a standby that sends to another server, to which the token is not shown: name the active one, \
                 or the balancer in front of them"
                    .to_owned()
            }
            _ => said,
        };
        SecretsError::Refused { from: self.from.clone(), reason }
    }

    fn away(&self, reason: &str) -> SecretsError {
        SecretsError::Away { from: self.from.clone(), reason: reason.to_owned() }
    }

    fn foreign(&self, reason: &str) -> SecretsError {
        SecretsError::Foreign { from: self.from.clone(), reason: reason.to_owned() }
    }

    /// The data key in an answer.
    fn opened(&self, unwrapped: Unwrapped, wrapped: &str) -> Result<DataKey, SecretsError> {
        let Some(plaintext) = unwrapped.plaintext.filter(|text| !text.0.is_empty() && unwrapped.error.is_empty())
        else {
            let (from, version) = (self.from.clone(), version(wrapped).unwrap_or(0));
            if unwrapped.error.contains("authentication failed") {
                return Err(SecretsError::WrongKey { from, version });
            }
            return Err(SecretsError::Refused { from, reason: printable(&unwrapped.error) });
        };
        let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(plaintext.0.len())]);
        let read = STANDARD.decode_slice(plaintext.0.as_bytes(), &mut bytes);
        let read = read.map_err(|_| self.foreign("what it unwrapped is not base64"))?;
        DataKey::of(&bytes[..read]).ok_or(SecretsError::Damaged { reason: "the key in it has another length" })
    }
}

/// One that needs no escape in a URL or a header.
fn is_name(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_plain && !text.is_empty() && text.len() <= 128 && !text.bytes().all(|byte| byte == b'.')
}

impl KeyProvider for VaultProvider {
    fn name(&self) -> &'static str {
        VaultProvider::NAME
    }

    fn wrap(&self, place: KeyPlace, key: &DataKey) -> Result<String, SecretsError> {
        let mut plaintext = Zeroizing::new(vec![0; 4 * key.bytes().len().div_ceil(3)]);
        let written = STANDARD.encode_slice(key.bytes(), &mut plaintext).unwrap_or_default();
        let plaintext = std::str::from_utf8(&plaintext[..written]).unwrap_or_default();
        let wrap = Wrap { plaintext, associated_data: STANDARD.encode(belongs(place)) };
        let Wrapped { ciphertext } = self.ask("encrypt", Some(&wrap))?;
        match version(&ciphertext) {
            Some(_) => Ok(ciphertext),
            None => Err(self.foreign("what it wrapped does not begin with 'vault:v' and a version, or is too long")),
        }
    }

    fn unwrap(&self, wrapped: &[(KeyPlace, &str)]) -> Result<Vec<Result<DataKey, SecretsError>>, SecretsError> {
        // Of a damaged one the server would only say that the whole batch is.
        let sound: Vec<&(KeyPlace, &str)> = wrapped.iter().filter(|(_, text)| version(text).is_some()).collect();
        let mut answers = Vec::new();
        if !sound.is_empty() {
            let mut batch_input = Vec::with_capacity(sound.len());
            for (place, ciphertext) in &sound {
                batch_input.push(Unwrap { ciphertext, associated_data: STANDARD.encode(belongs(*place)) });
            }
            let batch: Batch = self.ask("decrypt", Some(&Unwraps { batch_input }))?;
            answers = batch.batch_results;
            if answers.len() != sound.len() {
                return Err(self.foreign("it has unwrapped more or fewer than it was asked for"));
            }
        }
        let mut answers = answers.into_iter();
        let mut opened = |(_, text): &(KeyPlace, &str)| match version(text).and_then(|_| answers.next()) {
            Some(answer) => self.opened(answer, text),
            None => Err(SecretsError::Damaged { reason: "it is nothing that transit makes: 'vault:vN:…'" }),
        };
        Ok(wrapped.iter().map(&mut opened).collect())
    }

    fn keks(&self, cluster: u128) -> Result<Vec<KekMark>, SecretsError> {
        let key: Key = self.ask("keys", None::<&()>)?;
        let refused = |reason: String| Err(SecretsError::Refused { from: self.from.clone(), reason });
        if !KINDS.contains(&key.kind.as_str()) {
            let kind = printable(&key.kind);
            return refused(format!("the key {} is of type {kind}; one of {}", self.options.key, KINDS.join(", ")));
        }
        if key.derived {
            return refused(format!("the key {} is a derived one, which is not used here", self.options.key));
        }
        let usable = key.keys.into_iter().filter(|(version, _)| (1..=key.latest_version).contains(version));
        // The key is not told. It is not another one if it was made under this name and number at the same time.
        let mark = |version: u32, made: &serde_json::Value| {
            let mut context = Context::new(&SHA256);
            context.update(b"azekura vault kek");
            context.update(&cluster.to_be_bytes());
            context.update(format!("{}\n{version}\n{made}", self.options.key).as_bytes());
            hex::write(&context.finish().as_ref()[..MARK_BYTES])
        };
        Ok(usable.map(|(version, made)| KekMark { version, mark: mark(version, &made) }).collect())
    }
}

#[cfg(test)]
mod tests;
