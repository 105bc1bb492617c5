//! Storage classes.

use azekura_model::transitions::volumes::check_name;
use azekura_model::{AckRule, ClassRecord, FailureDomain, IO_TIMEOUT_DEFAULT_SECONDS, Key, Kind, MetaError, Unknown};

use super::{Attempt, MetaClient, Try, encode};
use crate::client::Txn;
use crate::time::now_rfc3339;

/// Overcommit ratio of a class that names none.
pub const DEFAULT_OVERCOMMIT_RATIO: f64 = 4.0;
/// I/O timeouts that a class may have, in seconds.
const IO_TIMEOUTS: std::ops::RangeInclusive<u64> = 1..=86_400;
/// Most copies of a block.
const COPIES_MAX: u32 = 16;

/// A storage class to make.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Its unique name.
    pub name: String,
    /// Copies of every block, 1 to 16.
    pub copies: u32,
    /// What two copies never share.
    pub failure_domain: FailureDomain,
    /// When a write is acknowledged.
    pub ack_rule: AckRule,
    /// With fewer in-sync copies a group is read-only; 1 to `copies`.
    pub copies_min: u32,
    /// Volumes' copies may sum up to this multiple of the devices' capacity; at least 0.1.
    pub overcommit_ratio: f64,
    /// Seconds that a request waits for a group which does not serve it, 1 to 86,400; `None`: for ever.
    pub io_timeout_seconds: Option<u64>,
}

impl ClassSpec {
    /// A class with this many copies on different hosts, acknowledged by all in-sync copies, writable with one.
    #[must_use]
    pub fn new(name: &str, copies: u32) -> ClassSpec {
        ClassSpec {
            name: name.to_owned(),
            copies,
            failure_domain: FailureDomain::Host,
            ack_rule: AckRule::All,
            copies_min: 1,
            overcommit_ratio: DEFAULT_OVERCOMMIT_RATIO,
            io_timeout_seconds: Some(IO_TIMEOUT_DEFAULT_SECONDS),
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), MetaError> {
        check_name(Kind::Class, &self.name)?;
        let reason = if !(1..=COPIES_MAX).contains(&self.copies) {
            format!("copies must be 1 to {COPIES_MAX}, not {}", self.copies)
        } else if !(1..=self.copies).contains(&self.copies_min) {
            format!("minimum copies must be 1 to {} (its copies), not {}", self.copies, self.copies_min)
        } else if self.ack_rule == AckRule::Majority && self.copies < 3 {
            format!(
                "a majority of {} copies is all of them: use the ack rule 'all', or three copies or more",
                self.copies
            )
        } else if self.ack_rule == AckRule::EachSite && self.copies < 2 {
            "one copy is in one site: use the ack rule 'all', or more copies".to_owned()
        } else if !(0.1..=1e6).contains(&self.overcommit_ratio) {
            format!("the overcommit ratio must be 0.1 to 1000000, not {}", self.overcommit_ratio)
        } else if let Some(seconds) = self.io_timeout_seconds.filter(|seconds| !IO_TIMEOUTS.contains(seconds)) {
            format!("the I/O timeout must be 1 s to 86,400 s, or never, not {seconds} s")
        } else {
            return Ok(());
        };
        Err(MetaError::InvalidClass { name: self.name.clone(), reason })
    }
}

impl MetaClient {
    /// Makes a storage class; its groups come with its first volume.
    pub async fn create_class(&self, spec: &ClassSpec) -> Result<ClassRecord, MetaError> {
        spec.check()?;
        let record = ClassRecord {
            name: spec.name.clone(),
            copies: spec.copies,
            failure_domain: spec.failure_domain,
            ack_rule: spec.ack_rule,
            copies_min: spec.copies_min,
            overcommit_ratio: spec.overcommit_ratio,
            io_timeout_seconds: spec.io_timeout_seconds,
            groups: Vec::new(),
            plan: None,
            deleted: false,
            created: now_rfc3339(),
            unknown: Unknown::default(),
        };
        let record = &record;
        self.settle("creating the storage class", |Try { deadline, uncertain }| async move {
            let [found] = self.get_all([&Key::Class(&spec.name)], deadline).await?;
            match found.record::<ClassRecord>()? {
                // Ours, of an attempt whose answer was lost.
                Some(existing) if uncertain && existing == *record => Ok(Attempt::Done(existing)),
                Some(_) => Err(MetaError::Exists { kind: Kind::Class, name: spec.name.clone() }),
                None => {
                    let txn = Txn::new().when_absent(&found.key).put(&found.key, encode(record));
                    self.commit(txn, record.clone()).await
                }
            }
        })
        .await
    }
}
