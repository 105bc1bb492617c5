//! Hosts that name themselves at a door, and what they have to prove there (docs/decisions/0053-hosts.md).

use crate::admission::{Admission, Right};
use azekura_base::{ChapSecrets, GrantId, HostName};
use std::sync::Arc;

/// A host, as it came to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// What it calls itself; `None`: as no grant can.
    pub host: Option<HostName>,
    /// The grant that has let it in, and whose secret, if that has one, it has proved; `None`: it came in as anybody.
    pub grant: Option<GrantId>,
}

/// What a host has to prove to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostProof {
    /// Nothing: its name is enough.
    Name,
    /// That it knows a secret.
    Chap(Arc<ChapSecrets>),
    /// The same, but this node does not know the secret yet.
    Sealed,
}

/// What the host of a grant may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRight {
    /// The grant.
    pub grant: GrantId,
    /// What it has to prove.
    pub proof: HostProof,
    /// What it may then.
    pub right: Right,
}

/// Whether a host is let in that has said what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admittance {
    /// It is: by this grant, or as anybody.
    Granted(Option<GrantId>),
    /// It is, by this grant, when it has proved that it knows the secret.
    Proves(GrantId, Arc<ChapSecrets>),
    /// It is not.
    Refused,
    /// It is not known yet: it may come again.
    NotYet,
}

impl Admission {
    /// Whether a host of this name is let in.
    pub(crate) fn admittance(&self, host: Option<&HostName>) -> Admittance {
        if !self.is_known {
            return Admittance::NotYet;
        }
        match host.and_then(|host| self.hosts.get(host)) {
            Some(HostRight { grant, proof, .. }) => match proof {
                HostProof::Name => Admittance::Granted(Some(*grant)),
                HostProof::Chap(secrets) => Admittance::Proves(*grant, Arc::clone(secrets)),
                HostProof::Sealed => Admittance::NotYet,
            },
            None if self.open => Admittance::Granted(None),
            None => Admittance::Refused,
        }
    }

    /// What a host may that came in like this. Another grant than the one that has let it in is none of its: that one
    /// has ended.
    pub(crate) fn right_of(&self, named: &Named) -> Result<Option<&Right>, Refused> {
        match named.host.as_ref().and_then(|host| self.hosts.get(host)) {
            Some(found) if named.grant == Some(found.grant) => Ok(Some(&found.right)),
            None if self.open && named.grant.is_none() => Ok(None),
            _ => Err(Refused),
        }
    }
}

/// Somebody may nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;
