//! Where a node's clients connect, and how the configuration keeps this.
//!
//! Records that were written before there was more than one protocol have `nbd_addresses` instead of `endpoints`. Both
//! are written, so that nodes of such a version still tell their clients where the others are; see [`deserialize`].

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where clients of one protocol reach a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The protocol's own name. A newer node may name one that this version does not know.
    pub protocol: String,
    /// The address in the protocol's own words. For [`Endpoint::NBD`] `host:port`, or `unix:PATH` for clients on the
    /// same machine.
    pub address: String,
}

impl Endpoint {
    /// The name of NVMe over TCP.
    pub const NVME: &'static str = "nvme";
    /// The name of NBD.
    pub const NBD: &'static str = "nbd";
    /// The name of NBD where TLS is demanded; addresses are `host:port`. Versions before this do not know it.
    pub const NBDS: &'static str = "nbds";
    /// The name of vhost-user, where an address is one volume's: `VOLUME=unix:PATH`.
    pub const VHOST_USER: &'static str = "vhost-user";
    /// What the address of a unix socket begins with; the socket's path follows.
    pub const UNIX_PREFIX: &'static str = "unix:";

    /// An endpoint.
    #[must_use]
    pub fn new(protocol: &str, address: String) -> Endpoint {
        Endpoint { protocol: protocol.to_owned(), address }
    }

    /// An endpoint at which one volume is served.
    #[must_use]
    pub fn of_volume(protocol: &str, volume: &str, address: &str) -> Endpoint {
        Endpoint::new(protocol, format!("{volume}={address}"))
    }

    /// Whether an export is served here.
    #[must_use]
    pub fn serves(&self, export: &str) -> bool {
        self.protocol != Endpoint::VHOST_USER || self.address.split_once('=').is_some_and(|(only, _)| only == export)
    }

    /// The URI by which clients open an export here; `None` when this version does not know the protocol.
    #[must_use]
    pub fn uri(&self, export: &str) -> Option<String> {
        match self.protocol.as_str() {
            Endpoint::NBD => Some(nbd_uri(&self.address, export)),
            Endpoint::NBDS => Some(format!("nbds://{}/{export}", self.address)),
            Endpoint::NVME => Some(nvme_uri(&self.address, export)),
            _ => None,
        }
    }
}

/// After the *NBD URI specification* of the NetworkBlockDevice project (`doc/uri.md`).
fn nbd_uri(address: &str, export: &str) -> String {
    match address.strip_prefix(Endpoint::UNIX_PREFIX) {
        Some(path) => format!("nbd+unix:///{export}?socket={path}"),
        None => format!("nbd://{address}/{export}"),
    }
}

/// There is no URI that hosts take: as SPDK's and libvirt's users write it, with the name of the subsystem.
fn nvme_uri(address: &str, export: &str) -> String {
    format!("nvme+tcp://{address}/nqn.2026-01.io.azekura:{export}")
}

/// The fields of the record.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    /// What the versions before endpoints read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbd_addresses: Option<Vec<String>>,
}

fn nbd_addresses(endpoints: &[Endpoint]) -> Vec<String> {
    let nbd = endpoints.iter().filter(|endpoint| endpoint.protocol == Endpoint::NBD);
    nbd.map(|endpoint| endpoint.address.clone()).collect()
}

/// Writes `endpoints`, and `nbd_addresses` for nodes of versions before.
pub(crate) fn serialize<S: Serializer>(endpoints: &[Endpoint], serializer: S) -> Result<S::Ok, S::Error> {
    let nbd_addresses = Some(nbd_addresses(endpoints));
    Stored { endpoints: endpoints.to_vec(), nbd_addresses }.serialize(serializer)
}

