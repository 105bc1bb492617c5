//! Where a class keeps one copy of every block (docs/decisions/0056-class-homes.md).

use serde::{Deserialize, Serialize};

/// What a node's record says that it understands when it heeds the homes of classes. Versions before would move copies
/// away from there.
pub const CLASS_HOMES: &str = "class-homes";
/// Longest name of a site or rack in a home.
const NAME_BYTES_MAX: usize = 253;

/// A site, or a rack of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClassHome {
    /// The site, as the nodes there name it; empty: where they name none.
    #[serde(default)]
    pub site: String,
    /// The rack; none: anywhere in the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

impl ClassHome {
    /// Whether a node in this site and rack is there.
    #[must_use]
    pub fn has(&self, site: &str, rack: &str) -> bool {
        self.site == site && self.rack.as_ref().is_none_or(|own| own == rack)
    }

    /// Whether all that is in `other` is in this one, too.
    #[must_use]
    pub fn contains(&self, other: &ClassHome) -> bool {
        self.site == other.site && (self.rack.is_none() || self.rack == other.rack)
    }

    /// Why there can't be such a home.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        let names = [&self.site].into_iter().chain(&self.rack);
        if self.site.is_empty() && self.rack.is_none() {
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

    fn home(site: &str, rack: Option<&str>) -> ClassHome {
        ClassHome { site: site.to_owned(), rack: rack.map(str::to_owned) }
    }

    #[test]
    fn a_site_has_all_its_racks() {
        let (site, rack, other) = (home("a", None), home("a", Some("1")), home("b", Some("1")));
        assert!(site.has("a", "") && site.has("a", "1") && !site.has("b", "1"));
        assert!(rack.has("a", "1") && !rack.has("a", "2") && !rack.has("b", "1"));
        assert!(site.contains(&rack) && site.contains(&site) && !rack.contains(&site) && !site.contains(&other));
    }

    #[test]
    fn a_home_has_a_name() {
        for good in [home("a", None), home("a", Some("1")), home("", Some("1"))] {
            assert_eq!(good.flaw(), None, "{good}");
        }
        for bad in [home("", None), home("a", Some("")), home(&"a".repeat(254), None)] {
            assert!(bad.flaw().is_some(), "{bad}");
        }
    }
}
