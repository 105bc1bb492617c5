//! Where a class keeps one copy of every block (docs/decisions/0056-class-homes.md).

use serde::{Deserialize, Serialize};

/// What a node's record says that it understands when it heeds the homes of classes. Versions before would move copies
/// away from there.
pub const CLASS_HOMES: &str = "class-homes";
/// Longest name of a site or rack in a home.
const NAME_BYTES_MAX: usize = 253;

/// What a node's record says that it understands when it knows volumes that have groups of their own
/// (docs/decisions/0062-home-attached.md). Versions before would take those for classes that people have made.
pub const OWN_GROUPS: &str = "own-groups";

/// A site, or a rack of it; for a volume's own groups also a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClassHome {
    /// The site, as the nodes there name it; empty: where they name none.
    #[serde(default)]
    pub site: String,
    /// The rack; none: anywhere in the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The one host, by its node's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl ClassHome {
    /// A site, or a rack of it.
    #[must_use]
    pub fn new(site: &str, rack: Option<&str>) -> ClassHome {
        ClassHome { site: site.to_owned(), rack: rack.map(str::to_owned), host: None }
    }

    /// Whether the host of this name, which stands in this site and rack, is there.
    #[must_use]
    pub fn has(&self, site: &str, rack: &str, host: &str) -> bool {
        let is = |own: &Option<String>, name: &str| own.as_ref().is_none_or(|own| own == name);
        // A host is known by its name alone: somebody may have noted its site since.
        is(&self.host, host) && (self.host.is_some() || self.site == site && is(&self.rack, rack))
    }

    /// Whether all that is in `other` is in this one, too.
    #[must_use]
    pub fn contains(&self, other: &ClassHome) -> bool {
        let is = |own: &Option<String>, others: &Option<String>| own.is_none() || own == others;
        is(&self.host, &other.host) && (self.host.is_some() || self.site == other.site && is(&self.rack, &other.rack))
    }

    /// Why there can't be such a home.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let names = [&self.site].into_iter().chain(&self.rack);
        if self.host.is_some() {
            Some("its home is one host".to_owned())
        } else if self.site.is_empty() && self.rack.is_none() {
            Some("its home names neither a site nor a rack".to_owned())
        } else if self.rack.as_ref().is_some_and(String::is_empty) {
            Some("the rack of its home has no name".to_owned())
        } else if names.into_iter().any(|name| name.len() > NAME_BYTES_MAX) {
            Some(format!("the site or the rack of its home has a name of more than {NAME_BYTES_MAX} bytes"))
        } else {
            None
        }
    }
}

impl std::fmt::Display for ClassHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(host) = &self.host {
            return write!(f, "host '{host}'");
        }
        match (&self.rack, self.site.as_str()) {
            (None, site) => write!(f, "site '{site}'"),
            (Some(rack), "") => write!(f, "rack '{rack}'"),
            (Some(rack), site) => write!(f, "rack '{rack}' of site '{site}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_all_its_racks() {
        let [site, rack, other] =
            [("a", None), ("a", Some("1")), ("b", Some("1"))].map(|(site, rack)| ClassHome::new(site, rack));
        assert!(site.has("a", "", "n") && site.has("a", "1", "n") && !site.has("b", "1", "n"));
        assert!(rack.has("a", "1", "n") && !rack.has("a", "2", "n") && !rack.has("b", "1", "n"));
        assert!(site.contains(&rack) && site.contains(&site) && !rack.contains(&site) && !site.contains(&other));
    }

    #[test]
    fn a_host_is_known_by_its_name() {
        let home = ClassHome { host: Some("n".to_owned()), ..ClassHome::new("a", Some("1")) };
        assert!(home.has("b", "", "n") && !home.has("a", "1", "m"));
        let [site, rack, other] =
            [("a", None), ("a", Some("1")), ("b", Some("1"))].map(|(site, rack)| ClassHome::new(site, rack));
        assert!(site.contains(&home) && rack.contains(&home) && !other.contains(&home));
        assert!(home.contains(&home) && !home.contains(&rack));
        assert_eq!(home.to_string(), "host 'n'");
        assert!(home.flaw().is_some(), "nobody asks for one");
    }

    #[test]
    fn a_home_has_a_name() {
        for good in [ClassHome::new("a", None), ClassHome::new("a", Some("1")), ClassHome::new("", Some("1"))] {
            assert_eq!(good.flaw(), None, "{good}");
        }
        for bad in [ClassHome::new("", None), ClassHome::new("a", Some("")), ClassHome::new(&"a".repeat(254), None)] {
            assert!(bad.flaw().is_some(), "{bad}");
        }
    }
}
