//! One call for a thing at a time: the specification lets a second one be refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use crate::Outcome;

/// What calls are under way for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    held: Arc<Mutex<BTreeSet<String>>>,
}

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Locks,
    names: Vec<String>,
}

impl Locks {
    /// Keeps other calls away from these names; `ABORTED` when one is with any of them.
    pub(crate) fn take<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Outcome<Held> {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.iter().find(|name| held.contains(**name)) {
            return Err(Status::aborted(format!("another call for '{name}' is under way: repeat this one later")));
        }
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        held.extend(names.iter().cloned());
        Ok(Held { locks: self.clone(), names })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &self.names {
            held.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_is_refused_until_the_first_is_over() {
        let locks = Locks::default();
        let both = locks.take(["a", "b", "a"]).unwrap();
        let refused = locks.take(["b"]).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted);
        assert!(refused.message().contains("'b'"));
        let _other = locks.take(["c"]).unwrap();
        assert!(locks.take(["c", "d"]).is_err());
        drop(both);
        let _now = locks.take(["a", "d"]).unwrap();
    }
}
