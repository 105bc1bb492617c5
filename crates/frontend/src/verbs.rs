//! What may be asked of an export: the capabilities that a protocol tells its client of.

/// A kind of [`Request`](crate::Request).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// [`Request::Read`](crate::Request::Read).
    Read,
    /// [`Request::Write`](crate::Request::Write).
    Write,
    /// [`Request::CompareAndWrite`](crate::Request::CompareAndWrite).
    CompareAndWrite,
    /// [`Request::Flush`](crate::Request::Flush).
    Flush,
    /// [`Request::Trim`](crate::Request::Trim).
    Trim,
    /// [`Request::Zero`](crate::Request::Zero).
    Zero,
    /// [`Request::Extents`](crate::Request::Extents).
    Extents,
    /// [`Request::Cache`](crate::Request::Cache).
    Cache,
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbs(u16);

impl Verbs {
    /// Those that leave an export as it is.
    pub const READ_ONLY: Verbs = Verbs::of(&[Verb::Read, Verb::Flush, Verb::Extents, Verb::Cache]);
    /// All that there are.
    pub const ALL: Verbs =
        Verbs::READ_ONLY.and(Verbs::of(&[Verb::Write, Verb::CompareAndWrite, Verb::Trim, Verb::Zero]));

    /// These verbs.
    #[must_use]
    pub const fn of(verbs: &[Verb]) -> Verbs {
        let (mut bits, mut index) = (0, 0);
        while index < verbs.len() {
            bits |= Verbs::bit(verbs[index]);
            index += 1;
        }
        Verbs(bits)
    }

    /// These verbs, and those of `other`.
    #[must_use]
    pub const fn and(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    /// These verbs without one of them.
    #[must_use]
    pub const fn without(self, verb: Verb) -> Verbs {
        Verbs(self.0 & !Verbs::bit(verb))
    }

    /// Whether the verb is one of them.
    #[must_use]
    pub const fn has(self, verb: Verb) -> bool {
        self.0 & Verbs::bit(verb) != 0
    }

    const fn bit(verb: Verb) -> u16 {
        1 << verb as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        assert!(Verbs::ALL.has(Verb::Write) && Verbs::ALL.has(Verb::Cache));
        assert!(Verbs::READ_ONLY.has(Verb::Read) && Verbs::READ_ONLY.has(Verb::Flush));
        for verb in [Verb::Write, Verb::CompareAndWrite, Verb::Trim, Verb::Zero] {
            assert!(!Verbs::READ_ONLY.has(verb), "{verb:?}");
            assert!(!Verbs::ALL.without(verb).has(verb) && Verbs::ALL.without(verb).has(Verb::Read), "{verb:?}");
        }
    }
}
