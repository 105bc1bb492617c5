//! The cluster, as its REST API shows it, and how its errors are told.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use azekura_api::endpoint::{SnapshotList, SnapshotShow, VolumeList, VolumeShow};
use azekura_api::{Endpoint, ErrorCode, NoBody, NoQuery, PageQuery, ShowSnapshot, SnapshotView, VolumeView};
use azekura_base::Token;
use azekura_client::{Client, ClientError, Trust};
use tonic::{Code, Status};

use crate::Outcome;
use crate::error::CsiError;

/// The longest token or certificate that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Asks the cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    urls: Vec<String>,
    token: Option<PathBuf>,
    certificate: Option<PathBuf>,
    current: Mutex<Current>,
}

/// Whom to ask next, and with what.
#[derive(Debug, Default)]
struct Current {
    url: usize,
    client: Option<(Proofs, Arc<Client>)>,
}

/// What the files had when the client was made.
#[derive(Clone, PartialEq, Eq, Default)]
struct Proofs {
    token: Option<String>,
    certificate: Option<String>,
}

/// Without the token.
impl std::fmt::Debug for Proofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proofs").finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| format!("can't read {}: {error}", path.display()))?;
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| format!("can't read {}: {error}", path.display()))?;
    Ok(text)
}

/// Kubernetes gives a group's pods their secrets with that group's rights; nobody else may read a token.
fn read_token(path: &Path) -> Result<String, String> {
    let mode = fs::metadata(path).map_err(|error| format!("can't read {}: {error}", path.display()))?;
    if mode.permissions().mode() & 0o007 != 0 {
        return Err(format!(
            "everybody on this machine can read {}, and it has a token: chmod 600, or defaultMode 0400 in a pod",
            path.display()
        ));
    }
    read(path)
}

impl Cluster {
    /// A cluster that can be asked at any of these URLs.
    pub(crate) fn new(
        urls: Vec<String>,
        token: Option<PathBuf>,
        certificate: Option<PathBuf>,
    ) -> Result<Cluster, CsiError> {
        let hint = "give --api http://HOST:PORT, https://HOST:PORT or unix:DIR/api.sock";
        for url in &urls {
            Client::new(url).map_err(|error| CsiError { message: error.to_string(), hint })?;
        }
        let current = Mutex::default();
        let cluster = Cluster { shared: Arc::new(Shared { urls, token, certificate, current }) };
        cluster.client().map_err(|status| CsiError {
            message: status.message().to_owned(),
            hint: "name the files of a token and of the authority's certificate with --token-file and --ca",
        })?;
        Ok(cluster)
    }

    /// A client with what the files have now: tokens end, and secrets of Kubernetes change under a running pod.
    fn client(&self) -> Outcome<Arc<Client>> {
        let Shared { urls, token: token_file, certificate, current } = &*self.shared;
        let unusable = |reason: String| Status::unauthenticated(reason);
        let proofs = Proofs {
            token: token_file.as_deref().map(read_token).transpose().map_err(unusable)?,
            certificate: certificate.as_deref().map(read).transpose().map_err(unusable)?,
        };
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &current.client
            && *known == proofs
        {
            return Ok(Arc::clone(client));
        }
        let unusable = |error: ClientError| told("asking the cluster", &error);
        let mut client = Client::new(&urls[current.url % urls.len()]).map_err(unusable)?;
        if let Some(pem) = &proofs.certificate {
            client = client.trusting(&Trust::Certificate(pem.clone())).map_err(unusable)?;
        }
        if let Some(text) = proofs.token.as_deref().filter(|_| !client.is_local()) {
            let token = Token::read(text.trim()).map_err(|error| Status::unauthenticated(error.to_string()))?;
            client = client.with_token(&token).map_err(unusable)?;
            if let Some(path) = token_file {
                client = client.with_token_from(format!("in {}", path.display()));
            }
        }
        let client = Arc::new(client);
        current.client = Some((proofs, Arc::clone(&client)));
        Ok(client)
    }

    /// The next call asks the next node. This one is not asked again: nobody knows whether it was carried out, and the
    /// orchestrator repeats it.
    fn turn(&self) {
        let mut current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.url = (current.url + 1) % self.shared.urls.len();
        current.client = None;
    }

    fn noted<T>(&self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        if let Err(ClientError::Unreachable { .. }) = &outcome {
            self.turn();
        }
        outcome
    }

    /// Asks for something that takes no body.
    pub(crate) fn ask<E: Endpoint<Body = NoBody>>(
        &self,
        names: E::Names,
        query: &E::Query,
    ) -> Outcome<Result<E::Answer, ClientError>> {
        let client = self.client()?;
        Ok(self.noted(client.ask::<E>(names, query)))
    }

    /// Asks for something that is all in the body.
    pub(crate) fn send<E: Endpoint<Query = NoQuery>>(
        &self,
        names: E::Names,
        body: &E::Body,
    ) -> Outcome<Result<E::Answer, ClientError>> {
        let client = self.client()?;
        Ok(self.noted(client.send::<E>(names, body)))
    }