/// Reads what any version has written. Versions before `endpoints` know `nbd_addresses` alone and keep the other field
/// as it was: where the two differ, such a version has started the node last, and the node serves NBD alone.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Endpoint>, D::Error> {
    let Stored { endpoints, nbd_addresses: addresses } = Stored::deserialize(deserializer)?;
    Ok(match addresses {
        Some(addresses) if addresses != nbd_addresses(&endpoints) => {
            addresses.into_iter().map(|address| Endpoint::new(Endpoint::NBD, address)).collect()
        }
        _ => endpoints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeRecord;
    use serde_json::{Value, json};

    fn nbd(address: &str) -> Endpoint {
        Endpoint::new(Endpoint::NBD, address.to_owned())
    }

    /// A node's record as the version before endpoints wrote it.
    fn before() -> Value {
        json!({
            "id": 1, "uuid": "u", "name": "n1", "data_address": "10.0.0.1:7101", "api_address": "10.0.0.1:7180",
            "nbd_addresses": ["10.0.0.1:10809", "unix:/run/azekura.nbd"],
            "site": "east", "rack": "r1", "incarnation": 4
        })
    }

    fn with(endpoints: Value, addresses: &[&str]) -> Value {
        let mut record = before();
        record["endpoints"] = endpoints;
        record["nbd_addresses"] = json!(addresses);
        record
    }

    fn read(record: Value) -> NodeRecord {
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_record_from_before_endpoints_is_read() {
        let node = read(before());
        assert_eq!(node.endpoints, [nbd("10.0.0.1:10809"), nbd("unix:/run/azekura.nbd")]);
        assert!((node.site.as_str(), node.incarnation) == ("east", 4) && node.unknown.0.is_empty(), "{node:?}");
        let mut neither = before();
        neither.as_object_mut().unwrap().remove("nbd_addresses");
        assert_eq!(read(neither).endpoints, []);
    }

    #[test]
    fn versions_before_endpoints_can_read_what_is_written() {
        let node = read(before());
        let mut written = serde_json::to_value(&node).unwrap();
        assert_eq!(read(written.clone()), node);
        let endpoints = written.as_object_mut().unwrap().remove("endpoints");
        let first = json!({ "protocol": "nbd", "address": "10.0.0.1:10809" });
        let second = json!({ "protocol": "nbd", "address": "unix:/run/azekura.nbd" });
        assert_eq!(endpoints, Some(json!([first, second])));
        assert_eq!(written, before());
    }

    #[test]
    fn a_protocol_that_is_not_known_stays() {
        let newer = json!([{ "protocol": "quantum", "address": "q" }, { "protocol": "nbd", "address": "a:1" }]);
        let node = read(with(newer.clone(), &["a:1"]));
        assert_eq!(node.endpoints, [Endpoint::new("quantum", "q".to_owned()), nbd("a:1")]);
        assert_eq!(serde_json::to_value(&node).unwrap()["endpoints"], newer);
        assert_eq!(node.endpoints[0].uri("v"), None);
    }

    #[test]
    fn a_node_that_went_back_to_a_version_before_endpoints_is_believed() {
        let stale = json!([{ "protocol": "quantum", "address": "q" }, { "protocol": "nbd", "address": "a:1" }]);
        assert_eq!(read(with(stale, &["b:2"])).endpoints, [nbd("b:2")]);
    }

    #[test]
    fn a_later_version_may_leave_the_addresses_out() {
        let mut record = with(json!([{ "protocol": "nbd", "address": "a:1" }]), &[]);
        record.as_object_mut().unwrap().remove("nbd_addresses");
        assert_eq!(read(record).endpoints, [nbd("a:1")]);
    }

    #[test]
    fn exports_have_uris_by_protocol() {
        assert_eq!(nbd("[::1]:10809").uri("v@monday").as_deref(), Some("nbd://[::1]:10809/v@monday"));
        let secured = Endpoint::new(Endpoint::NBDS, "10.0.0.1:10809".to_owned());
        assert_eq!(secured.uri("v").as_deref(), Some("nbds://10.0.0.1:10809/v"));
        assert_eq!(nbd("unix:/run/a.nbd").uri("v").as_deref(), Some("nbd+unix:///v?socket=/run/a.nbd"));
    }
}
