//! What Kubernetes knows, as far as it owns something here.
//!
//! A list counts when all its pages have come. Whatever else there is instead (no answer, a refusal, a page that can't
//! be read) is an error of the whole, since what is missing from a list looks like something that nobody owns.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use azekura_client::{ClientError, Outside};
use serde_json::Value;

use super::owners::{Owners, Snapshots};
use crate::error::CsiError;

/// Objects in a page.
const PAGE_OBJECTS: usize = 500;
/// Pages of one kind: of more objects than Kubernetes keeps. A server that never ends is noticed.
const PAGES_MAX: usize = 10_000;
/// Where a pod finds its own account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The longest token or bundle of certificates that is read, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

const HINT: &str = "nothing was deleted, and nothing is said of what nobody owns: without all that Kubernetes knows, what \
                    belongs to somebody looks like what belongs to nobody";

/// Where Kubernetes is, and who asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    /// `https://HOST:PORT`, or `http://` on this machine; without it, that of the pod that this runs in.
    pub(super) url: Option<String>,
    pub(super) token: Option<PathBuf>,
    pub(super) authorities: Option<PathBuf>,
}

fn failed(message: String) -> CsiError {
    CsiError { message, hint: HINT }
}

fn read(path: &Path) -> Result<String, CsiError> {
    let refused = |reason: &dyn std::fmt::Display| CsiError {
        message: format!("can't read {}: {reason}", path.display()),
        hint: "outside of a pod, say where Kubernetes is: --kubernetes http://127.0.0.1:8001 beside 'kubectl proxy', or \
               --kubernetes https://HOST:PORT with --kubernetes-token-file and --kubernetes-ca",
    };
    let found = fs::metadata(path).map_err(|error| refused(&error))?;
    if found.len() > FILE_BYTES_MAX {
        return Err(refused(&"it is too long"));
    }
    fs::read_to_string(path).map_err(|error| refused(&error))
}

/// Asks Kubernetes.
#[derive(Debug)]
pub(super) struct Kubernetes {
    server: Outside,
}

impl Kubernetes {
    pub(super) fn new(access: &Access) -> Result<Kubernetes, CsiError> {
        let in_pod = access.url.is_none();
        let url = match &access.url {
            Some(url) => url.clone(),
            None => in_pod_url(|name| std::env::var(name).ok())?,
        };
        let file = |given: &Option<PathBuf>, name: &str| {
            let path = given.clone().or_else(|| in_pod.then(|| Path::new(ACCOUNT).join(name)));
            path.as_deref().map(read).transpose()
        };
        let (token, authorities) = (file(&access.token, "token")?, file(&access.authorities, "ca.crt")?);
        let server = Outside::new(&url, authorities.as_deref().map(str::as_bytes), token.as_deref());
        let server = server.map_err(|error| CsiError {
            message: format!("can't ask Kubernetes: {error}"),
            hint: "name it with --kubernetes https://HOST:PORT and its authority with --kubernetes-ca; or run 'kubectl \
                   proxy' and give --kubernetes http://127.0.0.1:8001",
        })?;
        Ok(Kubernetes { server })
    }

    /// All that Kubernetes knows of volumes of any driver, of their claims, snapshots and attachments.
    pub(super) fn owners(&self, driver: &str) -> Result<Owners, CsiError> {
        let mut owners = Owners::default();
        self.each("/api/v1/persistentvolumes", |volume| owners.add_volume(driver, volume))?;
        self.each("/api/v1/persistentvolumeclaims", |claim| owners.add_claim(claim))?;
        let mut nodes = BTreeMap::new();
        self.each("/apis/storage.k8s.io/v1/csinodes", |node| {
            if let (Some(name), Some(id)) = (text(node, "/metadata/name"), id_of_node(node, driver)) {
                nodes.insert(name, id);
            }
        })?;
        self.each("/apis/storage.k8s.io/v1/volumeattachments", |entry| owners.add_attachment(&nodes, entry))?;
        if let Some(path) = self.group("snapshot.storage.k8s.io")? {
            let mut known = Snapshots::default();
            self.each(&format!("{path}/volumesnapshotcontents"), |content| known.add(content, "snapcontent-"))?;
            owners.snapshots = Some(known);
        }
        if let Some(path) = self.group("groupsnapshot.storage.k8s.io")? {
            let mut known = Snapshots::default();
            self.each(&format!("{path}/volumegroupsnapshotcontents"), |it| known.add(it, "groupsnapcontent-"))?;
            owners.groups = Some(known);
        }
        Ok(owners)
    }

