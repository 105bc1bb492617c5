//! Grants: who may what (docs/formats/grants.md).

use azekura_base::{HostName, Role, SecretHash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use crate::Unknown;

/// What a node's record says that it understands when it knows that keys may be for some volumes alone.
pub const KEY_VOLUMES: &str = "key_volumes";

/// What a node's record says that it understands when it asks hosts that come over iSCSI and NVMe for their grants.
pub const HOSTS: &str = "hosts";

/// How a grant is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    /// By a token's secret.
    Token,
    /// By a key.
    Key,
    /// By a host's name, and by its secret where it has one.
    Host,
}

/// A name and the secret that proves it (docs/decisions/0053-hosts.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChapRecord {
    /// The name.
    pub user: String,
    /// The secret, sealed: the number of the authority by whose key, `:`, and hexadecimal digits.
    pub sealed: String,
}

/// A host that comes over iSCSI or NVMe (docs/decisions/0053-hosts.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// What it calls itself.
    pub name: HostName,
    /// What it has to prove by CHAP, over NVMe by DH-HMAC-CHAP; `None`: its name is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapRecord>,
    /// What is proved to it in that way, if it asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<ChapRecord>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// Somebody has a role. To take it away is to delete the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrantRecord {
    /// A name for people; no two have the same.
    pub name: String,
    /// How it is proved.
    pub kind: GrantKind,
    /// SHA-256 of what proves it: a token's secret, a key's SubjectPublicKeyInfo, or a host's name.
    pub hash: SecretHash,
    /// What its owner may.
    pub role: Role,
    /// Whose volumes it is about.
    pub project: String,
    /// Of a key or a host: the volumes that it is about, with their snapshots, and then it is for their clients alone;
    /// `None`: all of the project, and for a key the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<BTreeSet<String>>,
    /// Of a host: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostRecord>,
    /// When it ends, seconds since 1970; `None`: when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Who has made it.
    pub by: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

impl GrantRecord {
    /// Whether it still counts at this time, seconds since 1970.
    #[must_use]
    pub fn counts_at(&self, seconds: u64) -> bool {
        self.until.is_none_or(|until| seconds < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/grant.json");
        let grant: GrantRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((grant.kind, grant.role, grant.until), (GrantKind::Token, Role::User, Some(1_798_761_600)));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&grant).unwrap()), golden);
        let document = include_str!("../../../docs/formats/grants.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").ends_with(golden.trim_end()), "docs/formats/grants.md shows another record");
    }

    #[test]
    fn a_keys_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/grant-key.json");
        let grant: GrantRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((grant.kind, grant.volumes.as_ref().map(BTreeSet::len)), (GrantKind::Key, Some(2)));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&grant).unwrap()), golden);
        let document = include_str!("../../../docs/formats/grants.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").contains(golden.trim_end()), "docs/formats/grants.md shows another record");
    }

    #[test]
    fn a_hosts_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/grant-host.json");
        let grant: GrantRecord = serde_json::from_str(golden).unwrap();
        assert_eq!(grant.host.as_ref().map(|host| host.name.as_str()), Some("iqn.1998-01.com.vmware:esx1"));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&grant).unwrap()), golden);
        let document = include_str!("../../../docs/formats/grants.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").contains(golden.trim_end()), "docs/formats/grants.md shows another record");
        assert!(serde_json::from_str::<GrantRecord>(&golden.replace("iqn.1998", "1998")).is_err());
    }

    #[test]
    fn what_is_not_known_opens_nothing() {
        let golden = include_str!("../tests/golden/grant.json");
        for (was, is) in [("\"token\"", "\"word\""), ("\"user\"", "\"root\""), ("630d", "630g")] {
            let other = golden.replace(was, is);
            assert!(other != golden && serde_json::from_str::<GrantRecord>(&other).is_err(), "{is}");
        }
    }

    #[test]
    fn a_grant_ends_on_the_second() {
        let grant: GrantRecord = serde_json::from_str(include_str!("../tests/golden/grant.json")).unwrap();
        assert!(grant.counts_at(1_798_761_599) && !grant.counts_at(1_798_761_600));
        assert!(GrantRecord { until: None, ..grant }.counts_at(u64::MAX));
    }
}
