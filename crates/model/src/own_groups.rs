//! Groups that a volume has of its own, with its clones (docs/decisions/0062-home-attached.md): a class's record whose
//! parent is the class that people see.

use crate::{ClassRecord, Model};

/// Between the name of the class and what is random. No class that somebody names has it.
const MARK: char = '@';

/// The name for the own groups of a volume of this class; `random`: letters and digits.
#[must_use]
pub fn own_name(class: &str, random: &str) -> String {
    format!("{class}{MARK}{random}")
}

/// The class as people know it, of a class's record by this name.
#[must_use]
pub fn class_shown(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(class, _)| class)
}

/// Whether this names groups of a volume's own, and no class that people know.
#[must_use]
pub fn is_own(name: &str) -> bool {
    name.contains(MARK)
}

impl Model {
    /// The classes that people have made, also those that are being deleted.
    pub fn classes_shown(&self) -> impl Iterator<Item = &ClassRecord> {
        self.classes.values().map(|class| &class.record).filter(|class| !is_own(&class.name))
    }

    /// What volumes of this class have of their own.
    pub fn own_of(&self, class: &str) -> impl Iterator<Item = &ClassRecord> {
        let prefix = own_name(class, "");
        let from = self.classes.range(prefix.clone()..);
        from.take_while(move |(name, _)| name.starts_with(&prefix)).map(|(_, class)| &class.record)
    }

    /// A class that people know, and what its volumes have of their own.
    pub fn class_family(&self, class: &str) -> impl Iterator<Item = &ClassRecord> {
        self.classes.get(class).map(|class| &class.record).into_iter().chain(self.own_of(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transitions::classes::ClassSpec;
    use crate::{Key, Memory, Txn};

    #[test]
    fn own_groups_belong_to_a_class() {
        let mut memory = Memory::new();
        for name in ["fast", "fast@1", "fast@2", "fast-2", "faster", "fas@1"] {
            memory.run(&Txn::new().put(&Key::Class(name).to_string(), &ClassSpec::new(name, 1).record(""))).unwrap();
        }
        let names = |classes: Vec<&ClassRecord>| classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>();
        let model = memory.model();
        assert_eq!(names(model.classes_shown().collect()), ["fast", "fast-2", "faster"]);
        assert_eq!(names(model.own_of("fast").collect()), ["fast@1", "fast@2"]);
        assert_eq!(names(model.class_family("fast").collect()), ["fast", "fast@1", "fast@2"]);
        assert_eq!(names(model.class_family("faster").collect()), ["faster"]);
        assert_eq!((class_shown("fast@1"), class_shown("fast")), ("fast", "fast"));
        assert!(is_own(&own_name("fast", "0a")) && !is_own("fast"));
    }
}