    /// The same of a body with a secret in it, which nobody may read on its way.
    pub(crate) fn send_in_private<E: Endpoint<Query = NoQuery>>(
        &self,
        names: E::Names,
        body: &E::Body,
    ) -> Outcome<Result<E::Answer, ClientError>> {
        let client = self.client()?;
        if !client.is_private() {
            return Ok(Err(ClientError::InClear { url: client.url().to_owned() }));
        }
        Ok(self.noted(client.send::<E>(names, body)))
    }

    /// A volume, if it is there.
    pub(crate) fn volume(&self, name: &str) -> Outcome<Option<VolumeView>> {
        found(&format!("volume '{name}'"), self.ask::<VolumeShow>([name.to_owned()], &NoQuery {})?)
    }

    /// A volume that has to be there.
    pub(crate) fn known_volume(&self, name: &str) -> Outcome<VolumeView> {
        self.volume(name)?.ok_or_else(|| Status::not_found(format!("there is no volume '{name}'")))
    }

    /// All volumes, by name.
    pub(crate) fn volumes(&self) -> Outcome<Vec<VolumeView>> {
        let mut all =
            self.ask::<VolumeList>([], &PageQuery::default())?.map_err(|error| told("listing the volumes", &error))?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// A snapshot, if it is there.
    pub(crate) fn snapshot(&self, volume: &str, name: &str) -> Outcome<Option<SnapshotView>> {
        let names = [volume.to_owned(), name.to_owned()];
        let query = ShowSnapshot { measure_ms: Some(0) };
        let answer = self.ask::<SnapshotShow>(names, &query)?;
        // A name that looks like a time shows the newest snapshot before it.
        Ok(found(&format!("snapshot '{volume}@{name}'"), answer)?.filter(|shown| shown.name == name))
    }

    /// All snapshots, by volume and name.
    pub(crate) fn snapshots(&self) -> Outcome<Vec<SnapshotView>> {
        let mut all = self
            .ask::<SnapshotList>([], &PageQuery::default())?
            .map_err(|error| told("listing the snapshots", &error))?;
        all.sort_by(|a, b| (&a.volume, &a.name).cmp(&(&b.volume, &b.name)));
        Ok(all)
    }
}

/// What is not there is no error; neither is a name that nothing can have.
fn found<T>(what: &str, answer: Result<T, ClientError>) -> Outcome<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(told(what, &error)),
    }
}

/// Whether the answer says that what was named is not there.
pub(crate) fn absent(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::NotFound | ErrorCode::NoSuchPath))
}

/// The error of a request, in the words of gRPC: what was done, what happened, what to do.
pub(crate) fn told(doing: &str, error: &ClientError) -> Status {
    let code = match error {
        ClientError::Unreachable { .. } => Code::Unavailable,
        ClientError::Failed(body) => code_of(body.code),
        ClientError::Stranger { .. }
        | ClientError::Unknown { .. }
        | ClientError::InClear { .. }
        | ClientError::Certificate(_) => Code::Unauthenticated,
        ClientError::Url { .. } | ClientError::Request(_) | ClientError::Foreign { .. } => Code::Internal,
    };
    let hint = match error {
        ClientError::Unreachable { .. } => Some("does the node run, and may this machine reach its --api?"),
        _ => error.hint(),
    };
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    Status::new(code, format!("{doing}: {error}{hint}"))
}

fn code_of(code: ErrorCode) -> Code {
    use ErrorCode as E;
    match code {
        E::Unauthorized => Code::Unauthenticated,
        E::Forbidden => Code::PermissionDenied,
        E::NotFound => Code::NotFound,
        E::Exists => Code::AlreadyExists,
        E::InUse | E::Conflict => Code::FailedPrecondition,
        E::TryAgain => Code::Aborted,
        E::Malformed | E::TooLarge | E::NotJson | E::Refused => Code::InvalidArgument,
        E::Unavailable | E::NotReady => Code::Unavailable,
        E::Timeout => Code::DeadlineExceeded,
        E::NoRoom => Code::ResourceExhausted,
        E::NoSuchPath | E::NoSuchMethod | E::WrongHost | E::BadPeer | E::Internal => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use azekura_api::ErrorBody;

    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let body = ErrorBody { code: ErrorCode::NoRoom, message: "full".into(), hint: Some("add a device".into()) };
        let status = told("making volume 'v'", &ClientError::Failed(body));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "making volume 'v': full (add a device)");
    }

    #[test]
    fn a_token_that_everybody_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let urls = vec!["http://127.0.0.1:1".to_owned()];
        let error = Cluster::new(urls, Some(path.clone()), None).unwrap_err();
        assert!(error.message.contains("everybody"), "{error:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        assert_eq!(read_token(&path).unwrap(), "x");
    }

    #[test]
    fn after_one_that_does_not_answer_the_next_is_asked() {
        let urls = vec!["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()];
        let cluster = Cluster::new(urls, None, None).unwrap();
        let message = |cluster: &Cluster| cluster.volumes().unwrap_err().message().to_owned();
        assert!(message(&cluster).contains("127.0.0.1:1"));
        assert!(message(&cluster).contains("127.0.0.1:2"));
        assert!(message(&cluster).contains("127.0.0.1:1"));
    }
}