    /// The path of a group's preferred version; nothing where Kubernetes does not have the group.
    fn group(&self, name: &str) -> Result<Option<String>, CsiError> {
        let path = format!("/apis/{name}");
        let (status, told) = self.get(&path)?;
        match status {
            200 => match text(&told, "/preferredVersion/version") {
                Some(version) if is_word(&version) => Ok(Some(format!("{path}/{version}"))),
                _ => Err(self.odd(&path, "it says no version")),
            },
            404 => Ok(None),
            status => Err(self.refused(&path, status, &told)),
        }
    }

    /// Calls `take` for each object of a list, a page after the other.
    fn each(&self, path: &str, mut take: impl FnMut(&Value)) -> Result<(), CsiError> {
        let mut seen = BTreeSet::new();
        let mut target = format!("{path}?limit={PAGE_OBJECTS}");
        for _ in 0..PAGES_MAX {
            let (status, page) = self.get(&target)?;
            if status != 200 {
                return Err(self.refused(path, status, &page));
            }
            let is_list = text(&page, "/kind").is_some_and(|kind| kind.ends_with("List"));
            match page.get("items").and_then(Value::as_array) {
                Some(items) if is_list => items.iter().for_each(&mut take),
                _ => return Err(self.odd(path, "it is no list")),
            }
            let Some(next) = text(&page, "/metadata/continue").filter(|next| !next.is_empty()) else {
                return Ok(());
            };
            target = format!("{path}?limit={PAGE_OBJECTS}&continue={}", escaped(&next));
            if !seen.insert(next) {
                return Err(self.odd(path, "its pages go round"));
            }
        }
        Err(self.odd(path, "it does not end"))
    }

    fn get(&self, target: &str) -> Result<(u16, Value), CsiError> {
        let asked = target.split('?').next().unwrap_or_default();
        let answer = self
            .server
            .get(target)
            .map_err(|error: ClientError| failed(format!("Kubernetes does not tell {asked}: {error}")))?;
        let told = serde_json::from_slice(&answer.body);
        match (answer.status, told) {
            (status, Ok(told)) => Ok((status, told)),
            // Errors of proxies are no JSON.
            (200, Err(error)) => Err(self.odd(asked, &error.to_string())),
            (status, Err(_)) => Ok((status, Value::Null)),
        }
    }

    fn odd(&self, path: &str, reason: &str) -> CsiError {
        failed(format!("what {} answers to {path} makes no sense: {reason}", self.server.url()))
    }

    fn refused(&self, path: &str, status: u16, told: &Value) -> CsiError {
        let reason = text(told, "/message").unwrap_or_else(|| "it does not say why".to_owned());
        failed(format!("Kubernetes does not tell {path}: {status}, {reason}"))
    }
}

/// Kubernetes' own address for pods.
fn in_pod_url(variable: impl Fn(&str) -> Option<String>) -> Result<String, CsiError> {
    let of = |name| variable(name).filter(|value| !value.is_empty());
    match (of("KUBERNETES_SERVICE_HOST"), of("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if host.contains(':') => Ok(format!("https://[{host}]:{port}")),
        (Some(host), Some(port)) => Ok(format!("https://{host}:{port}")),
        _ => Err(CsiError {
            message: "this is no pod, and nobody has said where Kubernetes is".to_owned(),
            hint: "run 'kubectl proxy' and give --kubernetes http://127.0.0.1:8001, or see 'azekura csi orphans --help'",
        }),
    }
}

/// A text in an object.
pub(super) fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

/// What the driver calls a machine.
fn id_of_node(node: &Value, driver: &str) -> Option<String> {
    let drivers = node.pointer("/spec/drivers").and_then(Value::as_array)?;
    let ours = drivers.iter().find(|entry| text(entry, "/name").as_deref() == Some(driver))?;
    text(ours, "/nodeID")
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A value of a query (RFC 3986, 2.1).
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_knows_where_kubernetes_is() {
        let of = |host: &'static str, port: &'static str| {
            in_pod_url(move |name| Some(if name.ends_with("HOST") { host } else { port }.to_owned()))
        };
        assert_eq!(of("10.0.0.1", "443").unwrap(), "https://10.0.0.1:443");
        assert_eq!(of("fd00::1", "443").unwrap(), "https://[fd00::1]:443");
        assert!(of("10.0.0.1", "").unwrap_err().hint.contains("kubectl proxy"));
    }

    #[test]
    fn tokens_of_pages_are_written_into_queries() {
        assert_eq!(escaped("eyJ2-a_b.c~=+/"), "eyJ2-a_b.c~%3D%2B%2F");
    }
}
