//! Counters of ids, whose revision also says that something of their kind has changed.

use crate::{Key, Outcome, Records, Step, Txn};

/// Changes a counter's revision: whoever makes something of its kind next has seen all that was changed before.
///
/// # Errors
/// When the counter can't be read.
pub fn touch_counter(records: &Records<'_>, counter: &str) -> Outcome<()> {
    let found = records.find(&Key::Counter(counter))?;
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &found.next_id()?), ()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::Memory;

    #[test]
    fn a_touched_counter_gives_the_same_ids_at_another_revision() {
        let mut memory = Memory::new();
        let key = Key::Counter("nodes").to_string();
        for revision in 1..=2 {
            run(&mut memory, |records| touch_counter(records, "nodes")).unwrap();
            assert_eq!((memory.model().counters["nodes"], memory.model().keys[&*key].mod_revision), (1, revision));
        }
    }
}
